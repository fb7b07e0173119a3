// Conversion only: what nodes are like, by the texts of machine files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind.hpp"
#include "outcrop/aggregate/placement/machine_file.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

using namespace aggregate;

nb::tuple from_target(const Target &target) {
  return nb::make_tuple(target.latency_seconds, target.bytes_per_second, target.is_shared);
}

Nodes join(const std::vector<std::string> &texts, const std::string &file) {
  std::vector<NodeDescription> nodes;
  for (const std::string &text : texts) nodes.push_back(parse_node(text, file));
  return join_nodes(std::move(nodes));
}

nb::list tiers(const Nodes &nodes) {
  nb::list list;
  for (const Tier &tier : nodes.tiers)
    list.append(nb::make_tuple(tier.name, tier.latency_seconds, tier.fill_bytes_per_second, tier.empty_bytes_per_second,
                               static_cast<int>(tier.persistence), tier.holds_files));
  return list;
}

nb::list media(const Nodes &nodes) {
  nb::list list;
  for (const std::vector<Medium> &of_node : nodes.media) {
    nb::list one;
    for (const Medium &medium : of_node) one.append(nb::make_tuple(medium.tier, medium.numa_nodes, medium.folder));
    list.append(one);
  }
  return list;
}

}  // namespace

void bind_aggregate_nodes(nb::module_ &module) {
  nb::class_<Nodes>(module, "AggregateNodes")
      .def_prop_ro("tiers", &tiers)
      .def_prop_ro("media", &media)
      .def_ro("room_bytes", &Nodes::room_bytes)
      .def_prop_ro("target_write", [](const Nodes &nodes) { return from_target(nodes.target.write); })
      .def_prop_ro("target_read", [](const Nodes &nodes) { return from_target(nodes.target.read); })
      .def_prop_ro("target_text", [](const Nodes &nodes) { return nodes.target.text; })
      .def_prop_ro("network",
                   [](const Nodes &nodes) {
                     const Network &network = nodes.network;
                     return nb::make_tuple(network.latency_seconds, network.card_bytes_per_second,
                                           network.cards_on_node);
                   })
      .def_ro("lines", &Nodes::lines);
  module.def("aggregate_join_nodes", &join, nb::arg("texts"), nb::arg("file"));
  module.def("aggregate_text_of_this_node", &text_of_this_node, nb::arg("text"), nb::arg("file"), nb::arg("target"));
}

}  // namespace outcrop
