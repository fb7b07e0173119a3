// This header defines the class File, an open file that is read and written at given offsets. The header also declares
// functions that open files safely, and classes for open folders.
//
// If the file system supports O_DIRECT, a File has two descriptors: a direct descriptor and a buffered descriptor. The
// buffered descriptor serves transfers that do not consist of whole pages. Two examples are the transfer of an index at
// the end of a file and the transfer of some rows of a plane. The buffered descriptor also serves transfers whose
// memory is not aligned. Direct and buffered transfers never write to the same page, because the system does not keep
// the order of such writes.
//
// An object of class File can be restricted to a part of the open file. For example, each shard on a raw block device
// is a part of the device.
//
// The content of a folder is not trusted. A name in the folder can be a symbolic link, or can lead out of the folder by
// "..". A name can also belong to a pipe, and open() of a pipe can wait forever. So the caller can give the descriptor
// of a folder and a path relative to this folder. If the caller gives a folder, only a regular file beneath this folder
// is opened, by one of two system calls:
//
//     openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)     Linux 5.6 and later
//     openat(O_NOFOLLOW) for each component                                      if openat2 is missing or forbidden
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace outcrop {

/// The memory of a transfer can have several parts. Returns the address of the first byte of a part.
inline std::byte *begin_of(const iovec &part) { return static_cast<std::byte *>(part.iov_base); }

/// Returns the parts without their first `bytes` bytes. If some bytes of a part are removed and others remain, the
/// function changes this part.
inline std::span<iovec> without_first(std::span<iovec> parts, std::size_t bytes) {
  while (!parts.empty() && parts[0].iov_len <= bytes) {
    bytes -= parts[0].iov_len;
    parts = parts.subspan(1);
  }
  if (bytes > 0) parts[0] = {begin_of(parts[0]) + bytes, parts[0].iov_len - bytes};
  return parts;
}

/// An open file descriptor. The destructor closes it.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor &&other) noexcept : number_(other.release()) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() { reset(); }

  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  void reset(int number = -1);

 private:
  int number_;
};

class File {
 public:
  File() = default;

  /// Opens an existing file. If `folder` is not -1, the path is relative to this open folder, and the file must be a
  /// regular file beneath the folder. The descriptor `folder` may be closed after the call. If `label` is not empty,
  /// error messages contain `label` instead of the path. Throws StorageError.
  static File open(const std::string &path, bool writable, bool direct, int folder = -1, const std::string &label = "");

  /// Opens another file, which must be on the same file system as this file. The new file has the same access
  /// (writable, direct) and the same alignments as this file. So the function does not test again whether direct
  /// transfers work. The arguments have the same meaning as in open(). Throws StorageError.
  File open_like(const std::string &path, int folder, const std::string &label) const;

  /// Creates or replaces a file of `size` bytes, allocates storage for all bytes, and closes the file. Throws
  /// StorageError. If an error occurs, the file is removed.
  static void create(const std::string &path, std::uint64_t size);

  /// Makes and opens a new empty file in an open folder. Messages contain `label`. Throws StorageError, for example if
  /// the name exists.
  static File make(int folder, const std::string &name, mode_t mode, const std::string &label);

  /// Makes an unnamed file in memory. The file is deleted when it is closed. The new file contains `size` bytes of
  /// zeros. Writes behind the end extend the file.
  static File anonymous(const std::string &label, std::uint64_t size, bool writable = true);

  /// Makes an unnamed file in `folder`. The file is deleted when it is closed. Storage for all `size` bytes is
  /// allocated. Throws StorageError.
  static File unnamed(const std::string &folder, std::uint64_t size);

  /// Restricts this file to the `size` bytes from byte `begin` on. After this call, offsets count from `begin`, and
  /// bytes outside the part cannot be read or written.
  void narrow(std::uint64_t begin, std::uint64_t size);

  /// path() and whole_path() return the path or the label of this file. If this file is restricted to a part, path()
  /// also contains the offset of the part.
  const std::string &path() const { return path_; }
  const std::string &whole_path() const { return whole_path_; }

  /// Marks the file as a scratch file, whose content is not needed after the run. A store does not flush a scratch
  /// file.
  void set_scratch(bool scratch) { scratch_ = scratch; }
  bool scratch() const { return scratch_; }

  bool is_part() const { return part_size_ > 0; }
  std::uint64_t begin() const { return begin_; }  ///< the byte of the whole file at which this part begins

  /// Returns true if a transfer stays inside the part to which this file is restricted. A file that is not restricted
  /// to a part can grow, so the function returns true for each transfer of such a file.
  bool holds(std::uint64_t offset, std::size_t length) const;

  bool writable() const { return writable_; }
  bool direct() const { return direct_.get() >= 0; }
  /// alignment() returns the alignment, in bytes, that the offset and the length of a direct transfer need.
  /// memory_alignment() returns the alignment that the memory address needs. The result of memory_alignment() can be
  /// smaller than the result of alignment(). Both functions return 1 if the file is not direct.
  std::size_t alignment() const { return direct() ? alignment_ : 1; }
  std::size_t memory_alignment() const { return direct() ? memory_alignment_ : 1; }

  /// Returns the current size of the file, or of its part, in bytes. Throws StorageError.
  std::uint64_t size() const;

  /// Allocates storage for the first `size` bytes of the file. Throws StorageError.
  void allocate(std::uint64_t size) const;

  /// read() and write() transfer `length` bytes, and return when all bytes are transferred. If the file is direct and
  /// the memory is aligned, whole pages bypass the page cache. The bytes before and after the whole pages go through
  /// the page cache. The functions throw StorageError. If the file has fewer bytes than a read needs, the errno in
  /// StorageError is 0.
  void read(std::uint64_t offset, std::byte *data, std::size_t length) const;
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) const;

  /// Makes the data durable (fdatasync). Throws StorageError.
  void flush() const;

  int buffered_descriptor() const { return buffered_.get(); }

  /// Returns the direct descriptor if the file is direct and the transfer consists of whole, aligned pages. Otherwise
  /// returns the buffered descriptor.
  int descriptor(std::uint64_t offset, const std::byte *data, std::size_t length) const;

 private:
  File(const std::string &label, bool writable) : path_(label), whole_path_(label), writable_(writable) {}

  Descriptor open_descriptor(const std::string &path, int folder, int more_flags) const;
  void move(bool write, std::uint64_t offset, std::byte *data, std::size_t length) const;

  std::string path_, whole_path_;
  std::uint64_t begin_ = 0, part_size_ = 0;
  bool writable_ = false, scratch_ = false;
  Descriptor buffered_, direct_;
  std::size_t alignment_ = 4096, memory_alignment_ = 4096;
};

/// Opens a file that the user has named. Follows links and accepts devices, but refuses pipes and folders. Throws
/// StorageError.
File open_named(const std::string &path, bool writable, bool direct);

/// Opens a regular file that is not a link. The path of the folder may contain links. Throws StorageError.
File open_without_links(const std::string &path, bool writable, bool direct);

/// Opens an existing regular file beneath `folder` with the `flags` of open(2). Messages contain `label` instead of the
/// path. Throws StorageError.
Descriptor open_beneath(int folder, const std::string &path, int flags, const std::string &label);

// There are two ways to open a file beneath a folder. open_at_once() and open_by_components() return a descriptor, or
// -1 and an errno. The errno is ELOOP for a link, and EXDEV for a path that leads out of the folder.
int open_at_once(int folder, const std::string &path, int flags);
int open_by_components(int folder, const std::string &path, int flags);

/// folder_of() returns the folder of a path, or "." if the path has no folder. name_in_folder() returns the last part
/// of the path.
std::string folder_of(const std::string &path);
std::string name_in_folder(const std::string &path);

// --- folders ---------------------------------------------------------------------------------------------------------
// Classes for open folders and their files. Programs use these classes for data that must survive a power cut.
// Files::system() is the file system of this machine. Tests replace the file system of the machine by a model of
// storage. At a simulated power cut, the model loses unflushed bytes. The model can also kill a process at any point.
//
//     Files ──► open Folder ──► OpenFile          a name is the plain name of a file in the folder, never a path
//
// The content of a folder is not trusted. A Folder opens only regular files, and refuses links, pipes and devices.
// create() never replaces a file. If another process moves a folder that is already open, the functions still remove
// and rename files in the opened folder.

/// An open file in a folder. The functions of this class work like the functions of class File, and throw StorageError.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  virtual const std::string &path() const = 0;
  virtual std::uint64_t size() const = 0;
  virtual void read(std::uint64_t offset, std::byte *data, std::size_t length) const = 0;
  virtual void write(std::uint64_t offset, const std::byte *data, std::size_t length) = 0;
  virtual void flush() = 0;

  /// Returns the file itself, for mappings. The model of storage returns null.
  virtual const File *file() const { return nullptr; }
};

/// A lock on a file of a folder. The destructor or the end of the process releases the lock.
class FolderLock {
 public:
  virtual ~FolderLock() = default;
};

/// Says when the file system allocates the blocks of a new file.
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
  /// process still holds the lock after `seconds` seconds.
  virtual std::unique_ptr<FolderLock> hold(const std::string &name, double seconds) = 0;
};

class Files {
 public:
  virtual ~Files() = default;

  /// Opens a folder that the user has named. Throws StorageError.
  virtual std::unique_ptr<Folder> folder(const std::string &path) = 0;
  /// Opens a folder that only this program uses. The folder must not be a link, and must belong to this user. Removes
  /// the permissions of other users. If the folder is missing and `make` is true, the function creates the folder. If
  /// `make` is false, the function returns null. Throws StorageError or InputError.
  virtual std::unique_ptr<Folder> own_folder(const std::string &path, bool make) = 0;
  /// Opens a file that the user has named (see open_named()). Throws StorageError.
  virtual std::unique_ptr<OpenFile> open(const std::string &path, bool writable, bool direct) = 0;

  static Files &system();
};

}  // namespace outcrop
