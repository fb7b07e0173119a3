#include "outcrop/aggregate/elect.hpp"

#include <algorithm>

namespace outcrop::aggregate {

std::vector<int> elect_by_bytes(std::size_t domains, std::span<const Tally> tallies, std::span<const int> nodes) {
  std::vector<std::uint32_t> load(nodes.size());
  std::vector<int> chosen(domains, 0);
  for (std::uint32_t domain = 0; domain < domains; ++domain) {
    const auto own = std::ranges::equal_range(tallies, domain, {}, &Tally::domain);
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
  return chosen;
}

}  // namespace outcrop::aggregate
