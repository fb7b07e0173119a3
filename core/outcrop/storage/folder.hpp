// Classes for open folders and their files. Code whose data must survive a power cut uses these classes.
// Files::system() is the file system of this machine. Tests replace this file system by a model of storage that loses
// unflushed bytes and kills processes at any point.
//
//     Files ──► open Folder ──► OpenFile          a name is the plain name of a file in the folder, never a path
//
// The content of a folder may be untrusted. A Folder opens only regular files, and refuses links, pipes and devices.
// create() never replaces a file. Files are removed and renamed in the folder that was opened, even if the path of this
// folder has changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop {

/// An open file in a folder. The functions work like the functions of File, and throw StorageError.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  virtual const std::string &path() const = 0;
  virtual std::uint64_t size() const = 0;
  virtual void read(std::uint64_t offset, std::byte *data, std::size_t length) const = 0;
  virtual void write(std::uint64_t offset, const std::byte *data, std::size_t length) = 0;
  virtual void flush() = 0;

  /// Returns the file itself, for mappings. Returns null in a model of storage.
  virtual const File *file() const { return nullptr; }
};

/// A lock on a file of a folder. The destructor or the end of the process releases the lock.
class FolderLock {
 public:
  virtual ~FolderLock() = default;
};

/// Says when the blocks of a new file are allocated.
enum class Allocation { at_once, as_written };

/// All functions throw StorageError if the system refuses an operation.
class Folder {
 public:
  virtual ~Folder() = default;
  virtual const std::string &path() const = 0;

  /// Opens an existing file.
  virtual std::unique_ptr<OpenFile> open(const std::string &name, bool writable, bool direct) = 0;
  /// Creates a file of `size` bytes. Fails if the name exists. A failure leaves no new file.
  virtual void create(const std::string &name, std::uint64_t size, Allocation allocation = Allocation::at_once) = 0;
  /// Renames the file `from` to `to`. An existing file `to` is replaced.
  virtual void rename(const std::string &from, const std::string &to) = 0;
  /// Removes a file. Returns true if the file existed.
  virtual bool remove(const std::string &name) = 0;
  virtual std::vector<std::string> names() = 0;
  /// Makes the names of all created, renamed and removed files durable.
  virtual void flush() = 0;
  /// Locks the file `name`. Creates the file if it is missing. The file is never removed. Returns null if another
  /// process still holds the lock after `seconds`.
  virtual std::unique_ptr<FolderLock> hold(const std::string &name, double seconds) = 0;
};

class Files {
 public:
  virtual ~Files() = default;

  /// Opens a folder that the user has named. Throws StorageError.
  virtual std::unique_ptr<Folder> folder(const std::string &path) = 0;
  /// Opens a folder that only this program uses. The folder must not be a link, and must be owned by this user. Removes
  /// the permissions of other users. If the folder is missing, creates it if `make` is true, and otherwise returns
  /// null. Throws StorageError or InputError.
  virtual std::unique_ptr<Folder> own_folder(const std::string &path, bool make) = 0;
  /// Opens a file that the user has named (see open_named()). Throws StorageError.
  virtual std::unique_ptr<OpenFile> open(const std::string &path, bool writable, bool direct) = 0;

  static Files &system();
};

}  // namespace outcrop
