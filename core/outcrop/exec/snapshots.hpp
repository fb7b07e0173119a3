// Boxes of fields written to files as they are computed: no plane stays in memory for them.
//
// Whoever has updated the last level of a step packs what of his rows lies in the box, and writes it to its place in the file:
//
//     file:  | header | box: z, y, x in C order, without padding |          offset = header bytes
//                           ▒▒▒▒ rows of one tile
//
// These bytes take the way through the page cache, because they begin and end anywhere. So that they do not fill it, write-back
// begins every few MiB and after every slab, and pages are dropped, if need be after a wait, before more of them are on their way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/fields.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop {

/// A box z0 <= z < z1 and so on of a field after so many steps of the pass (at least 1), and the existing file that gets it
/// from byte `offset` on.
struct Snapshot {
  std::size_t field = 0;
  long done = 1;
  long z0 = 0, z1 = 0, y0 = 0, y1 = 0, x0 = 0, x1 = 0;
  std::string path;
  std::uint64_t offset = 0;
};

/// The snapshots of a pass. All arguments must outlive this.
class Snapshots {
 public:
  /// Opens the files. Adds the bytes written to `bytes`. Throws StorageError.
  Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
            std::atomic<std::uint64_t> &bytes);

  /// Writes the part `cut` of a plane as it is after so many steps. Errors are kept for check().
  void write(long done, long position, const Cut &cut);

  /// Writes cells that no step changes.
  void write_rim(long position, const Cut &cut);

  /// Begins write-back of all that has been written, while no other thread writes. Throws the first StorageError.
  void write_behind();

  /// Waits until everything is on the devices. Throws StorageError.
  void flush();
  bool empty() const { return outputs_.empty(); }

 private:
  // Bytes of a file from the first to the last that have been written and not sent to the device.
  struct Range {
    std::uint64_t begin = ~std::uint64_t{0}, end = 0, bytes = 0;
    void add(std::uint64_t offset, std::uint64_t length);
  };

  // On a periodic axis planes come from both ends in turn: `ranges` are those of even and of odd positions then.
  struct Output {
    Snapshot snapshot;
    File file;
    std::mutex mutex{};
    Range ranges[2]{};
  };

  struct Pending {
    const Output *output;
    Range range;
  };

  void write(Output &output, std::size_t ring, long position, const Cut &cut);
  void write_rows(Output &output, std::size_t ring, long position, const Cut &box);
  void write_bytes(Output &output, long position, const std::byte *data, std::size_t length, std::uint64_t offset);
  void send(const Output &output, const Range &range);
  void drop_first();

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::atomic<std::uint64_t> &bytes_;
  std::deque<Output> outputs_;
  std::multimap<long, Output *> by_step_;
  std::mutex pending_mutex_;
  std::deque<Pending> pending_;
  std::uint64_t bytes_pending_ = 0;
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::optional<StorageError> error_;
};

}  // namespace outcrop
