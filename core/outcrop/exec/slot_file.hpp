// The tiles of an array on storage. Each tile has two slots: the last commit uses one, and the next commit may write to
// the other.
//
//     in memory    | tile 0  | tile 1  | tile 2 |      tiles of the same size; the last one may be shorter
//     slots 0      | tile 0 *|         | tile 2*|      * the last commit. Its slots are not overwritten, so it stays
//     slots 1      |         | tile 1 *|        |        complete until a later commit is complete
//
// A commit has two parts. write_changed() writes the tiles that have changed since the last commit, each to its free
// slot, and makes them durable. The caller then stores the slot and the checksum of every tile durably, and calls
// accept(), which makes this the last commit. If the caller fails in between, it can call write_changed() again.
//
// If the file allows it, tiles are written from the memory of the array past the page cache, several at a time. Tiles
// in persistent memory are copied, and their cache lines are written back.
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

/// The checksums (CRC32C) and the slots of the tiles of one commit.
struct CommittedTiles {
  std::vector<std::uint32_t> checksums{};
  std::vector<std::uint8_t> slots{};
};

/// A tile that differs from the commit. `error` is the error of the device, or 0 if it returned wrong bytes without an
/// error.
struct DamagedTile {
  std::size_t tile = 0;
  std::uint64_t offset = 0;
  int error = 0;
};

class SlotFile {
 public:
  /// The way to write: the best one, or a mapping even if the file is not in persistent memory (for tests).
  enum class Way { best, mapping };

  /// Opens an existing file that is not a link. It has room for the slots 0, or for both. Throws StorageError.
  SlotFile(const std::string &path, std::uint64_t array_bytes, std::size_t tile_bytes, bool writable, unsigned threads,
           Way way = Way::best, Files &files = Files::system());

  /// The bytes from the beginning of the slots 0 to the beginning of the slots 1.
  static std::uint64_t stride_bytes(std::uint64_t array_bytes);

  std::size_t tiles() const { return tiles_; }

  /// Reads a commit into `memory`, or only checks it if `memory` is null. Makes it the last commit. Returns damaged
  /// tiles.
  std::vector<DamagedTile> load(const CommittedTiles &commit, std::byte *memory);

  /// Maps the last commit into memory for reading. Throws StorageError.
  Mapping map() const;

  /// Writes the tiles that have changed since the last commit, and returns the number of bytes. Throws StorageError;
  /// the last commit stays complete even then.
  std::uint64_t write_changed(const std::byte *memory);

  /// The tiles that write_changed() has written. accept() makes them the last commit.
  const CommittedTiles &written() const { return next_.tiles; }
  void accept() { last_ = next_; }

  /// The system operation that makes a commit durable, in words.
  const char *primitive() const;

 private:
  // A commit, and the fingerprints of its tiles in memory.
  struct Known {
    CommittedTiles tiles{};
    std::vector<std::uint64_t> fingerprints{};  // empty if unknown
  };

  std::size_t length(std::size_t tile) const;
  std::uint64_t offset(std::size_t tile, unsigned slot) const { return slot * stride_ + tile * tile_bytes_; }

  const std::uint64_t array_bytes_, stride_;
  const std::size_t tile_bytes_, tiles_;
  const unsigned threads_;
  const std::unique_ptr<OpenFile> file_;
  std::optional<Mapping> mapping_;  // set if tiles are written through it
  std::optional<Known> last_;
  Known next_;
};

/// Makes a part of a mapping durable with several threads, because one thread does not fill the queue of the device.
/// Throws StorageError.
void flush_in_parallel(const Mapping &mapping, std::size_t begin, std::size_t length, unsigned threads);

}  // namespace outcrop
