#include "outcrop/storage/mapping.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/write_back.hpp"

namespace outcrop {

Mapping::Mapping(const File &file, bool tries_sync)
    : path_(file.path()), size_(file.size()), is_writable_(file.writable()) {
  if (size_ == 0) return;
  const int protection = PROT_READ | (file.writable() ? PROT_WRITE : 0);
  const auto begin = static_cast<off_t>(file.begin());
  void *start = MAP_FAILED;
#ifdef MAP_SYNC
  if (tries_sync && can_write_back()) {
    start = mmap(nullptr, size_, protection, MAP_SHARED_VALIDATE | MAP_SYNC, file.buffered_descriptor(), begin);
    is_synchronous_ = start != MAP_FAILED;
  }
#endif
  if (start == MAP_FAILED) start = mmap(nullptr, size_, protection, MAP_SHARED, file.buffered_descriptor(), begin);
  if (start == MAP_FAILED) throw StorageError("map", path_, 0, size_, errno);
  data_ = static_cast<std::byte *>(start);
}

Mapping Mapping::reserve(std::size_t size) {
  Mapping mapping;
  if (size == 0) return mapping;
  void *start = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw StorageError("reserve addresses", "memory", 0, size, errno);
  mapping.data_ = static_cast<std::byte *>(start);
  mapping.size_ = size;
  return mapping;
}

void Mapping::place(std::size_t at, const File &file, std::uint64_t offset, std::size_t length) {
  const auto begin = static_cast<off_t>(file.begin() + offset);
  if (mmap(data_ + at, length, PROT_READ, MAP_SHARED | MAP_FIXED, file.buffered_descriptor(), begin) == MAP_FAILED)
    throw StorageError("map", file.path(), offset, length, errno);
}

void Mapping::flush(std::size_t begin, std::size_t length) const {
  if (length == 0) return;
  if (is_synchronous_) {
    write_back(data_ + begin, length);
    write_back_fence();
    return;
  }
  const std::size_t into_page = begin % AlignedMemory::page_bytes;
  if (msync(data_ + begin - into_page, length + into_page, MS_SYNC) != 0)
    throw StorageError("flush", path_, begin, length, errno);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

void Mapping::swap(Mapping &other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(is_writable_, other.is_writable_);
  std::swap(is_synchronous_, other.is_synchronous_);
}

}  // namespace outcrop
