// One open file, read and written at offsets, with O_DIRECT where the file system supports it; and safe ways to open one.
//
// A direct file keeps a second, buffered descriptor. It serves transfers that are not of whole pages (the tail of a short
// transfer, an index at the end of a file, some rows of a plane) or not aligned in memory. Transfers of both kinds never
// share a page: the system does not order what they write there.
//
// A file may be narrowed to a part of itself: on a raw block device, which has no names, each shard is a part.
//
// The content of a folder may come from a stranger: a name in it may be a symbolic link, lead outside by "..", or be a pipe
// on which opening waits forever. So a path can be given relative to the descriptor of a folder that the caller trusts;
// then only a regular file beneath that folder is opened:
//
//     openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)     Linux 5.6 and later
//     openat(O_NOFOLLOW) for each component                                      where that is missing or forbidden
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace outcrop {

/// An open descriptor, closed by the destructor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor &&other) noexcept : number_(other.release()) {}
  Descriptor &operator=(Descriptor &&other) noexcept;
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() { reset(); }

  int get() const { return number_; }
  int release();
  void reset();

 private:
  int number_;
};

/// Allocates all of the first `size` bytes of an open file. Returns 0 or an errno.
int allocate(int descriptor, std::uint64_t size);

class File {
 public:
  /// Opens an existing file. With `folder`, a descriptor that only this call needs, the path is relative to that folder and
  /// the file must be a regular one beneath it. Messages name the file by `label` if it is not empty. Throws StorageError.
  static File open(const std::string &path, bool writable, bool direct, int folder = -1, const std::string &label = "");

  /// Makes a file of `size` bytes, all of them allocated, and closes it. An existing one is replaced. On failure
  /// (no space, no permission) throws StorageError and leaves no file behind.
  static void create(const std::string &path, std::uint64_t size);

  /// A file without a name in memory, deleted when it is closed. It has `size` bytes of zeros; writes extend it.
  static File anonymous(const std::string &label, std::uint64_t size, bool writable = true);

  /// A file without a name in `folder`, deleted when it is closed. All `size` bytes are allocated. Throws StorageError.
  static File unnamed(const std::string &folder, std::uint64_t size);

  /// Restricts this to the `size` bytes from byte `begin` on: offsets count from there, and no other byte is reached.
  void narrow(std::uint64_t begin, std::uint64_t size);

  /// The path or the label, and the first byte if this is a part.
  const std::string &path() const { return path_; }
  /// The path or the label alone.
  const std::string &whole_path() const { return whole_path_; }

  /// A scratch file is not flushed with the others of a store: its content is not needed after the run.
  void set_scratch(bool scratch) { scratch_ = scratch; }
  bool scratch() const { return scratch_; }

  bool is_part() const { return part_size_ > 0; }

  /// The byte of the whole file that has offset 0 here.
  std::uint64_t begin() const { return begin_; }

  /// Whether a transfer stays inside a part; a whole file may grow.
  bool holds(std::uint64_t offset, std::size_t length) const;

  bool writable() const { return writable_; }
  bool direct() const { return direct_.get() >= 0; }
  /// Bytes to which offset, length and address of a direct transfer must be aligned; 1 if the file is not direct.
  std::size_t alignment() const { return direct() ? alignment_ : 1; }
  /// The same for addresses alone, which may be smaller.
  std::size_t memory_alignment() const { return direct() ? memory_alignment_ : 1; }

  /// Current size of the file, or that of the part. Throws StorageError.
  std::uint64_t size() const;

  /// Moves all `length` bytes and waits. Whole pages bypass the page cache if the file is direct and memory is aligned; the
  /// bytes before and after them use it. Throws StorageError, with error 0 if the file ends early.
  void read(std::uint64_t offset, std::byte *data, std::size_t length) const;
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) const;

  /// Makes the data durable (fdatasync). Throws StorageError.
  void flush() const;

  int buffered_descriptor() const { return buffered_.get(); }

  /// The descriptor for a transfer: the direct one if the file is direct, the transfer is of whole pages, and it is aligned.
  int descriptor(std::uint64_t offset, const std::byte *data, std::size_t length) const;

 private:
  std::size_t next_length(std::uint64_t offset, std::size_t length) const;

  std::string path_, whole_path_;
  std::uint64_t begin_ = 0, part_size_ = 0;
  bool writable_ = false, scratch_ = false;
  Descriptor buffered_, direct_;
  std::size_t alignment_ = 4096, memory_alignment_ = 4096;
};

/// Opens a file that the user has named: links are followed, devices are accepted, pipes and folders are not. Throws
/// StorageError.
File open_named(const std::string &path, bool writable, bool direct);

/// Opens a regular file that is not a link, in a folder to which links may lead. Throws StorageError.
File open_without_links(const std::string &path, bool writable, bool direct);

/// Opens an existing regular file beneath `folder` with `flags` of open(2). `label` names it in messages. Throws StorageError.
Descriptor open_beneath(int folder, const std::string &path, int flags, const std::string &label);

// The two ways of open_beneath. They return a descriptor, or -1 and errno: ELOOP for a link, EXDEV for a path that leads
// outside.
int open_at_once(int folder, const std::string &path, int flags);
int open_by_components(int folder, const std::string &path, int flags);

/// The folder of a path ("." if it has none), and the name in that folder.
std::string folder_of(const std::string &path);
std::string name_in_folder(const std::string &path);

}  // namespace outcrop
