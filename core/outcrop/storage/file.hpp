// An open file, read and written at offsets, with O_DIRECT where the file system supports it; and safe ways to open it.
//
// A direct file also keeps a buffered descriptor. It serves transfers that do not consist of whole pages (the tail of a
// short transfer, an index at the end of a file, some rows of a plane) or are not aligned in memory. Direct and
// buffered transfers never share a page, because the system does not order their writes to it.
//
// A file may be narrowed to a part of itself. A raw block device has no file names, so each shard is a part of it.
//
// The content of a folder may be untrusted. A name in it may be a symbolic link, lead outside by "..", or belong to a
// pipe, whose open() blocks. A path can therefore be given relative to the descriptor of a folder that the caller
// trusts. Then only a regular file beneath that folder is opened:
//
//     openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)     Linux 5.6 and later
//     openat(O_NOFOLLOW) for each component                                      if openat2 is missing or forbidden
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace outcrop {

/// An open descriptor, closed by the destructor.
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

/// Allocates all of the first `size` bytes of an open file. Returns 0 or an errno.
int allocate(int descriptor, std::uint64_t size);

class File {
 public:
  /// Opens an existing file. If `folder` is not -1, the path is relative to this open folder, and the file must be a
  /// regular one beneath it; only this call needs the descriptor. Messages name the file by `label` if it is not empty.
  /// Throws StorageError.
  static File open(const std::string &path, bool writable, bool direct, int folder = -1, const std::string &label = "");

  /// Creates a file of `size` bytes, allocates all of them, and closes the file. Replaces an existing file. On failure
  /// (no space, no permission) throws StorageError and leaves no file behind.
  static void create(const std::string &path, std::uint64_t size);

  /// An unnamed file in memory, deleted when it is closed. It starts with `size` bytes of zeros; writes extend it.
  static File anonymous(const std::string &label, std::uint64_t size, bool writable = true);

  /// An unnamed file in `folder`, deleted when it is closed. All `size` bytes are allocated. Throws StorageError.
  static File unnamed(const std::string &folder, std::uint64_t size);

  /// Restricts this to the `size` bytes from byte `begin` on. Offsets count from there, and no other byte is reachable.
  void narrow(std::uint64_t begin, std::uint64_t size);

  /// The path or the label, followed by the first byte if this is a part.
  const std::string &path() const { return path_; }
  /// The path or the label alone.
  const std::string &whole_path() const { return whole_path_; }

  /// A store does not flush a scratch file, because its content is not needed after the run.
  void set_scratch(bool scratch) { scratch_ = scratch; }
  bool scratch() const { return scratch_; }

  bool is_part() const { return part_size_ > 0; }

  /// The byte of the whole file at offset 0 of this part.
  std::uint64_t begin() const { return begin_; }

  /// Whether a transfer stays inside this part. Always true for a whole file, which may grow.
  bool holds(std::uint64_t offset, std::size_t length) const;

  bool writable() const { return writable_; }
  bool direct() const { return direct_.get() >= 0; }
  /// Bytes to which offset, length and address of a direct transfer must be aligned; 1 if the file is not direct.
  std::size_t alignment() const { return direct() ? alignment_ : 1; }
  /// The alignment of the address alone, which may be smaller.
  std::size_t memory_alignment() const { return direct() ? memory_alignment_ : 1; }

  /// The current size of the file, or the size of the part. Throws StorageError.
  std::uint64_t size() const;

  /// Move all `length` bytes and wait for them. If the file is direct and the memory is aligned, whole pages bypass the
  /// page cache; the bytes before and after them use it. Throw StorageError, with error 0 if the file ends early.
  void read(std::uint64_t offset, std::byte *data, std::size_t length) const;
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) const;

  /// Makes the data durable (fdatasync). Throws StorageError.
  void flush() const;

  int buffered_descriptor() const { return buffered_.get(); }

  /// The descriptor for a transfer: the direct one if the file is direct and the transfer consists of whole, aligned
  /// pages.
  int descriptor(std::uint64_t offset, const std::byte *data, std::size_t length) const;

 private:
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

/// Opens a regular file that is not a link. The path of its folder may contain links. Throws StorageError.
File open_without_links(const std::string &path, bool writable, bool direct);

/// Opens an existing regular file beneath `folder` with the `flags` of open(2). `label` names it in messages. Throws
/// StorageError.
Descriptor open_beneath(int folder, const std::string &path, int flags, const std::string &label);

// open_beneath() uses the first of these functions if the system supports it, and otherwise the second. They return a
// descriptor, or -1 with errno: ELOOP for a link, EXDEV for a path that leads outside.
int open_at_once(int folder, const std::string &path, int flags);
int open_by_components(int folder, const std::string &path, int flags);

/// The folder of a path ("." if it has none), and the name in that folder.
std::string folder_of(const std::string &path);
std::string name_in_folder(const std::string &path);

}  // namespace outcrop
