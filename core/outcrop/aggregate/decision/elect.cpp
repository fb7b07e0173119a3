#include "outcrop/aggregate/decision/elect.hpp"

#include <algorithm>
#include <utility>

namespace outcrop::aggregate {

Election elect_by_bytes(const Ballot &ballot) {
  if (!ballot.owners.empty()) return {{ballot.owners.begin(), ballot.owners.end()}};
  std::vector<std::uint32_t> load(ballot.nodes.size());
  std::vector<int> chosen(ballot.domains, 0);
  for (std::uint32_t domain = 0; domain < ballot.domains; ++domain) {
    const auto own = std::ranges::equal_range(ballot.tallies, domain, {}, &Tally::domain);
    const auto worse = [&](const Tally &a, const Tally &b) {
      if (load[a.rank] != load[b.rank]) return load[a.rank] > load[b.rank];
      if (a.bytes != b.bytes) return a.bytes < b.bytes;
      return a.rank > b.rank;
    };
    if (own.empty()) continue;
    const std::uint32_t best = std::ranges::max_element(own, worse)->rank;
    chosen[domain] = static_cast<int>(best);
    ++load[best];
  }
  return {std::move(chosen)};
}

}  // namespace outcrop::aggregate
