// What domains cost on the nodes of a machine, for placement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/placement/cost.hpp"
#include "outcrop/aggregate/placement/node_tallies.hpp"
#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

/// Domains with what reaches an aggregator from where. Refers to the machine and the wishes.
class Workload {
 public:
  Workload(const Machine &machine, std::span<const Tally> sorted, std::size_t domains, const Wishes &wishes);

  std::size_t domains() const { return tallies_.domains(); }
  std::uint64_t bytes(std::size_t domain) const { return bytes_[domain]; }
  const NodeTallies &tallies() const { return tallies_; }

  /// Of a domain on a node that all its messages go `distance` to.
  Gathering gathering(std::size_t domain, std::uint32_t node, double distance) const;

  Turns turns(std::size_t domain) const;

  Cost cost(std::size_t domain, std::size_t node, const Gathering &gathering, const Tier &tier,
            const Crowd &crowd) const;

 private:
  struct Merging {  // nodes put their bytes together at the same time: the slowest counts, or the next if it gathers
    double slowest = 0;
    double second = 0;
    std::uint32_t node = 0;
  };
  Merging merging(std::size_t domain) const;

  const Machine &machine_;
  const Wishes &wishes_;
  NodeTallies tallies_;
  std::vector<std::uint64_t> bytes_;
  std::vector<Merging> merging_;
};

/// The tallies of one domain among sorted ones.
std::span<const Tally> tallies_of(std::span<const Tally> sorted, std::size_t domain);

}  // namespace outcrop::aggregate
