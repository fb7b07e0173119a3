// Files mapped into memory, moved by copies in a pool of threads; the page cache is in the way by design.
//
// A device error in a mapping is a signal (SIGBUS), not a result, so this backend is for comparison and for filesystems
// where nothing else works. Ends of files are checked before each copy; files do not change size while open.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/backends.hpp"
#include "outcrop/storage/mapping.hpp"
#include "outcrop/storage/pool.hpp"

namespace outcrop {
namespace {

class MmapStore final : public PoolStore {
 public:
  MmapStore(std::vector<File> files, std::size_t depth) : PoolStore(std::move(files), depth) {
    for (const File &file : this->files()) mappings_.emplace_back(file);
  }
  ~MmapStore() override { stop(); }
  const char *name() const override { return "mmap"; }

  void flush() override {
    for (std::size_t i = 0; i < mappings_.size(); ++i) {
      const File &file = files()[i];
      if (!file.writable() || file.scratch()) continue;
      mappings_[i].flush(0, mappings_[i].size());
      file.flush();
    }
  }

  void close() override {
    mappings_.clear();
    Store::close();
  }

 protected:
  std::int64_t move(const Transfer &transfer) override {
    if (place(transfer).descriptor < 0) return -EBADF;
    const Mapping &mapping = mappings_[transfer.file];
    if (transfer.offset >= mapping.size()) return transfer.write ? -ENOSPC : 0;
    const std::size_t length = std::min<std::uint64_t>(transfer.length, mapping.size() - transfer.offset);
    std::byte *place = mapping.data() + transfer.offset;
    std::memcpy(transfer.write ? place : transfer.data, transfer.write ? transfer.data : place, length);
    forget(place, length);
    return static_cast<std::int64_t>(length);
  }

 private:
  // Mapped pages count as this process's memory until they are unmapped; the page cache keeps what they hold.
  static void forget(std::byte *place, std::size_t length) {
    const std::size_t into_page = reinterpret_cast<std::uintptr_t>(place) % AlignedMemory::page_bytes;
    madvise(place - into_page, length + into_page, MADV_DONTNEED);
  }

  std::vector<Mapping> mappings_;
};

}  // namespace

std::unique_ptr<Store> make_mmap_store(std::vector<File> files, std::size_t depth) {
  return std::make_unique<MmapStore>(std::move(files), depth);
}

}  // namespace outcrop
