// Messages between ranks without the sender's doing, where that works: all that MpiGets needs, and the probe before its use.
//
//     communicators ─► window ─► open ─► probe: each rank fetches from two others, and looks at what came
//
// After each step all ranks say whether it worked (mpi_transport.cpp); the next is taken only where it did on all.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "outcrop/aggregate/mpi/mpi_communicator.hpp"
#include "outcrop/aggregate/mpi/mpi_gets.hpp"
#include "outcrop/aggregate/mpi/mpi_window.hpp"

namespace outcrop::aggregate {

class MpiOneSided {
 public:
  // All throw std::runtime_error; but for release() and abandon() all are collective.
  MpiOneSided(MPI_Comm original, std::size_t slot_bytes);
  void make_window();
  void open_window();
  /// Also throws where something does not come in time; then messages may be under way.
  void probe(int rank, int size, std::chrono::duration<double> most);

  /// Whether messages of so many bytes go this way.
  bool takes(std::size_t bytes) const { return bytes > small_bytes_; }
  MpiGets &gets() { return *gets_; }

  /// Whether nothing is under way.
  bool is_idle() const { return !gets_ || gets_->is_idle(); }
  /// Leaves everything to MPI_Finalize. Then nothing waits for others when this is destroyed.
  void release();
  /// As that of MpiGets: this object must stay then.
  bool abandon() noexcept { return !gets_ || gets_->abandon(); }

 private:
  static constexpr std::size_t small_bytes_most = 4096, slots = 8;

  const std::size_t slot_bytes_, small_bytes_;
  Communicator tickets_over_, pieces_over_;
  std::optional<MpiWindow> window_;
  std::optional<MpiGets> gets_;
};

}  // namespace outcrop::aggregate
