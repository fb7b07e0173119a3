// Folders held open, and the files in them: the interface of protocols that survive a power cut. Files::system() has the
// files of the system. Tests use a model of storage instead, which loses what was not flushed and kills processes anywhere.
//
//     Files ──► Folder, held open ──► OpenFile          a name is that of a file in the folder: plain, never a path
//
// The content of a folder may come from a stranger. Only regular files are opened in it: no links, pipes or devices. Only
// new files are created. Names are removed and renamed in the folder that was opened, even if its path changes meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop {

/// As a File. All functions throw StorageError.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  virtual const std::string &path() const = 0;
  virtual std::uint64_t size() const = 0;
  virtual void read(std::uint64_t offset, std::byte *data, std::size_t length) const = 0;
  virtual void write(std::uint64_t offset, const std::byte *data, std::size_t length) = 0;
  virtual void flush() = 0;

  /// The file of the system, for mapping; null in a model.
  virtual const File *file() const { return nullptr; }
};

/// A lock, released by the destructor or when the process ends.
class FolderLock {
 public:
  virtual ~FolderLock() = default;
};

/// When the blocks of a new file are allocated.
enum class Allocation { at_once, as_written };

/// All functions throw StorageError when the system refuses.
class Folder {
 public:
  virtual ~Folder() = default;
  virtual const std::string &path() const = 0;

  /// Opens an existing file.
  virtual std::unique_ptr<OpenFile> open(const std::string &name, bool writable, bool direct) = 0;
  /// Makes a new file of `size` bytes, and removes it again if that fails.
  virtual void create(const std::string &name, std::uint64_t size, Allocation allocation = Allocation::at_once) = 0;
  /// Replaces a file that has the new name.
  virtual void rename(const std::string &from, const std::string &to) = 0;
  /// Returns whether the file existed.
  virtual bool remove(const std::string &name) = 0;
  virtual std::vector<std::string> names() = 0;
  /// Makes all changes of names durable.
  virtual void flush() = 0;
  /// Locks the file `name`, which is created if missing and never removed. Null if another process still holds the lock
  /// after `seconds`.
  virtual std::unique_ptr<FolderLock> hold(const std::string &name, double seconds) = 0;
};

class Files {
 public:
  virtual ~Files() = default;

  /// Opens a folder of the user. Throws StorageError.
  virtual std::unique_ptr<Folder> folder(const std::string &path) = 0;
  /// Opens a folder that only this program uses: not a link, owned by this user, without permissions for others. If it is
  /// missing, it is made, or null is returned. Throws StorageError, InputError.
  virtual std::unique_ptr<Folder> own_folder(const std::string &path, bool make) = 0;
  /// As open_named(). Throws StorageError.
  virtual std::unique_ptr<OpenFile> open(const std::string &path, bool writable, bool direct) = 0;

  /// The files of the system.
  static Files &system();
};

}  // namespace outcrop
