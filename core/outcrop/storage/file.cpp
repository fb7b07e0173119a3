#include "outcrop/storage/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"
#include "outcrop/storage/beneath.hpp"

namespace outcrop {
namespace {

constexpr std::size_t usual_alignment = 4096;
constexpr std::size_t least_alignment = 512;  // of memory; less is of no use

// What the file says O_DIRECT needs; 0 when it cannot be used, the usual when it does not say.
std::size_t direct_alignment([[maybe_unused]] int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0)
    return std::max(status.stx_dio_mem_align, status.stx_dio_offset_align);
#endif
  return usual_alignment;
}

// Some filesystems take the flag and refuse the first transfer; some want more of addresses in memory than `alignment`.
bool direct_reads_work(int descriptor, std::size_t alignment) {
  const AlignedMemory pages(2 * usual_alignment);
  return pread(descriptor, pages.data() + alignment % usual_alignment, usual_alignment, 0) >= 0 || errno != EINVAL;
}

int allocate(int descriptor, std::uint64_t size) {
  if (size == 0) return 0;
  int error = 0;
  do {
    error = fallocate(descriptor, 0, 0, static_cast<off_t>(size)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP) error = posix_fallocate(descriptor, 0, static_cast<off_t>(size));  // writes to every block
  return error;
}

}  // namespace

Descriptor &Descriptor::operator=(Descriptor &&other) noexcept {
  if (this != &other) {
    reset();
    number_ = other.release();
  }
  return *this;
}

int Descriptor::release() { return std::exchange(number_, -1); }

void Descriptor::reset() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

File File::open(const std::string &path, bool writable, bool direct, int folder, const std::string &label) {
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC;
  File file;
  file.path_ = file.whole_path_ = label.empty() ? path : label;
  file.writable_ = writable;
  const auto open_with = [&](int more) {
    if (folder >= 0) return open_beneath(folder, path, flags | more, file.path_);
    Descriptor opened(::open(path.c_str(), flags | more));
    if (opened.get() < 0) throw StorageError("open", file.path_, 0, 0, errno);
    return opened;
  };
  file.buffered_ = open_with(0);
  if (!direct) return file;
  Descriptor found;
  try {
    found = open_with(O_DIRECT);
  } catch (const StorageError &) {  // the file system knows no such transfers
    return file;
  }
  file.alignment_ = direct_alignment(found.get());
  if (file.alignment_ == 0 || !direct_reads_work(found.get(), usual_alignment)) return file;
  file.memory_alignment_ = direct_reads_work(found.get(), least_alignment) ? least_alignment : file.alignment_;
  file.direct_ = std::move(found);
  return file;
}

void File::create(const std::string &path, std::uint64_t size) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) throw StorageError("create", path, 0, 0, errno);
  if (const int error = allocate(file.get(), size); error != 0) {
    ::unlink(path.c_str());
    throw StorageError("allocate", path, 0, size, error);
  }
}

File File::anonymous(const std::string &label, std::uint64_t size, bool writable) {
  File file;
  file.path_ = file.whole_path_ = label;
  file.writable_ = writable;
  file.buffered_ = Descriptor(memfd_create("outcrop", MFD_CLOEXEC));
  if (file.buffered_.get() < 0 || ftruncate(file.buffered_.get(), static_cast<off_t>(size)) != 0)
    throw StorageError("allocate in memory", label, 0, size, errno);
  return file;
}

File File::unnamed(const std::string &folder, std::uint64_t size) {
  File file;
  file.path_ = file.whole_path_ = folder + " (without a name)";
  file.writable_ = true;
  file.buffered_ = Descriptor(::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  if (file.buffered_.get() < 0) {  // some file systems know no such files
    std::string name = folder + "/.outcrop-XXXXXX";
    file.buffered_ = Descriptor(mkostemp(name.data(), O_CLOEXEC));
    if (file.buffered_.get() < 0) throw StorageError("create", folder, 0, 0, errno);
    ::unlink(name.c_str());
  }
  if (const int error = allocate(file.buffered_.get(), size); error != 0)
    throw StorageError("allocate", folder, 0, size, error);
  return file;
}

void File::narrow(std::uint64_t begin, std::uint64_t size) {
  begin_ = begin;
  part_size_ = size;
  path_ = whole_path_ + " (from byte " + std::to_string(begin) + ")";
}

bool File::holds(std::uint64_t offset, std::size_t length) const {
  return !is_part() || (offset <= part_size_ && length <= part_size_ - offset);
}

std::uint64_t File::size() const {
  if (is_part()) return part_size_;
  struct stat status {};
  if (fstat(buffered_.get(), &status) != 0) throw StorageError("stat", path_, 0, 0, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

std::size_t File::piece(std::uint64_t offset, std::size_t length) const {
  if (!direct()) return length;
  const std::size_t beyond = (begin_ + offset) % AlignedMemory::page_bytes;
  if (beyond != 0) return std::min(length, AlignedMemory::page_bytes - beyond);
  return length < AlignedMemory::page_bytes ? length : round_down(length, AlignedMemory::page_bytes);
}

void File::read(std::uint64_t offset, std::byte *data, std::size_t length) const {
  while (length > 0) {
    const std::size_t now = piece(offset, length);
    const ssize_t done = pread(descriptor(offset, data, now), data, now, static_cast<off_t>(begin_ + offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw StorageError("read", path_, offset, length, done < 0 ? errno : 0);
    data += done;
    offset += static_cast<std::uint64_t>(done);
    length -= static_cast<std::size_t>(done);
  }
}

void File::write(std::uint64_t offset, const std::byte *data, std::size_t length) const {
  while (length > 0) {
    const std::size_t now = piece(offset, length);
    const ssize_t done = pwrite(descriptor(offset, data, now), data, now, static_cast<off_t>(begin_ + offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw StorageError("write", path_, offset, length, done < 0 ? errno : ENOSPC);
    data += done;
    offset += static_cast<std::uint64_t>(done);
    length -= static_cast<std::size_t>(done);
  }
}

void File::flush() const {
  if (fdatasync(buffered_.get()) != 0) throw StorageError("flush", path_, 0, 0, errno);
}

int File::descriptor(std::uint64_t offset, const std::byte *data, std::size_t length) const {
  if (!direct()) return buffered_.get();
  // Whole pages, even where the device does with less: a page that is written here around the page cache and there through
  // it, at the same time, may come out with old bytes.
  const std::uint64_t range = (begin_ + offset) | length;
  const bool is_direct = range % AlignedMemory::page_bytes == 0 && range % alignment_ == 0 &&
                         reinterpret_cast<std::uintptr_t>(data) % memory_alignment_ == 0;
  return is_direct ? direct_.get() : buffered_.get();
}

}  // namespace outcrop
