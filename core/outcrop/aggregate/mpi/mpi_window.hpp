// Memory of each rank, in slots, that all others may fetch from without its doing: an MPI window.
//
// Fetching (MPI_Rget) rather than putting, because the end of a fetch can be asked for, and means that the bytes are there.
// Whether a put has arrived is told only by a call that waits for it.
#pragma once

#include <cstddef>
#include <span>

#include "outcrop/aggregate/mpi/mpi_calls.hpp"

namespace outcrop::aggregate {

class MpiWindow {
 public:
  /// Collective, and may hang where MPI does: see mpi_deadline.hpp. Throws std::runtime_error.
  MpiWindow(MPI_Comm communicator, std::size_t slots, std::size_t slot_bytes);
  /// Collective, unless it was released.
  ~MpiWindow();
  MpiWindow(const MpiWindow &) = delete;
  MpiWindow &operator=(const MpiWindow &) = delete;

  /// Begins access by all ranks, once all have a window.
  void open();
  /// Leaves it to MPI_Finalize: nobody may wait for a rank that has failed.
  void release() { window_ = MPI_WIN_NULL; }

  std::size_t slots() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::span<std::byte> slot(std::size_t number) const { return {memory_ + number * slot_bytes_, slot_bytes_}; }

  /// What has been written to own slots can be fetched from now on.
  void publish() const { check(MPI_Win_sync(window_), "publishing a slot"); }
  /// Begins to fetch `target.size()` bytes of a rank's slot.
  MPI_Request fetch(std::span<std::byte> target, int from, std::size_t slot) const;

 private:
  const std::size_t slots_, slot_bytes_;
  std::byte *memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  bool is_open_ = false;
};

}  // namespace outcrop::aggregate
