// Files mapped into memory, and how writes to the mapped memory become durable.
//
//     synchronous   a file on persistent memory (DAX), mapped with MAP_SYNC: a cache line is durable once written back
//     otherwise     pages of the page cache, which msync makes durable
//
// The system refuses MAP_SYNC if it cannot guarantee that, so the kind of a mapping is known after mmap. A device error
// in a mapping is a signal (SIGBUS), not a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "outcrop/storage/file.hpp"

namespace outcrop {

class Mapping {
 public:
  Mapping() = default;

  /// Maps an open file, or the part that it is narrowed to. The mapping is writable if the file was opened for writing.
  /// With `tries_sync` it is synchronous if file system and processor support that. Throws StorageError.
  explicit Mapping(const File &file, bool tries_sync = false);

  /// Reserves addresses for `size` bytes. They are usable only after place() has mapped files there. Throws
  /// StorageError.
  static Mapping reserve(std::size_t size);

  /// Maps `length` bytes of the file, from `offset` on, to the addresses from byte `at` of this mapping on, for
  /// reading. All three are multiples of a page, but `length` may end with the file. Throws StorageError.
  void place(std::size_t at, const File &file, std::uint64_t offset, std::size_t length);

  Mapping(Mapping &&other) noexcept { swap(other); }
  Mapping &operator=(Mapping &&other) noexcept {
    Mapping taken(std::move(other));
    swap(taken);
    return *this;
  }
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  ~Mapping();

  std::byte *data() const { return data_; }
  std::size_t size() const { return size_; }
  bool writable() const { return writable_; }
  bool synchronous() const { return synchronous_; }

  /// Makes the `length` bytes from `begin` on durable. Throws StorageError.
  void flush(std::size_t begin, std::size_t length) const;

 private:
  void swap(Mapping &other) noexcept;

  std::string path_;
  std::byte *data_ = nullptr;
  std::size_t size_ = 0;
  bool writable_ = false, synchronous_ = false;
};

// An instruction that is chosen at run time writes cache lines back. The best, clwb, keeps the line in the cache; the
// others drop it.

struct WriteBackVariant {
  const char *name;
  void (*write_back)(const std::byte *data, std::size_t length);
};

/// The instructions of this processor, best first; empty if it has none.
std::span<const WriteBackVariant> write_back_variants();

inline bool can_write_back() { return !write_back_variants().empty(); }

/// Waits until all cache lines that this thread has started to write back are in memory.
void write_back_fence();

}  // namespace outcrop
