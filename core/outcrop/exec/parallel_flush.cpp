#include "outcrop/exec/parallel_flush.hpp"

#include <algorithm>

#include "outcrop/base/round.hpp"
#include "outcrop/exec/first_failure.hpp"
#include "outcrop/exec/team.hpp"

namespace outcrop {

void flush_in_parallel(const Mapping &mapping, std::size_t begin, std::size_t length, unsigned threads) {
  constexpr std::size_t piece = std::size_t{16} << 20;
  Team team(threads);
  FirstFailure failure;
  team.for_each(static_cast<long>(round_up(length, piece) / piece), [&](long i) {
    const std::size_t at = static_cast<std::size_t>(i) * piece;
    failure.guard([&] { mapping.flush(begin + at, std::min(piece, length - at)); });
  });
  failure.rethrow();
}

}  // namespace outcrop
