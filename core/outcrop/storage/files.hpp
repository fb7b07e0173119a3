// What protocols that survive a power cut do to files, as one narrow interface. Behind it are the files of the system; tests put
// a model of storage in their place, which loses what has not been flushed and ends processes wherever it likes.
//
//     Files ──► Folder, held open ──► OpenFile          names are of files in the folder: plain, never paths
//
// Folders may come from strangers. What is opened in one is a regular file, not a link, a pipe or a device; what is made is new;
// what is removed or renamed is the name in that very folder, wherever its path leads by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop {

/// As a File; all throw StorageError.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  virtual const std::string &path() const = 0;
  virtual std::uint64_t size() const = 0;
  virtual void read(std::uint64_t offset, std::byte *data, std::size_t length) const = 0;
  virtual void write(std::uint64_t offset, const std::byte *data, std::size_t length) = 0;
  virtual void flush() = 0;

  /// The file of the system, to be mapped; null in a model.
  virtual const File *file() const { return nullptr; }
};

/// A lock that is held as long as this lives, and at most as long as the process.
class Held {
 public:
  virtual ~Held() = default;
};

/// Whether all bytes of a new file are allocated, or each when it is written.
enum class Room { taken, as_written };

/// All throw StorageError where the system does not do it.
class Folder {
 public:
  virtual ~Folder() = default;
  virtual const std::string &path() const = 0;

  /// Of a file that is there.
  virtual std::unique_ptr<OpenFile> open(const std::string &name, bool writable, bool direct) = 0;
  /// A new file of so many bytes. No file stays when that fails.
  virtual void create(const std::string &name, std::uint64_t size, Room room = Room::taken) = 0;
  /// A file that has the new name is replaced.
  virtual void rename(const std::string &from, const std::string &to) = 0;
  /// Whether it was there.
  virtual bool remove(const std::string &name) = 0;
  virtual std::vector<std::string> names() = 0;
  /// Makes names durable: those that are there, and that those removed are gone.
  virtual void flush() = 0;
  /// By a file of that name, which is made and stays. Null when another has held it for `seconds`.
  virtual std::unique_ptr<Held> hold(const std::string &name, double seconds) = 0;
};

class Files {
 public:
  virtual ~Files() = default;

  /// A folder of the user's. Throws StorageError.
  virtual std::unique_ptr<Folder> folder(const std::string &path) = 0;
  /// One that only this program uses: no link, owned by this user and closed to all others. Where it is not there it is made, or
  /// null returned. Throws StorageError, InputError.
  virtual std::unique_ptr<Folder> own_folder(const std::string &path, bool make) = 0;
  /// A file that the user has named: links are followed, devices are taken, pipes and folders are not. Throws StorageError.
  virtual std::unique_ptr<OpenFile> open(const std::string &path, bool writable, bool direct) = 0;

  /// Those of the system.
  static Files &system();
};

/// As Files::open and Folder::open of the system, for those who need the file itself.
File open_named(const std::string &path, bool writable, bool direct);
File open_without_links(const std::string &path, bool writable, bool direct);

/// The folder of a file, to be opened, and its name there.
std::string folder_of(const std::string &path);
std::string name_in_folder(const std::string &path);

}  // namespace outcrop
