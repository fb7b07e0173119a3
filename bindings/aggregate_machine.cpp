// Conversion only: what placement knows of a machine, and what is asked of it.
#include "aggregate_machine.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "outcrop/base/error.hpp"

namespace nb = nanobind;

namespace outcrop {

using namespace aggregate;

namespace {

Tier to_tier(nb::handle python) {
  return {get<std::string>(python, "name"),
          get<double>(python, "latency_seconds"),
          get<double>(python, "fill_bytes_per_second"),
          get<double>(python, "empty_bytes_per_second"),
          static_cast<Persistence>(nb::cast<int>(python.attr("persistence"))),
          get<bool>(python, "holds_files")};
}

Target to_target(nb::handle python) {
  return {get<double>(python, "latency_seconds"), get<double>(python, "bytes_per_second"),
          get<bool>(python, "is_shared")};
}

// Rows of distances come from Python, one at a time; `python` outlives the machine.
Distances to_distances(nb::handle python) {
  return [python](std::size_t node, std::span<double> row) {
    const nb::gil_scoped_acquire hold;
    const auto array = nb::cast<Array<double>>(python.attr("row")(node));
    if (array.size() != row.size())
      throw InputError("distances from node " + std::to_string(node) + " are " + std::to_string(array.size()) +
                       "; there are " + std::to_string(row.size()) + " nodes");
    std::copy_n(array.data(), row.size(), row.begin());
  };
}

}  // namespace

Machine to_machine(nb::handle python) {
  Machine machine;
  machine.node_of_rank = to_vector(get<Array<std::uint32_t>>(python, "node_of_rank"));
  machine.distance_to_target = to_vector(get<Array<double>>(python, "distance_to_target"));
  machine.room_bytes = to_vector(get<Array<std::uint64_t>>(python, "room_bytes"));
  machine.distances = to_distances(python.attr("distances"));
  const nb::object network = python.attr("network"), target = python.attr("target"),
                   target_read = python.attr("target_read"), memory = python.attr("shared_memory");
  machine.network = {get<double>(network, "latency_seconds"), get<double>(network, "card_bytes_per_second"),
                     get<std::uint32_t>(network, "cards_on_node")};
  machine.target = to_target(target);
  machine.target_read = target_read.is_none() ? machine.target : to_target(target_read);
  machine.shared_memory = {get<double>(memory, "latency_seconds"), get<double>(memory, "bytes_per_second")};
  for (const nb::handle tier : python.attr("tiers")) machine.tiers.push_back(to_tier(tier));
  return machine;
}

Wishes to_wishes(nb::handle python) {
  Wishes wishes;
  wishes.buffer_bytes = get<std::uint64_t>(python, "buffer_bytes");
  wishes.buffers = get<std::uint32_t>(python, "buffers");
  wishes.persistence = static_cast<Persistence>(nb::cast<int>(python.attr("persistence")));
  wishes.tier = get<std::string>(python, "tier");
  wishes.merged = get<bool>(python, "merged");
  wishes.most_on_node = get<std::vector<std::uint32_t>>(python, "most_on_node");
  return wishes;
}

Medium to_medium(nb::handle python) {
  return {get<std::string>(python, "tier"), get<std::vector<std::uint32_t>>(python, "numa_nodes"),
          get<std::string>(python, "folder")};
}

}  // namespace outcrop
