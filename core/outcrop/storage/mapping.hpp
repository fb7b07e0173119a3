// Files as memory, and how what is written there becomes durable.
//
//     synchronous   a file on persistent memory (DAX), mapped with MAP_SYNC: a cache line that is written back is durable
//     otherwise     pages of the page cache: msync
//
// Which of them it is, the kernel says: it refuses MAP_SYNC where it cannot keep that promise. A device error in a mapping is
// a signal (SIGBUS), not a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "outcrop/storage/file.hpp"

namespace outcrop {

class Mapping {
 public:
  Mapping() = default;

  /// The whole of an open file, or its part; for writing if it was opened for that. With `tries_sync` synchronous where
  /// file system and processor can do it. Throws StorageError.
  explicit Mapping(const File &file, bool tries_sync = false);

  /// `size` bytes of which nothing can be used before it is placed. Throws StorageError.
  static Mapping reserve(std::size_t size);

  /// Lets the bytes from `at` on be `length` bytes of the file from `offset` on, for reading. Whole pages, but for the end.
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
  bool is_writable() const { return is_writable_; }
  bool is_synchronous() const { return is_synchronous_; }

  /// Returns when those bytes are as durable as the file system makes them. Throws StorageError.
  void flush(std::size_t begin, std::size_t length) const;

 private:
  void swap(Mapping &other) noexcept;

  std::string path_;
  std::byte *data_ = nullptr;
  std::size_t size_ = 0;
  bool is_writable_ = false, is_synchronous_ = false;
};

}  // namespace outcrop
