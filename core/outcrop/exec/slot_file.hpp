// Class SlotFile stores an array in a file. The array is divided into tiles, and each tile has two slots in the file.
// The last commit uses one of the two slots of a tile. The next commit writes only to the other slot. So the slots of
// the last commit stay unchanged until the next commit is complete. All tiles have the same size, but the last tile may
// be shorter. In the drawing, stars mark the slots of the last commit:
//
//     in memory    | tile 0  | tile 1  | tile 2 |
//     slots 0      | tile 0 *|         | tile 2*|
//     slots 1      |         | tile 1 *|        |
//
// A commit has three steps. First, write_changed() writes each changed tile to its free slot, and makes these tiles
// durable. Second, the caller durably stores the slot and the checksum of every tile. Third, accept() makes the new
// commit the last commit. If an error occurs before accept(), the caller can call write_changed() again.
//
// If the file allows direct I/O, several threads write tiles directly from the memory of the array, without the page
// cache. If the file is in persistent memory, tiles are copied to the file. Then the cache lines of the copies are
// written back to the persistent memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {

/// The checksums (CRC32C) and the slots of the tiles of one commit.
struct CommittedTiles {
  std::vector<std::uint32_t> checksums{};
  std::vector<std::uint8_t> slots{};
};

/// Describes a damaged tile. If the tile cannot be read, `error` is the errno. Otherwise `error` is 0, and the bytes of
/// the tile in the file do not match the checksum of the commit.
struct DamagedTile {
  std::size_t tile = 0;
  std::uint64_t offset = 0;
  int error = 0;
};

class SlotFile {
 public:
  /// The way in which tiles are written. `best` selects the fastest way. `mapping` is for tests: tiles are written
  /// through a mapping even if the file is not in persistent memory.
  enum class Way { best, mapping };

  /// Opens an existing file that is not a link. The file must have room for slot 0 of each tile, or for both slots of
  /// each tile. Throws StorageError if the file cannot be opened.
  SlotFile(const std::string &path, std::uint64_t array_bytes, std::size_t tile_bytes, bool writable, unsigned threads,
           Way way = Way::best, Files &files = Files::system());

  /// Returns the distance, in bytes, between slot 0 and slot 1 of a tile in the file.
  static std::uint64_t stride_bytes(std::uint64_t array_bytes);

  std::size_t tiles() const { return tiles_; }

  /// Reads a commit into `memory`. If `memory` is null, the function only checks the commit. The commit becomes the
  /// last commit. Returns the damaged tiles.
  std::vector<DamagedTile> load(const CommittedTiles &commit, std::byte *memory);

  /// Maps the last commit into memory for reading. Throws StorageError if the mapping fails.
  Mapping map() const;

  /// Writes the tiles that have changed since the last commit, and returns the number of bytes written. Throws
  /// StorageError if a write fails. After an error, the last commit is still complete.
  std::uint64_t write_changed(const std::byte *memory);

  /// written() returns the slots and checksums of the commit that write_changed() has prepared. accept() makes this
  /// commit the last commit.
  const CommittedTiles &written() const { return next_.tiles; }
  void accept() { last_ = next_; }

  /// Returns the name of the system operation that makes a commit durable.
  const char *primitive() const;

 private:
  // A commit, and a fingerprint of the bytes in memory of each tile.
  struct Known {
    CommittedTiles tiles{};
    std::vector<std::uint64_t> fingerprints{};  // empty if the fingerprints are not known
  };

  std::size_t length(std::size_t tile) const;
  std::uint64_t offset(std::size_t tile, unsigned slot) const { return slot * stride_ + tile * tile_bytes_; }

  const std::uint64_t array_bytes_, stride_;
  const std::size_t tile_bytes_, tiles_;
  const unsigned threads_;
  const std::unique_ptr<OpenFile> file_;
  std::optional<Mapping> mapping_;  // has a value if tiles are written through this mapping
  std::optional<Known> last_;
  Known next_;
};

}  // namespace outcrop
