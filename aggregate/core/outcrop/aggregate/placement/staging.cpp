#include "outcrop/aggregate/placement/staging.hpp"

#include <algorithm>

#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {
namespace {

std::vector<std::uint64_t> bytes_of_nodes(const Machine &machine, const Placement &placement) {
  std::vector<std::uint64_t> bytes(machine.nodes());
  for (const Choice &choice : placement.choices) bytes[choice.chosen.node] += choice.bytes;
  return bytes;
}

// Of the node that takes longest. All nodes that aggregate drain at the same time.
double seconds_of_drain(const Machine &machine, const Placement &placement, const Tier &tier,
                        const StagingRates &rates) {
  const std::vector<std::uint64_t> bytes = bytes_of_nodes(machine, placement);
  const Target &target = machine.target;
  const auto nodes = static_cast<double>(std::ranges::count_if(bytes, [](std::uint64_t each) { return each > 0; }));
  double rate = target.bytes_per_second;
  if (target.is_shared)
    rate = std::min(rate / std::max(1.0, nodes), machine.network.card_bytes_per_second * machine.network.cards_on_node);
  const auto most = static_cast<double>(bytes.empty() ? 0 : std::ranges::max(bytes));
  std::uint64_t domain = 0;
  for (const Choice &choice : placement.choices) domain = std::max(domain, choice.bytes);
  return most / tier.empty_bytes_per_second + most / rate + static_cast<double>(domain) / rates.read_bytes_per_second;
}

// A tier as a target of each node, whose aggregators share it, while each works for itself.
Target as_target(const Tier &tier, double bytes_per_second, double work_bytes_per_second, const Crowd &crowd) {
  const double aggregators = crowd.on_node;
  const double seconds = aggregators / bytes_per_second + 1 / work_bytes_per_second;  // of a byte
  return {tier.latency_seconds, aggregators / seconds, false};
}

// What staging a step takes at most, in equal parts for all aggregators of a node.
std::vector<std::uint64_t> room_needed(const Machine &machine, const Placement &placement) {
  std::vector<std::uint64_t> count(machine.nodes()), most(machine.nodes());
  for (const Choice &choice : placement.choices) {
    const std::size_t runs = choice.bytes / AlignedMemory::page_bytes;
    ++count[choice.chosen.node];
    most[choice.chosen.node] = std::max(most[choice.chosen.node], room_of_step(choice.bytes, runs));
  }
  for (std::size_t node = 0; node < count.size(); ++node) most[node] *= count[node];
  return most;
}

std::uint64_t room_on(const Machine &machine, std::size_t node, std::size_t tier, const StepUsage &usage) {
  const std::uint64_t room = machine.room(node, tier);
  return usage.room_bytes == 0 ? room : std::min(room, usage.room_bytes);
}

std::string refusal_of(const Machine &machine, const std::vector<std::uint64_t> &needed, std::uint32_t tier,
                       const StepUsage &usage) {
  const Persistence least = std::max(Persistence::reboot, usage.persistence);
  if (machine.tiers[tier].persistence < least)
    return "its persistence is " + in_words(machine.tiers[tier].persistence) + ", and of a stage " + in_words(least) +
           " is asked for";
  for (std::size_t node = 0; node < needed.size(); ++node)
    if (const std::uint64_t room = room_on(machine, node, tier, usage); needed[node] > room)
      return "a step may take " + format_bytes(needed[node]) + " of it on node " + std::to_string(node) +
             ", which has " + format_bytes(room);
  if (!machine.target.is_shared && !usage.durable)
    return "writes need not be durable, and the page cache takes them as a stage would";
  return "";
}

std::string ways(const StepForecast &forecast, const StepUsage &usage) {
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
    const Target written = as_target(stage, stage.fill_bytes_per_second, rates.write_bytes_per_second, placement.crowd);
    const Target read = as_target(stage, stage.empty_bytes_per_second, rates.read_bytes_per_second, placement.crowd);
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
  text += "  straight: " + ways(staging.straight, usage) + "\n";
  for (const StageOption &option : staging.options) {
    text += "  on " + machine.tiers[option.tier].name + ": " + ways(option.forecast, usage) + ", drained in " +
            format_seconds(option.seconds_drain);
    text += (option.refusal.empty() ? "" : ", but " + option.refusal) + "\n";
  }
  return text;
}

}  // namespace outcrop::aggregate
