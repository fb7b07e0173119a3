// Memory for windows and transfers: straight from the kernel, aligned for direct I/O and for huge pages.
#pragma once

#include <cstddef>
#include <utility>

namespace outcrop {

/// Zeroed private memory, given back on destruction. Pages become resident when they are first touched.
class AlignedMemory {
 public:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

  AlignedMemory() = default;

  /// Maps `size_bytes` rounded up to whole pages; aligned to 2 MiB and advised to use huge pages when that large,
  /// else aligned to 4 KiB. Throws StorageError when the system has no such memory. `size_bytes` may be 0.
  explicit AlignedMemory(std::size_t size_bytes);
  ~AlignedMemory();

  AlignedMemory(AlignedMemory &&other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedMemory &operator=(AlignedMemory &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte *data() const { return data_; }
  std::size_t size() const { return size_; }  ///< in bytes, a multiple of page_bytes

 private:
  std::byte *data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace outcrop
