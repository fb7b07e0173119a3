// The tiles of an array on storage, each of which has two slots: the last commit owns one, the next may write to the other.
//
//     in memory    | tile 0  | tile 1  | tile 2 |      tiles of the same size, the last one shorter
//     slots 0      | tile 0 *|         | tile 2*|      * the last commit. Never written over, so it is whole until a
//     slots 1      |         | tile 1 *|        |        later one is, whatever happens in between
//
// A commit has two halves. write_changed() writes those tiles that have changed since the last commit, each to its free slot,
// and makes them durable. Where every tile lies now, and its checksum, is for the caller to write down as safely; accept()
// then makes it the last commit. A caller that fails in between just writes again.
//
// Bytes go past the page cache straight from the array's memory where the file allows it, several tiles at a time. On
// persistent memory they are copied there and their cache lines written back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/storage/files.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {

/// Where the tiles of one commit lie, and their checksums (CRC32C).
struct CommittedTiles {
  std::vector<std::uint32_t> checksums{};
  std::vector<std::uint8_t> slots{};
};

/// A tile that is not what was committed. `error` is the device's, 0 when it gave other bytes without a word.
struct DamagedTile {
  std::size_t tile = 0;
  std::uint64_t offset = 0;
  int error = 0;
};

class SlotFile {
 public:
  /// How bytes get there: by whatever is best, or by a mapping even where that is not persistent memory (for tests).
  enum class Way { best, mapping };

  /// A file that exists already, no link, and has room for the slots 0, or for both.  Throws StorageError.
  SlotFile(const std::string &path, std::uint64_t array_bytes, std::size_t tile_bytes, bool writable, unsigned threads,
           Way way = Way::best, Files &files = Files::system());

  /// Bytes from the slots 0 to the slots 1.
  static std::uint64_t stride_bytes(std::uint64_t array_bytes);

  std::size_t tiles() const { return tiles_; }

  /// Reads a commit, which is the last one from now on, into memory, or nowhere when that is null; the damaged tiles, if any.
  std::vector<DamagedTile> load(const CommittedTiles &commit, std::byte *memory);

  /// The last commit as memory, for reading: its tiles where they lie. Throws StorageError.
  Mapping map() const;

  /// Writes what has changed since the last commit; its bytes. Throws StorageError, and the last commit is whole then, too.
  std::uint64_t write_changed(const std::byte *memory);

  /// What has been written so far: the last commit, once accepted.
  const CommittedTiles &written() const { return next_.tiles; }
  void accept() { last_ = next_; }

  /// What makes a commit durable.
  const char *primitive() const;

 private:
  // A commit, and what the tiles were like in memory then.
  struct Known {
    CommittedTiles tiles{};
    std::vector<std::uint64_t> fingerprints{};  // empty when nobody has looked
  };

  std::size_t length(std::size_t tile) const;
  std::uint64_t offset(std::size_t tile, unsigned slot) const { return slot * stride_ + tile * tile_bytes_; }
  void write(const std::byte *data, std::uint64_t offset, std::size_t length);
  int read(std::byte *data, std::uint64_t offset, std::size_t length) const;

  const std::uint64_t array_bytes_, stride_;
  const std::size_t tile_bytes_, tiles_;
  const unsigned threads_;
  const std::unique_ptr<OpenFile> file_;
  std::optional<Mapping> mapping_;  // where bytes get there by it
  std::optional<Known> last_;
  Known next_;
};

}  // namespace outcrop
