#include "outcrop/exec/slot_file.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/threads.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

std::optional<Mapping> mapping_for(const File *file, SlotFile::Way way) {
  if (file == nullptr || !file->writable()) return std::nullopt;
  Mapping mapping(*file, true);
  if (way == SlotFile::Way::mapping || mapping.synchronous()) return mapping;
  return std::nullopt;
}

}  // namespace

SlotFile::SlotFile(const std::string &path, std::uint64_t array_bytes, std::size_t tile_bytes, bool writable,
                   unsigned threads, Way way, Files &files)
    : array_bytes_(array_bytes),
      stride_(stride_bytes(array_bytes)),
      tile_bytes_(tile_bytes),
      tiles_(round_up(array_bytes, tile_bytes) / tile_bytes),
      threads_(static_cast<unsigned>(std::min<std::size_t>(threads, std::max<std::size_t>(1, tiles_)))),
      file_(files.folder(folder_of(path))->open(name_in_folder(path), writable, true)),
      mapping_(mapping_for(file_->file(), way)) {
  assert(tile_bytes % AlignedMemory::page_bytes == 0);
  if (file_->size() < stride_) throw StorageError("open", path, 0, stride_, 0);
}

std::uint64_t SlotFile::stride_bytes(std::uint64_t array_bytes) {
  return round_up(array_bytes, AlignedMemory::page_bytes);
}

std::size_t SlotFile::length(std::size_t tile) const {
  return std::min<std::uint64_t>(tile_bytes_, array_bytes_ - tile * tile_bytes_);
}

std::vector<DamagedTile> SlotFile::load(const CommittedTiles &commit, std::byte *memory) {
  assert(commit.checksums.size() == tiles_ && commit.slots.size() == tiles_);
  last_.emplace(Known{commit, std::vector<std::uint64_t>(memory != nullptr ? tiles_ : 0)});
  std::vector<DamagedTile> damaged;
  std::mutex mutex;
  Team team(threads_);
  AlignedMemory buffers(memory == nullptr ? threads_ * tile_bytes_ : 0);
  std::atomic<std::size_t> next{0};
  team.run([&](unsigned member) {
    for (std::size_t tile = next++; tile < tiles_; tile = next++) {
      std::byte *data = memory != nullptr ? memory + tile * tile_bytes_ : buffers.data() + member * tile_bytes_;
      const std::uint64_t place = offset(tile, commit.slots[tile]);
      int error = 0;
      try {
        file_->read(place, data, length(tile));
      } catch (const StorageError &failed) {
        error = failed.error != 0 ? failed.error : EIO;
      }
      if (error != 0 || crc32c({data, length(tile)}) != commit.checksums[tile]) {
        const std::lock_guard lock(mutex);
        damaged.push_back({tile, place, error});
      } else if (memory != nullptr) {
        last_->fingerprints[tile] = fingerprint({data, length(tile)});
      }
    }
  });
  std::ranges::sort(damaged, {}, &DamagedTile::tile);
  return damaged;
}

Mapping SlotFile::map() const {
  assert(last_ && file_->file() != nullptr);
  const std::vector<std::uint8_t> &slots = last_->tiles.slots;
  Mapping mapping = Mapping::reserve(array_bytes_);
  // tiles that are neighbours in the file are mapped together by one system call
  for (std::size_t first = 0, end; first < tiles_; first = end) {
    for (end = first + 1; end < tiles_ && slots[end] == slots[first];) ++end;
    const std::uint64_t bytes = std::min<std::uint64_t>(array_bytes_, end * tile_bytes_) - first * tile_bytes_;
    mapping.place(first * tile_bytes_, *file_->file(), offset(first, slots[first]), bytes);
  }
  return mapping;
}

std::uint64_t SlotFile::write_changed(const std::byte *memory) {
  const bool known = last_ && !last_->fingerprints.empty();
  next_ = {{std::vector<std::uint32_t>(tiles_), std::vector<std::uint8_t>(tiles_)}, std::vector<std::uint64_t>(tiles_)};
  std::atomic<std::uint64_t> written{0};
  in_parallel(tiles_, threads_, [&](std::size_t tile) {
    const std::span<const std::byte> bytes(memory + tile * tile_bytes_, length(tile));
    const std::uint64_t print = next_.fingerprints[tile] = fingerprint(bytes);
    const std::uint8_t slot = last_ ? last_->tiles.slots[tile] : 1;
    if (known && print == last_->fingerprints[tile]) {
      next_.tiles.checksums[tile] = last_->tiles.checksums[tile];
      next_.tiles.slots[tile] = slot;
      return;
    }
    next_.tiles.checksums[tile] = crc32c(bytes);
    next_.tiles.slots[tile] = static_cast<std::uint8_t>(1 - slot);
    const std::uint64_t place = offset(tile, 1 - slot);
    if (mapping_) {
      std::memcpy(mapping_->data() + place, bytes.data(), bytes.size());
      mapping_->flush(place, bytes.size());
    } else {
      file_->write(place, bytes.data(), bytes.size());
    }
    written += bytes.size();
  });
  if (!mapping_ && written > 0) file_->flush();
  return written;
}

const char *SlotFile::primitive() const {
  if (mapping_) return mapping_->synchronous() ? "MAP_SYNC + cache-line write-back" : "msync";
  return file_->file() != nullptr && file_->file()->direct() ? "direct writes + fdatasync"
                                                             : "buffered writes + fdatasync";
}

}  // namespace outcrop
