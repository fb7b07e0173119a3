#include "outcrop/aggregate/node/neighbours.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace outcrop::aggregate {

Neighbours::Neighbours(std::span<const int> processes) {
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (processes[i] == getpid()) continue;
    const long handle = syscall(SYS_pidfd_open, processes[i], 0);
    processes_.push_back({static_cast<int>(i), processes[i], Descriptor(handle < 0 ? -1 : static_cast<int>(handle))});
  }
}

int Neighbours::gone() const {
  for (const Process &process : processes_) {
    if (process.handle.get() < 0) {
      if (kill(process.number, 0) != 0 && errno == ESRCH) return process.index;
      continue;
    }
    pollfd state{process.handle.get(), POLLIN, 0};  // readable when the process has ended
    if (poll(&state, 1, 0) == 1) return process.index;
  }
  return -1;
}

}  // namespace outcrop::aggregate
