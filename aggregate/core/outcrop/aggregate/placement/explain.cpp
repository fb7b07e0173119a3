#include "outcrop/aggregate/placement/placement.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "outcrop/aggregate/text/text.hpp"

namespace outcrop::aggregate {
namespace {

// Returns a text such as "1 ms = messages 0.4 ms + ...". The text contains only terms that are not 0.
std::string sum(const Cost &cost) {
  const std::array<std::pair<const char *, double>, 6> terms = {{{"merging in nodes", cost.merge},
                                                                 {"messages", cost.messages},
                                                                 {"transfer", cost.transfer},
                                                                 {"own copy", cost.copy},
                                                                 {"reaching the target", cost.target_latency},
                                                                 {"target", cost.target_transfer}}};
  std::string text;
  for (const auto &[name, seconds] : terms)
    if (seconds > 0) text += (text.empty() ? "" : " + ") + std::string(name) + " " + format_seconds(seconds);
  if (cost.hidden > 0) text += " - overlapped " + format_seconds(cost.hidden);
  return format_seconds(cost.total()) + " = " + (text.empty() ? "0 s" : text);
}

std::string compared(double seconds, double chosen) {
  const double more = seconds - chosen;
  if (std::abs(more) <= 1e-9 * chosen) return format_seconds(seconds) + ", the same";
  return format_seconds(seconds) + ", " + format_seconds(more < 0 ? -more : more) + (more < 0 ? " less" : " more");
}

// Element i is the reason for value i of the enum Verdict, which says why a tier was not chosen.
constexpr std::array<const char *, 6> reasons = {"",
                                                 "",
                                                 ", but other aggregators use all of its room",
                                                 ", but it has no room for the buffers",
                                                 ", but its persistence is lower than requested",
                                                 ", but another tier was requested"};

std::string tiers_taken(const Placement &placement, const Machine &machine) {
  std::vector<std::size_t> counts(machine.tiers.size());
  for (const Choice &choice : placement.choices) ++counts[choice.chosen.tier];
  std::string text;
  for (std::size_t tier = 0; tier < counts.size(); ++tier)
    if (counts[tier] > 0)
      text += (text.empty() ? "" : ", ") + std::to_string(counts[tier]) + " in " + machine.tiers[tier].name;
  return text;
}

std::string explain_choice(const Placement &placement, const Machine &machine, std::size_t domain) {
  const Choice &choice = placement.choices[domain];
  const double seconds = choice.chosen.cost.total();
  const std::string node = std::to_string(choice.chosen.node), rank = std::to_string(choice.rank);
  std::string text = "domain " + std::to_string(domain) + ", " + format_bytes(choice.bytes) + ": rank " + rank +
                     " on node " + node + ", " + machine.tiers[choice.chosen.tier].name + "\n";
  text += "  " + sum(choice.chosen.cost) + "\n";
  text += "  rank " + rank + " has " + format_bytes(choice.rank_bytes) + " of it, its node " +
          format_bytes(choice.node_bytes) + "\n";
  for (std::size_t i = 0; i < choice.verdicts.size(); ++i) {
    if (choice.verdicts[i] == Verdict::chosen) continue;
    text += "  " + machine.tiers[choice.tiers[i].tier].name +
            " there: " + compared(choice.tiers[i].cost.total(), seconds) +
            reasons.at(static_cast<std::size_t>(choice.verdicts[i])) + "\n";
  }
  if (choice.runner_up)
    text += "  next best: node " + std::to_string(choice.runner_up->node) + ", " +
            machine.tiers[choice.runner_up->tier].name + ": " + compared(choice.runner_up->cost.total(), seconds) +
            (choice.runner_up_taken ? ", but other aggregators use all places there" : "") + "\n";
  return text;
}

}  // namespace

std::string explain(const Placement &placement, const Machine &machine, const PlacementOptions &options,
                    std::size_t max_domains) {
  if (placement.choices.empty()) return "nothing to gather\n";
  std::string text = counted(placement.choices.size(), "aggregator") + ", at most " +
                     std::to_string(placement.contention.on_node) + " on a node, buffers of " +
                     std::to_string(options.buffers) + " x " + format_bytes(options.buffer_bytes) + ": " +
                     tiers_taken(placement, machine) + "\n";
  text += placement.merged ? "ranks of a node merge their bytes and send them as one message\n"
                           : "every rank sends its own message\n";
  text += "predicted " + format_seconds(placement.seconds) + ", when the last domain is done\n";
  if (!placement.is_least) text += "each domain, one after another, took the cheapest free place\n";
  for (const std::string &note : placement.notes) text += note + "\n";
  std::vector<std::size_t> slowest(placement.choices.size());
  std::iota(slowest.begin(), slowest.end(), std::size_t{0});
  std::stable_sort(slowest.begin(), slowest.end(), [&](std::size_t a, std::size_t b) {
    return placement.choices[a].chosen.cost.total() > placement.choices[b].chosen.cost.total();
  });
  slowest.resize(std::min(slowest.size(), max_domains));
  for (const std::size_t domain : slowest) text += explain_choice(placement, machine, domain);
  return text;
}

}  // namespace outcrop::aggregate
