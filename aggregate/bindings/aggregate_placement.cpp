// Python bindings of machines, the placement of aggregators, and the settings of aggregation.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "aggregate.hpp"
#include "outcrop/aggregate/placement/placement.hpp"
#include "outcrop/aggregate/placement/settings.hpp"
#include "outcrop/base/error.hpp"

namespace nb = nanobind;

namespace outcrop {

using namespace aggregate;

namespace {

template <typename Value>
using Array = nb::ndarray<const Value, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Value>
std::vector<Value> to_vector(const Array<Value> &array) {
  return {array.data(), array.data() + array.size()};
}

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

// Converts a machine that Python code has checked. The distances of the result refer to `python`, which must exist
// while the distances are used.
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

std::vector<Tally> to_tallies(nb::handle python) {
  const auto domains = get<Array<std::uint32_t>>(python, "domains");
  const auto ranks = get<Array<std::uint32_t>>(python, "ranks");
  const auto bytes = get<Array<std::uint64_t>>(python, "bytes");
  std::vector<Tally> tallies(domains.size());
  for (std::size_t i = 0; i < tallies.size(); ++i) tallies[i] = {domains.data()[i], ranks.data()[i], bytes.data()[i]};
  return tallies;
}

// Calls act(machine, tallies), and releases the GIL during this call.
template <typename Act>
Placed place_by(nb::handle machine, nb::handle tallies, const PlacementOptions &options, const Act &act) {
  Placed placed{to_machine(machine), options, {}};
  const std::vector<Tally> list = to_tallies(tallies);
  {
    const nb::gil_scoped_release release;
    placed.placement = act(placed.machine, list);
  }
  placed.machine.distances = nullptr;  // Python may later destroy the object that provides the distances
  return placed;
}

Placed place_best_of(nb::handle machine, nb::handle tallies, std::size_t domains, const PlacementOptions &options,
                     bool try_both) {
  return place_by(machine, tallies, options, [&](const Machine &on, std::span<const Tally> list) {
    return place_best(on, list, domains, options, try_both);
  });
}

Placed place_all(nb::handle machine, nb::handle tallies, std::size_t domains, const PlacementOptions &options) {
  return place_by(machine, tallies, options,
                  [&](const Machine &on, std::span<const Tally> list) { return place(on, list, domains, options); });
}

Placed predict_of(nb::handle machine, nb::handle tallies, const PlacementOptions &options,
                  const Array<std::uint32_t> &ranks, const Array<std::uint32_t> &tiers) {
  return place_by(machine, tallies, options, [&](const Machine &on, std::span<const Tally> list) {
    return predict(on, list, options, {ranks.data(), ranks.size()}, {tiers.data(), tiers.size()});
  });
}

nb::object to_python(const SettingValue &value) {
  if (const auto *lasts = std::get_if<Persistence>(&value)) return nb::int_(static_cast<int>(*lasts));
  return std::visit(
      [](const auto &held) -> nb::object {
        if constexpr (std::is_same_v<decltype(held), const Persistence &>)
          return nb::none();
        else
          return nb::cast(held);
      },
      value);
}

// Returns one tuple for each setting: argument, field, hint, ROMIO's hint, variable, a text that describes the default,
// and meaning.
nb::list setting_rows() {
  nb::list rows;
  for (const SettingRow &row : setting_table())
    rows.append(nb::make_tuple(row.name, row.field, row.hint(), row.romio, row.variable(), row.unset, row.meaning));
  return rows;
}

nb::dict values_of(const Settings &settings) {
  nb::dict values;
  for (const SettingRow &row : setting_table()) values[nb::cast(row.field)] = to_python(row.value(settings));
  return values;
}

nb::dict origins_of(const Settings &settings) {
  nb::dict found;
  for (const SettingRow &row : setting_table()) found[nb::cast(row.field)] = row.origin(settings);
  return found;
}

nb::dict terms_of(const Cost &cost) {
  nb::dict terms;
  terms["merge"] = cost.merge;
  terms["messages"] = cost.messages;
  terms["transfer"] = cost.transfer;
  terms["copy"] = cost.copy;
  terms["target_latency"] = cost.target_latency;
  terms["target_transfer"] = cost.target_transfer;
  terms["hidden"] = cost.hidden;
  return terms;
}

void bind_results(nb::module_ &module) {
  nb::class_<Cost>(module, "Cost")
      .def_ro("merge", &Cost::merge)
      .def_ro("messages", &Cost::messages)
      .def_ro("transfer", &Cost::transfer)
      .def_ro("copy", &Cost::copy)
      .def_ro("target_latency", &Cost::target_latency)
      .def_ro("target_transfer", &Cost::target_transfer)
      .def_ro("hidden", &Cost::hidden)
      .def_prop_ro("terms", &terms_of)
      .def_prop_ro("total", &Cost::total);
  nb::class_<Choice>(module, "Choice")
      .def_ro("rank", &Choice::rank)
      .def_prop_ro("node", [](const Choice &choice) { return choice.chosen.node; })
      .def_prop_ro("tier", [](const Choice &choice) { return choice.chosen.tier; })
      .def_ro("bytes", &Choice::bytes)
      .def_prop_ro("cost", [](const Choice &choice) { return choice.chosen.cost; });
  nb::class_<Placed>(module, "Placement")
      .def_prop_ro("choices", [](const Placed &placed) { return placed.placement.choices; })
      .def_prop_ro("seconds", [](const Placed &placed) { return placed.placement.seconds; })
      .def_prop_ro("slowest", [](const Placed &placed) { return placed.placement.slowest; })
      .def_prop_ro("merged", [](const Placed &placed) { return placed.placement.merged; })
      .def_prop_ro("is_least", [](const Placed &placed) { return placed.placement.is_least; })
      .def_prop_ro("notes", [](const Placed &placed) { return placed.placement.notes; })
      .def(
          "explain",
          [](const Placed &placed, std::size_t max_domains) {
            return explain(placed.placement, placed.machine, placed.options, max_domains);
          },
          nb::arg("max_domains") = 1);
}

void bind_settings(nb::module_ &module) {
  nb::class_<PlacementOptions>(module, "PlacementOptions")
      .def(
          "__init__",
          [](PlacementOptions *made, std::uint64_t buffer_bytes, std::uint32_t buffers, int persistence,
             const std::string &tier, bool merged, const std::vector<std::uint32_t> &max_on_node) {
            const PlacementOptions options{buffer_bytes, buffers, static_cast<Persistence>(persistence),
                                           tier,         merged,  max_on_node};
            if (buffer_bytes < 1 || buffers < 1)
              throw InputError(std::to_string(buffers) + " buffers of " + std::to_string(buffer_bytes) +
                               " bytes: both numbers must be at least 1");
            new (made) PlacementOptions(options);
          },
          nb::arg("buffer_bytes") = 16U << 20, nb::arg("buffers") = 2, nb::arg("persistence") = 0, nb::arg("tier") = "",
          nb::arg("merged") = true, nb::arg("max_on_node") = std::vector<std::uint32_t>())
      .def_prop_ro("persistence", [](const PlacementOptions &options) { return static_cast<int>(options.persistence); })
      .def_ro("max_on_node", &PlacementOptions::max_on_node)
      .def(
          "sending_merged",
          [](PlacementOptions options, bool merged) {
            options.merged = merged;
            return options;
          },
          nb::arg("merged"));
  nb::class_<Settings>(module, "Settings")
      .def_prop_ro("values", &values_of)
      .def_prop_ro("origins", &origins_of)
      .def(
          "placement_options",
          [](const Settings &settings, const std::vector<std::string> &hosts) {
            return placement_options(settings, hosts);
          },
          nb::arg("hosts"));
  module.def("settings", &read_settings, nb::arg("arguments"), nb::arg("hints"), nb::arg("environment"));
  module.def("setting_rows", &setting_rows);
}

// Parses the text that describes a node, and returns two values. The first value is a list with one tuple for each
// tier: name, latency, rates of filling and emptying, persistence, holds_files, room and origin. The second value is
// the latency and the write rate of the target, or None if the text has no target.
nb::tuple parse_node_of(const std::string &text, const std::string &file) {
  const NodeDescription node = parse_node(text, file);
  nb::list tiers;
  for (const NodeTier &each : node.tiers)
    tiers.append(nb::make_tuple(each.tier.name, each.tier.latency_seconds, each.tier.fill_bytes_per_second,
                                each.tier.empty_bytes_per_second, static_cast<int>(each.tier.persistence),
                                each.tier.holds_files, each.room_bytes, each.origin));
  nb::object target = nb::none();
  if (node.target) target = nb::make_tuple(node.target->write.latency_seconds, node.target->write.bytes_per_second);
  return nb::make_tuple(tiers, target);
}

}  // namespace

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

void bind_placement(nb::module_ &module) {
  bind_results(module);
  bind_settings(module);
  module.def("place", &place_all, nb::arg("machine"), nb::arg("tallies"), nb::arg("domains"), nb::arg("options"));
  module.def("place_best", &place_best_of, nb::arg("machine"), nb::arg("tallies"), nb::arg("domains"),
             nb::arg("options"), nb::arg("try_both"));
  module.def("predict", &predict_of, nb::arg("machine"), nb::arg("tallies"), nb::arg("options"), nb::arg("ranks"),
             nb::arg("tiers"));
  module.def("parse_node", &parse_node_of, nb::arg("text"), nb::arg("file"));
  module.def("text_of_this_node", &text_of_this_node, nb::arg("text"), nb::arg("file"), nb::arg("target"));
  module.def(
      "rank_places", [](const std::string &text, const std::string &file) { return parse_rank_places(text, file); },
      nb::arg("text"), nb::arg("file"));
}

}  // namespace outcrop
