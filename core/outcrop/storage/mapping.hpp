// Maps files into memory, and makes writes to the mapped memory durable. There are two kinds of mappings:
//
//     synchronous   a file on persistent memory (DAX), mapped with MAP_SYNC: written-back cache lines are durable
//     otherwise     pages of the page cache, which msync makes durable
//
// The system refuses MAP_SYNC for files that are not on persistent memory. A device error in a mapping raises the
// signal SIGBUS instead of returning an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop {

class Mapping {
 public:
  Mapping() = default;

  /// Maps an open file, or the part to which the file is restricted. The mapping is writable if the file is writable.
  /// The mapping is synchronous if `tries_sync` is true, and if the file system and the processor support synchronous
  /// mappings. Throws StorageError.
  explicit Mapping(const File &file, bool tries_sync = false);

  /// Reserves addresses for `size` bytes. An address is usable only after place() has mapped a file to it. Throws
  /// StorageError.
  static Mapping reserve(std::size_t size);

  /// Maps a part of the file for reading. The part has `length` bytes, begins at byte `offset` of the file, and is
  /// mapped to byte `at` of this mapping. `length` and `at` must be multiples of the page size. If the part ends at the
  /// end of the file, `length` need not be a multiple of the page size. If no page of the file begins at `offset`, the
  /// bytes are copied into memory. Throws StorageError.
  void place(std::size_t at, const File &file, std::uint64_t offset, std::size_t length);

  std::byte *data() const { return data_.get(); }
  std::size_t size() const { return data_.get_deleter().bytes; }
  bool writable() const { return writable_; }
  bool synchronous() const { return synchronous_; }

  /// Makes `length` bytes durable, from byte `begin` on. Throws StorageError.
  void flush(std::size_t begin, std::size_t length) const;

 private:
  std::string path_;
  MappedBytes data_;
  bool writable_ = false, synchronous_ = false;
};

/// Makes a part of a mapping durable. Several threads flush the part, because one thread does not fill the queue of the
/// device. Throws StorageError.
void flush_in_parallel(const Mapping &mapping, std::size_t begin, std::size_t length, unsigned threads);

/// An instruction that writes cache lines back, chosen at run time. The best instruction is clwb, because it keeps the
/// line in the cache. All other instructions remove the line from the cache.
struct WriteBackVariant {
  const char *name;
  void (*write_back)(const std::byte *data, std::size_t length);
};

/// Returns the instructions of this processor that write cache lines back. The best instruction comes first. If the
/// processor has no such instruction, the result is empty.
std::span<const WriteBackVariant> write_back_variants();

inline bool can_write_back() { return !write_back_variants().empty(); }

/// Waits until all cache lines that this thread has started to write back have arrived in memory.
void write_back_fence();

}  // namespace outcrop
