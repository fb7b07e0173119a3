// The class SlotFile stores an array in a file. The array is divided into tiles, and each tile has two slots in the
// file. The last commit uses one of the two slots of a tile. The next commit writes only to the other slot of each
// tile. Therefore the slots of the last commit stay unchanged until the next commit is complete. All tiles have the
// same size, except that the last tile may be shorter. In the drawing, stars mark the slots of the last commit:
//
//     in memory    | tile 0  | tile 1  | tile 2 |
//     slots 0      | tile 0 *|         | tile 2*|
//     slots 1      |         | tile 1 *|        |
//
// A commit has three steps. In the first step, write_changed() writes each changed tile to its free slot, and makes
// these tiles durable. In the second step, the caller durably stores the slot and the checksum of every tile. In the
// third step, accept() makes the new commit the last commit. If an error occurs before accept(), the caller can call
// write_changed() again.
//
// If the file allows direct I/O, several threads write tiles directly from the memory of the array. These writes bypass
// the page cache. If the file is in persistent memory, the tiles are copied to the file. Then the cache lines of these
// copies are written back to the persistent memory.
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

/// For one commit, the checksums (CRC32C) and the slots of all tiles.
struct CommittedTiles {
  std::vector<std::uint32_t> checksums{};
  std::vector<std::uint8_t> slots{};
};

/// Describes a damaged tile. If the tile cannot be read, `error` is the errno of the read. Otherwise `error` is 0, and
/// the bytes of the tile in the file have another checksum than the commit.
struct DamagedTile {
  std::size_t tile = 0;
  std::uint64_t offset = 0;
  int error = 0;
};

class SlotFile {
 public:
  /// The way in which tiles are written to the file. `best` selects the fastest way. `mapping` is for tests: tiles are
  /// written through a mapping even if the file is not in persistent memory.
  enum class Way { best, mapping };

  /// Opens an existing file. The file must not be a link. The file must have enough room for slot 0 of each tile, or
  /// for both slots of each tile. Throws StorageError if the file cannot be opened.
  SlotFile(const std::string &path, std::uint64_t array_bytes, std::size_t tile_bytes, bool writable, unsigned threads,
           Way way = Way::best, Files &files = Files::system());

  /// Returns the distance in bytes between slot 0 and slot 1 of the same tile in the file.
  static std::uint64_t stride_bytes(std::uint64_t array_bytes);

  std::size_t tiles() const { return tiles_; }

  /// Reads a commit into `memory`. If `memory` is null, the function only tests the checksums of the commit. The commit
  /// becomes the last commit. Returns the damaged tiles.
  std::vector<DamagedTile> load(const CommittedTiles &commit, std::byte *memory);

  /// Maps the last commit into memory. The mapping can only be read. Throws StorageError if the mapping fails.
  Mapping map() const;

  /// Writes the tiles that have changed since the last commit. Returns the number of written bytes. Throws StorageError
  /// if a write fails. After an error of a write, the last commit is still complete.
  std::uint64_t write_changed(const std::byte *memory);

  /// written() returns the slots and checksums of the commit that write_changed() has prepared. accept() makes this
  /// commit the last commit.
  const CommittedTiles &written() const { return next_.tiles; }
  void accept() { last_ = next_; }

  /// Returns the name of the operation of the system that makes a commit durable.
  const char *primitive() const;

 private:
  // A commit, and a fingerprint of each tile's bytes in memory.
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
