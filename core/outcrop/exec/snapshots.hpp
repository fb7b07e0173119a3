// Boxes of fields written to files as they are computed: no plane stays in memory for them.
//
// Whoever has updated the last level of a step copies what of his rows lies in the box to where bytes of the file come together
// (staging.hpp), past the page cache:
//
//     file:  | header | box: z, y, x in C order, without padding | index |          offset = header bytes
//                           ▒▒▒▒ rows of one tile
//
// The page cache takes pages at either end of the box that are not its own alone, and the whole of boxes that are not asked to be
// written directly or cannot be.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/fields.hpp"
#include "outcrop/exec/staging.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

/// A box z0 <= z < z1 and so on of a field after so many steps of the pass (0: as the pass finds it), and the existing file
/// that gets it from byte `offset` on, past the page cache where it can.
struct Snapshot {
  std::size_t field = 0;
  long done = 1;
  long z0 = 0, z1 = 0, y0 = 0, y1 = 0, x0 = 0, x1 = 0;
  std::string path;
  std::uint64_t offset = 0;
  bool direct = true;
  int folder = -1;         ///< the path is relative to this open folder, see FileSpec
  std::string label = "";  ///< names the file in messages instead of the path
};

/// The snapshots of a pass. All arguments must outlive this.
class Snapshots {
 public:
  /// Opens the files, for a backend of that name. Adds the bytes handed on to `bytes`. Throws StorageError.
  Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
            const std::string &backend, StagingSizes sizes, std::atomic<std::uint64_t> &bytes);

  /// Writes the part `cut` of a plane, of rows that are updated, as it is after so many steps. Errors are kept for the next
  /// function that throws.
  void write(long done, long position, const Cut &cut);

  /// Writes cells that no step changes, where write() does not.
  void write_rim(long position, const Cut &cut);

  /// Begins write-back of what went to the page cache, while no other thread writes. Throws the first StorageError.
  void write_behind();

  /// Waits until everything is on the devices. Throws StorageError.
  void flush();
  bool empty() const { return outputs_.empty(); }

  /// CRC32C of the bytes of each box, in its order in the file; after flush().
  std::vector<std::uint32_t> sums() const;

 private:
  struct Output {
    Snapshot snapshot;
    std::uint32_t file = 0;  // of the store
  };

  void write(const Output &output, std::size_t ring, long position, const Cut &cut);
  void write_rows(const Output &output, std::size_t ring, long position, const Cut &rows);
  void check() const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::atomic<std::uint64_t> &bytes_;
  std::deque<Output> outputs_;
  std::multimap<long, const Output *> by_step_;
  std::unique_ptr<Store> store_;
  std::optional<Staging> staging_;
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::optional<StorageError> error_;
};

}  // namespace outcrop
