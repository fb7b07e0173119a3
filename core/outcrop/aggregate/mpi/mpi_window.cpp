#include "outcrop/aggregate/mpi/mpi_window.hpp"

namespace outcrop::aggregate {

MpiWindow::MpiWindow(MPI_Comm communicator, std::size_t slots, std::size_t slot_bytes)
    : slots_(slots), slot_bytes_(slot_bytes) {
  const auto bytes = static_cast<MPI_Aint>(slots * slot_bytes);
  check(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, communicator, &memory_, &window_), "making a window");
  check(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "setting the error handler of a window");
}

// Without a unified memory a rank's own stores reach its window only by calls that keep others out.
void MpiWindow::open() {
  int *model = nullptr, found = 0;
  check(MPI_Win_get_attr(window_, MPI_WIN_MODEL, &model, &found), "asking for the memory model of a window");
  if (found == 0 || *model != MPI_WIN_UNIFIED) throw std::runtime_error("windows do not have a unified memory model");
  check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "beginning access to a window");
  is_open_ = true;
}

MpiWindow::~MpiWindow() {
  if (window_ == MPI_WIN_NULL) return;
  if (is_open_) MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

MPI_Request MpiWindow::fetch(std::span<std::byte> target, int from, std::size_t slot) const {
  MPI_Request request = MPI_REQUEST_NULL;
  const int bytes = static_cast<int>(target.size());
  const auto at = static_cast<MPI_Aint>(slot * slot_bytes_);
  check(MPI_Rget(target.data(), bytes, MPI_BYTE, from, at, bytes, MPI_BYTE, window_, &request), "fetching");
  return request;
}

}  // namespace outcrop::aggregate
