// Conversion only: placement of aggregators, and the settings of aggregation.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aggregate_machine.hpp"
#include "bind.hpp"
#include "outcrop/aggregate/placement/elect_by_cost.hpp"
#include "outcrop/aggregate/placement/explain.hpp"
#include "outcrop/aggregate/placement/placement.hpp"
#include "outcrop/aggregate/placement/settings.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

using namespace aggregate;

std::vector<Tally> to_tallies(nb::handle python) {
  const auto domains = get<Array<std::uint32_t>>(python, "domains");
  const auto ranks = get<Array<std::uint32_t>>(python, "ranks");
  const auto bytes = get<Array<std::uint64_t>>(python, "bytes");
  std::vector<Tally> tallies(domains.size());
  for (std::size_t i = 0; i < tallies.size(); ++i) tallies[i] = {domains.data()[i], ranks.data()[i], bytes.data()[i]};
  return tallies;
}

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
  values["transport"] = nb::make_tuple(found.transport.value, found.transport.origin);
  values["stage_persistence"] =
      nb::make_tuple(static_cast<int>(found.stage_persistence.value), found.stage_persistence.origin);
  values["seconds_between"] = nb::make_tuple(found.seconds_between.value, found.seconds_between.origin);
  values["reads_back"] = nb::make_tuple(found.reads_back.value, found.reads_back.origin);
  values["machine"] = nb::make_tuple(found.machine.value, found.machine.origin);
  values["target"] = nb::make_tuple(found.target.value, found.target.origin);
  values["topology"] = nb::make_tuple(found.topology.value, found.topology.origin);
  values["reads_only"] = nb::make_tuple(found.reads_only.value, found.reads_only.origin);
  values["own_run_bytes"] = nb::make_tuple(found.own_run_bytes.value, found.own_run_bytes.origin);
  values["seconds_most"] = nb::make_tuple(found.seconds_most.value, found.seconds_most.origin);
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
