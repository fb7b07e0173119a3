// What all calls of MPI here share: errors as text, the library's name, and how to wait.
//
// MPI's own waits keep a core busy until they are over. Where there are more ranks than cores, that is the core of the
// rank that is waited for, or of an I/O thread. So everything here begins, and then asks whether it is over, with pauses.
// Eight ranks on two cores: a barrier 0.6 to 0.7 ms instead of 15 to 32 (MPICH), 64 KiB to one rank 0.4 instead of 2 to 19.
#pragma once

// C++ bindings of old versions of MPI, which nobody needs and which warn.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace outcrop::aggregate {

/// What MPI says about an error code, in one line.
inline std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
  std::string line(text, static_cast<std::size_t>(length));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  for (std::size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at)) line.replace(at, 1, "; ");
  return line;
}

/// Throws std::runtime_error where a call of MPI did not succeed.
inline void check(int code, const std::string &doing) {
  if (code != MPI_SUCCESS) throw std::runtime_error(doing + ": " + mpi_text(code));
}

/// "Open MPI v4.1.4" or "MPICH 4.0.2", of what may be pages.
inline std::string mpi_library_name() {
  constexpr std::string_view label = "Version:";
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "asking for the version of MPI");
  text.resize(std::min(text.find_first_of(",\n"), static_cast<std::size_t>(length)));
  const std::size_t word = text.find(label);
  if (word != std::string::npos) text.erase(word, text.find_first_not_of(" \t", word + label.size()) - word);
  return text;
}

/// How the calls of a transport wait for other ranks.
struct Manner {
  bool crowded = false;                  ///< the ranks of this node leave no core to others
  const double *seconds_most = nullptr;  ///< the transport's, which may change: they give up then; 0: never
};

/// Pauses between questions whether something is over: none, then leaving the core to others, then sleep.
class Patience {
 public:
  explicit Patience(const Manner &manner)
      : questions_(manner.crowded ? 8 : 2000), seconds_most_(manner.seconds_most ? *manner.seconds_most : 0) {}

  void pause() {
    ++asked_;
    if (asked_ <= questions_) return;
    if (asked_ <= questions_ + 32)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  /// The same; throws, with what `doing()` says is being done, when that has taken too long.
  template <typename Text>
  void pause(const Text &doing) {
    pause();
    if (seconds_most_ == 0 || asked_ <= questions_) return;
    const Clock::time_point now = Clock::now();
    if (asked_ == questions_ + 1) begun_ = now;
    if (std::chrono::duration<double>(now - begun_).count() > seconds_most_) throw std::runtime_error(doing() + late());
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string late() const {
    char text[120];
    std::snprintf(text, sizeof text, ": other ranks have not come within %.4g s, the most by the setting seconds_most",
                  seconds_most_);
    return text;
  }

  int questions_;
  double seconds_most_;
  int asked_ = 0;
  Clock::time_point begun_;
};

}  // namespace outcrop::aggregate
