// Stores the tiles of an array. Each tile has two slots in the file. The last commit uses one of these slots, and the
// next commit may write to the other slot. All tiles have the same size, but the last tile may be shorter. The stars
// mark the slots of the last commit. These slots are not overwritten before a later commit is complete:
//
//     in memory    | tile 0  | tile 1  | tile 2 |
//     slots 0      | tile 0 *|         | tile 2*|
//     slots 1      |         | tile 1 *|        |
//
// A commit has three steps. write_changed() writes the tiles that have changed since the last commit, each to its free
// slot, and makes them durable. The caller stores the slot and the checksum of every tile durably. accept() then makes
// the new commit the last commit. If the caller fails before accept(), it can call write_changed() again.
//
// If the file allows direct I/O, several threads write tiles past the page cache, directly from the memory of the
// array. If the file is in persistent memory, tiles are copied to the file, and the cache lines of the copies are
// written back.
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

/// A tile whose bytes in the file differ from the commit (`error` is 0), or cannot be read (`error` is the errno).
struct DamagedTile {
  std::size_t tile = 0;
  std::uint64_t offset = 0;
  int error = 0;
};

class SlotFile {
 public:
  /// How tiles are written: the fastest way or, for tests, a mapping even if the file is not in persistent memory.
  enum class Way { best, mapping };

  /// Opens an existing file that is not a link. The file has room for slot 0 of each tile, or for both slots of each
  /// tile. Throws StorageError.
  SlotFile(const std::string &path, std::uint64_t array_bytes, std::size_t tile_bytes, bool writable, unsigned threads,
           Way way = Way::best, Files &files = Files::system());

  /// Returns the number of bytes from the beginning of the slots 0 to the beginning of the slots 1.
  static std::uint64_t stride_bytes(std::uint64_t array_bytes);

  std::size_t tiles() const { return tiles_; }

  /// Reads a commit into `memory`, or only checks it if `memory` is null. This commit becomes the last commit. Returns
  /// the damaged tiles.
  std::vector<DamagedTile> load(const CommittedTiles &commit, std::byte *memory);

  /// Maps the last commit into memory for reading. Throws StorageError.
  Mapping map() const;

  /// Writes the tiles that have changed since the last commit, and returns the number of bytes written. Throws
  /// StorageError. After an error, the last commit is still complete.
  std::uint64_t write_changed(const std::byte *memory);

  /// Returns the tiles that write_changed() has written. accept() makes them the last commit.
  const CommittedTiles &written() const { return next_.tiles; }
  void accept() { last_ = next_; }

  /// Returns a text that names the operation of the system that makes a commit durable.
  const char *primitive() const;

 private:
  // A commit, and the fingerprints of the commit's tiles in memory.
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
  std::optional<Mapping> mapping_;  // set if tiles are written through this mapping
  std::optional<Known> last_;
  Known next_;
};

}  // namespace outcrop
