// The tiles of an array on storage, each of which has two slots: the last commit owns one, the next may write to the other.
//
//     in memory    | tile 0  | tile 1  | tile 2 |      tiles of the same size, the last one shorter
//     slots 0      | tile 0 *|         | tile 2*|      * the last commit. Never written over, so it is whole until a
//     slots 1      |         | tile 1 *|        |        later one is, whatever happens in between
//
// A commit has two halves. write_changed() writes those tiles that have changed since the last commit, each to its free slot,
// and makes them durable. The caller then records the slot and the checksum of every tile as durably, and calls accept(), which
// makes this the last commit. A caller that fails in between just writes again.
//
// Bytes are written past the page cache from the array's memory if the file allows it, several tiles at a time. In persistent
// memory they are copied, and their cache lines are written back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/storage/folder.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {

/// Where the tiles of one commit lie, and their checksums (CRC32C).
struct CommittedTiles {
  std::vector<std::uint32_t> checksums{};
  std::vector<std::uint8_t> slots{};
};

/// A tile that differs from the commit. `error` is the device's, or 0 if the device returned other bytes without an error.
struct DamagedTile {
  std::size_t tile = 0;
  std::uint64_t offset = 0;
  int error = 0;
};

class SlotFile {
 public:
  /// How bytes are written: the best way, or by a mapping even if that is not persistent memory (for tests).
  enum class Way { best, mapping };

  /// Opens an existing file, not a link, with room for the slots 0, or for both. Throws StorageError.
  SlotFile(const std::string &path, std::uint64_t array_bytes, std::size_t tile_bytes, bool writable, unsigned threads,
           Way way = Way::best, Files &files = Files::system());

  /// Bytes from the slots 0 to the slots 1.
  static std::uint64_t stride_bytes(std::uint64_t array_bytes);

  std::size_t tiles() const { return tiles_; }

  /// Reads a commit into memory, or only checks it if `memory` is null, and makes it the last commit. Returns damaged tiles.
  std::vector<DamagedTile> load(const CommittedTiles &commit, std::byte *memory);

  /// Maps the last commit into memory for reading. Throws StorageError.
  Mapping map() const;

  /// Writes the tiles that have changed since the last commit, and returns their bytes. Throws StorageError; the last commit is
  /// whole then, too.
  std::uint64_t write_changed(const std::byte *memory);

  /// The tiles as written last; they are the last commit once accepted.
  const CommittedTiles &written() const { return next_.tiles; }
  void accept() { last_ = next_; }

  /// The system's operation that makes a commit durable, in words.
  const char *primitive() const;

 private:
  // A commit, and the fingerprints of its tiles in memory.
  struct Known {
    CommittedTiles tiles{};
    std::vector<std::uint64_t> fingerprints{};  // empty if unknown
  };

  std::size_t length(std::size_t tile) const;
  std::uint64_t offset(std::size_t tile, unsigned slot) const { return slot * stride_ + tile * tile_bytes_; }
  void write(const std::byte *data, std::uint64_t offset, std::size_t length);
  int read(std::byte *data, std::uint64_t offset, std::size_t length) const;

  const std::uint64_t array_bytes_, stride_;
  const std::size_t tile_bytes_, tiles_;
  const unsigned threads_;
  const std::unique_ptr<OpenFile> file_;
  std::optional<Mapping> mapping_;  // if bytes are written by it
  std::optional<Known> last_;
  Known next_;
};

/// Makes a part of a mapping durable, as Mapping::flush does, by several threads: one thread alone does not fill the device's
/// queue. Throws StorageError.
void flush_in_parallel(const Mapping &mapping, std::size_t begin, std::size_t length, unsigned threads);

}  // namespace outcrop
