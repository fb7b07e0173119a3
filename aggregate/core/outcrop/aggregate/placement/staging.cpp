#include "outcrop/aggregate/placement/placement.hpp"

#include <algorithm>

#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {
namespace {

// Returns the predicted time of a drain. All nodes with aggregators drain at the same time. The node with the most
// bytes therefore determines the time.
double seconds_of_drain(const Machine &machine, const Placement &placement, const Tier &tier,
                        const StagingRates &rates) {
  std::vector<std::uint64_t> bytes_on_node(machine.nodes());
  std::uint64_t max_domain_bytes = 0;
  for (const Choice &choice : placement.choices) {
    bytes_on_node[choice.chosen.node] += choice.bytes;
    max_domain_bytes = std::max(max_domain_bytes, choice.bytes);
  }
  const Target &target = machine.target;
  const auto nodes = static_cast<double>(std::ranges::count_if(bytes_on_node, [](auto bytes) { return bytes > 0; }));
  double rate = target.bytes_per_second;
  if (target.is_shared)
    rate = std::min(rate / std::max(1.0, nodes), machine.network.card_bytes_per_second * machine.network.cards_on_node);
  const auto bytes = static_cast<double>(std::ranges::max(bytes_on_node));
  return bytes / tier.empty_bytes_per_second + bytes / rate +
         static_cast<double>(max_domain_bytes) / rates.read_bytes_per_second;
}

// Returns a target for the cost model. The target stands for the tier `tier` of each node. The aggregators of a node
// share the bandwidth of the tier. In addition, each aggregator needs 1 / `work` seconds for each byte. Other
// aggregators do not change this time.
Target as_target(const Tier &tier, double bytes_per_second, double work, const Contention &contention) {
  const double aggregators = contention.on_node;
  const double seconds = aggregators / bytes_per_second + 1 / work;  // the time for one byte
  return {tier.latency_seconds, aggregators / seconds, false};
}

// Returns the size of the stage that one step needs on each node. All aggregators of a node get equal parts of the
// stage.
std::vector<std::uint64_t> room_needed(const Machine &machine, const Placement &placement) {
  std::vector<std::uint64_t> count(machine.nodes()), bytes(machine.nodes());
  for (const Choice &choice : placement.choices) {
    const std::size_t runs = choice.bytes / AlignedMemory::page_bytes;
    ++count[choice.chosen.node];
    bytes[choice.chosen.node] = std::max(bytes[choice.chosen.node], room_of_step(choice.bytes, runs));
  }
  for (std::size_t node = 0; node < count.size(); ++node) bytes[node] *= count[node];
  return bytes;
}

std::string refusal_of(const Machine &machine, const std::vector<std::uint64_t> &needed, std::uint32_t tier,
                       const StepUsage &usage) {
  const Persistence least = std::max(Persistence::reboot, usage.persistence);
  if (machine.tiers[tier].persistence < least)
    return "its persistence is " + in_words(machine.tiers[tier].persistence) + ", but a stage needs " + in_words(least);
  for (std::size_t node = 0; node < needed.size(); ++node) {
    std::uint64_t room = machine.room(node, tier);
    // Steps are staged on all nodes or on no node. A node without aggregators also needs the folder of the tier.
    if (room == 0) return "it has no room on node " + std::to_string(node);
    if (usage.room_bytes > 0) room = std::min(room, usage.room_bytes);
    if (needed[node] > room)
      return "a step may need " + format_bytes(needed[node]) + " on node " + std::to_string(node) +
             ", where it has room for " + format_bytes(room);
  }
  if (!machine.target.is_shared && !usage.durable)
    return "writes need not be durable, so the page cache has the same effect as a stage";
  return "";
}

std::string terms(const StepForecast &forecast, const StepUsage &usage) {
  std::string text = format_seconds(forecast.total(usage)) + " = write " + format_seconds(forecast.write);
  if (forecast.wait > 0) text += " + wait for the drain " + format_seconds(forecast.wait);
  if (usage.reads_back > 0) {
    text += " + read back ";
    if (usage.reads_back != 1) text += format_number(usage.reads_back) + " x ";
    text += format_seconds(forecast.read);
  }
  return text;
}

}  // namespace

Staging decide_staging(const Machine &machine, const Placement &placement, const StepUsage &usage,
                       const StagingRates &rates) {
  Staging staging;
  staging.usage = usage;
  staging.straight = {seconds_with(machine, placement, machine.target, false), 0,
                      seconds_with(machine, placement, machine.target_read, true)};
  const std::vector<std::uint64_t> needed = room_needed(machine, placement);
  double least = staging.straight.total(usage);
  for (std::uint32_t tier = 0; tier < machine.tiers.size(); ++tier) {
    const Tier &stage = machine.tiers[tier];
    if (!stage.holds_files) continue;
    StageOption option{
        tier, {}, seconds_of_drain(machine, placement, stage, rates), refusal_of(machine, needed, tier, usage)};
    const Target written =
        as_target(stage, stage.fill_bytes_per_second, rates.write_bytes_per_second, placement.contention);
    const Target read =
        as_target(stage, stage.empty_bytes_per_second, rates.read_bytes_per_second, placement.contention);
    option.forecast = {seconds_with(machine, placement, written, false),
                       std::max(0.0, option.seconds_drain - usage.seconds_between),
                       seconds_with(machine, placement, read, true)};
    if (option.refusal.empty() && option.forecast.total(usage) < least) {
      least = option.forecast.total(usage);
      staging.chosen = staging.options.size();
    }
    staging.options.push_back(std::move(option));
  }
  return staging;
}

std::string explain(const Staging &staging, const Machine &machine) {
  const StepUsage &usage = staging.usage;
  std::string text = "staging: " +
                     (staging.chosen ? "on " + machine.tiers[staging.options[*staging.chosen].tier].name
                                     : "none, straight to the file") +
                     ", for steps " + format_seconds(usage.seconds_between) + " apart, read back " +
                     format_number(usage.reads_back) + " times\n";
  text += "  straight: " + terms(staging.straight, usage) + "\n";
  for (const StageOption &option : staging.options) {
    text += "  on " + machine.tiers[option.tier].name + ": " + terms(option.forecast, usage) + ", drained in " +
            format_seconds(option.seconds_drain);
    text += (option.refusal.empty() ? "" : ", but " + option.refusal) + "\n";
  }
  return text;
}

}  // namespace outcrop::aggregate
