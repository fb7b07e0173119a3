// One open file, read and written at offsets, by O_DIRECT where the filesystem takes it.
//
// A direct file keeps a second, buffered descriptor: a transfer that is not of whole pages (the tail of a short transfer,
// an index at the end of a file, some rows of a plane), or not aligned in memory, goes by that one. No page is shared by
// transfers of both kinds: the system does not keep what they write there apart.
//
// A file may be narrowed to a part: on a raw block device, which has no names, every shard is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace outcrop {

/// An open descriptor; closed when it goes.
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

class File {
 public:
  /// Opens an existing file. With `folder`, a descriptor that is needed for this call only, the path is relative to that folder,
  /// and the file must be a regular one beneath it (beneath.hpp). Messages name it by `label` if there is one. Throws
  /// StorageError.
  static File open(const std::string &path, bool writable, bool direct, int folder = -1, const std::string &label = "");

  /// Makes a file of `size` bytes, all of them allocated, and closes it. An existing one is replaced. On failure
  /// (no space, no permission) throws StorageError and leaves no file behind.
  static void create(const std::string &path, std::uint64_t size);

  /// A file without a name that lives in memory and goes when closed. It has `size` bytes of zeros; writes extend it.
  static File anonymous(const std::string &label, std::uint64_t size, bool writable = true);

  /// A file in `folder` without a name, that goes when closed: `size` bytes, all of them allocated. Throws StorageError.
  static File unnamed(const std::string &folder, std::uint64_t size);

  /// Makes this the `size` bytes from byte `begin` on: offsets count from there, and nothing beside them is reached.
  void narrow(std::uint64_t begin, std::uint64_t size);

  /// The path or the label; with the first byte when this is a part.
  const std::string &path() const { return path_; }
  /// A file whose content nobody will look for later is not flushed with the others.
  void set_scratch(bool scratch) { scratch_ = scratch; }
  bool scratch() const { return scratch_; }

  bool is_part() const { return part_size_ > 0; }

  /// The path without that.
  const std::string &whole_path() const { return whole_path_; }

  /// Byte of the whole file at which offset 0 lies.
  std::uint64_t begin() const { return begin_; }

  /// Whether a transfer stays inside: in a part, within its size; a whole file may grow.
  bool holds(std::uint64_t offset, std::size_t length) const;

  bool writable() const { return writable_; }
  bool direct() const { return direct_.get() >= 0; }
  std::size_t alignment() const { return direct() ? alignment_ : 1; }
  /// What direct transfers need of addresses in memory; alignment() is what they need of everything.
  std::size_t memory_alignment() const { return direct() ? memory_alignment_ : 1; }

  /// Bytes now, or those of the part. Throws StorageError.
  std::uint64_t size() const;

  /// Moves all of the bytes and waits: whole pages past the page cache where memory is aligned as the file is, what lies
  /// before and behind them through it. Throws StorageError, with error 0 where the file ends early.
  void read(std::uint64_t offset, std::byte *data, std::size_t length) const;
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) const;

  /// Waits until the data are on the device (fdatasync). Throws StorageError.
  void flush() const;

  int buffered_descriptor() const { return buffered_.get(); }

  /// The descriptor to use for such a transfer: the direct one if there is one, it is of whole pages, and all is aligned.
  int descriptor(std::uint64_t offset, const std::byte *data, std::size_t length) const;

 private:
  std::size_t piece(std::uint64_t offset, std::size_t length) const;

  std::string path_, whole_path_;
  std::uint64_t begin_ = 0, part_size_ = 0;
  bool writable_ = false, scratch_ = false;
  Descriptor buffered_, direct_;
  std::size_t alignment_ = 4096, memory_alignment_ = 4096;
};

}  // namespace outcrop
