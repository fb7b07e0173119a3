// Conversion only: placement of aggregators, and the settings of aggregation.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bind.hpp"
#include "outcrop/aggregate/explain.hpp"
#include "outcrop/aggregate/placement.hpp"
#include "outcrop/aggregate/settings.hpp"
#include "outcrop/base/error.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

using namespace aggregate;

template <typename Value>
using Array = nb::ndarray<const Value, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Value>
std::vector<Value> to_vector(const Array<Value> &array) {
  return {array.data(), array.data() + array.size()};
}

template <typename Value>
Value get(nb::handle object, const char *name) {
  return nb::cast<Value>(object.attr(name));
}

Tier to_tier(nb::handle python) {
  return {get<std::string>(python, "name"), get<double>(python, "latency_seconds"),
          get<double>(python, "fill_bytes_per_second"), get<double>(python, "empty_bytes_per_second"),
          static_cast<Persistence>(nb::cast<int>(python.attr("persistence")))};
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

// `python` is a Machine of outcrop.aggregate.machine, which has checked it.
Machine to_machine(nb::handle python) {
  Machine machine;
  machine.node_of_rank = to_vector(get<Array<std::uint32_t>>(python, "node_of_rank"));
  machine.distance_to_target = to_vector(get<Array<double>>(python, "distance_to_target"));
  machine.room_bytes = to_vector(get<Array<std::uint64_t>>(python, "room_bytes"));
  machine.distances = to_distances(python.attr("distances"));
  const nb::object network = python.attr("network"), target = python.attr("target"),
                   memory = python.attr("shared_memory");
  machine.network = {get<double>(network, "latency_seconds"), get<double>(network, "card_bytes_per_second"),
                     get<std::uint32_t>(network, "cards_on_node")};
  machine.target = {get<double>(target, "latency_seconds"), get<double>(target, "bytes_per_second"),
                    get<bool>(target, "is_shared")};
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

std::vector<Tally> to_tallies(nb::handle python) {
  const auto domains = get<Array<std::uint32_t>>(python, "domains");
  const auto ranks = get<Array<std::uint32_t>>(python, "ranks");
  const auto bytes = get<Array<std::uint64_t>>(python, "bytes");
  std::vector<Tally> tallies(domains.size());
  for (std::size_t i = 0; i < tallies.size(); ++i) tallies[i] = {domains.data()[i], ranks.data()[i], bytes.data()[i]};
  return tallies;
}

// What Python gets: a placement with what is needed to explain it.
struct Placed {
  Machine machine;
  Wishes wishes;
  Placement placement;
};

template <typename Make>
Placed make(nb::handle machine, nb::handle tallies, nb::handle wishes, const Make &place) {
  Placed placed{to_machine(machine), to_wishes(wishes), {}};
  const std::vector<Tally> list = to_tallies(tallies);
  {
    const nb::gil_scoped_release release;
    placed.placement = place(placed.machine, list, placed.wishes);
  }
  placed.machine.distances = nullptr;  // what it refers to may go now
  return placed;
}

Placed place_best_of(nb::handle machine, nb::handle tallies, std::size_t domains, nb::handle wishes, bool try_both) {
  return make(machine, tallies, wishes, [&](const Machine &on, std::span<const Tally> list, const Wishes &wished) {
    return place_best(on, list, domains, wished, try_both);
  });
}

Placed place_all(nb::handle machine, nb::handle tallies, std::size_t domains, nb::handle wishes) {
  return make(machine, tallies, wishes, [&](const Machine &on, std::span<const Tally> list, const Wishes &wished) {
    return place(on, list, domains, wished);
  });
}

Placed predict_of(nb::handle machine, nb::handle tallies, nb::handle wishes, const Array<std::uint32_t> &ranks,
                  const Array<std::uint32_t> &tiers) {
  const std::vector<std::uint32_t> on_ranks = to_vector(ranks), in_tiers = to_vector(tiers);
  return make(machine, tallies, wishes, [&](const Machine &on, std::span<const Tally> list, const Wishes &wished) {
    return predict(on, list, wished, on_ranks, in_tiers);
  });
}

// Rank, node, tier, bytes and the terms of the cost.
nb::list choices(const Placed &placed) {
  nb::list list;
  for (const Choice &choice : placed.placement.choices) {
    const Cost &cost = choice.chosen.cost;
    list.append(nb::make_tuple(choice.rank, choice.chosen.node, choice.chosen.tier, choice.bytes, cost.merge,
                               cost.messages, cost.transfer, cost.copy, cost.target_latency, cost.target_transfer,
                               cost.hidden));
  }
  return list;
}

nb::dict settings(const Texts &arguments, const Texts &hints, const Texts &environment) {
  const Settings found = read_settings(arguments, hints, environment);
  nb::dict values;
  values["tier"] = nb::make_tuple(found.tier.value, found.tier.origin);
  values["persistence"] = nb::make_tuple(static_cast<int>(found.persistence.value), found.persistence.origin);
  values["buffer_bytes"] = nb::make_tuple(found.buffer_bytes.value, found.buffer_bytes.origin);
  values["buffers"] = nb::make_tuple(found.buffers.value, found.buffers.origin);
  values["count"] = nb::make_tuple(found.count.value, found.count.origin);
  values["hosts"] = nb::make_tuple(found.hosts.value, found.hosts.origin);
  values["stage"] = nb::make_tuple(found.stage.value, found.stage.origin);
  values["stage_bytes"] = nb::make_tuple(found.stage_bytes.value, found.stage_bytes.origin);
  return values;
}

}  // namespace

void bind_aggregate_placement(nb::module_ &module) {
  nb::class_<Placed>(module, "AggregatePlacement")
      .def_prop_ro("choices", &choices)
      .def_prop_ro("seconds", [](const Placed &placed) { return placed.placement.seconds; })
      .def_prop_ro("slowest", [](const Placed &placed) { return placed.placement.slowest; })
      .def_prop_ro("merged", [](const Placed &placed) { return placed.placement.merged; })
      .def_prop_ro("is_least", [](const Placed &placed) { return placed.placement.is_least; })
      .def_prop_ro("together", [](const Placed &placed) { return placed.placement.together; })
      .def_prop_ro("most_on_node", [](const Placed &placed) { return placed.placement.crowd.on_node; })
      .def_prop_ro("notes", [](const Placed &placed) { return placed.placement.notes; })
      .def(
          "explain",
          [](const Placed &placed, std::size_t domains_most) {
            return explain(placed.placement, placed.machine, placed.wishes, domains_most);
          },
          nb::arg("domains_most"));
  module.def("aggregate_place", &place_all, nb::arg("machine"), nb::arg("tallies"), nb::arg("domains"),
             nb::arg("wishes"));
  module.def("aggregate_place_best", &place_best_of, nb::arg("machine"), nb::arg("tallies"), nb::arg("domains"),
             nb::arg("wishes"), nb::arg("try_both"));
  module.def("aggregate_predict", &predict_of, nb::arg("machine"), nb::arg("tallies"), nb::arg("wishes"),
             nb::arg("ranks"), nb::arg("tiers"));
  module.def("aggregate_settings", &settings, nb::arg("arguments"), nb::arg("hints"), nb::arg("environment"));
  module.def(
      "aggregate_most_on_nodes",
      [](const std::string &list, const std::vector<std::string> &hosts) { return most_on_nodes(list, hosts); },
      nb::arg("list"), nb::arg("hosts"));
}

}  // namespace outcrop
