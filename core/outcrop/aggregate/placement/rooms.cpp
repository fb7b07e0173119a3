#include "outcrop/aggregate/placement/rooms.hpp"

#include <algorithm>
#include <string>

#include "outcrop/aggregate/text/format.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr const char *LASTS[] = {"process", "reboot", "job", "permanent"};

std::string names(const Machine &machine) {
  std::string text;
  for (const Tier &tier : machine.tiers)
    text += (text.empty() ? "" : ", ") + tier.name + " (" + LASTS[static_cast<std::size_t>(tier.persistence)] + ")";
  return text;
}

// Before anything is counted: can any tier be what is wished?
void check_wishes(const Machine &machine, const Wishes &wishes) {
  bool is_known = wishes.tier.empty(), is_allowed = false;
  for (const Tier &tier : machine.tiers) {
    is_known |= tier.name == wishes.tier;
    is_allowed |= filtered(tier, wishes) == Verdict::chosen;
  }
  if (!is_known) throw InputError("aggregation tier '" + wishes.tier + "' is unknown; there are " + names(machine));
  if (!is_allowed)
    throw InputError(std::string("no tier for aggregation keeps what it holds for as long as asked, persistence ") +
                     LASTS[static_cast<std::size_t>(wishes.persistence)] + "; there are " + names(machine));
}

std::vector<std::uint32_t> find_slots(const Machine &machine, const Wishes &wishes) {
  const std::uint64_t needed = wishes.buffer_bytes * wishes.buffers;
  std::vector<std::uint32_t> slots(machine.room_bytes.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Tier &tier = machine.tiers[i % machine.tiers.size()];
    if (filtered(tier, wishes) != Verdict::chosen) continue;
    slots[i] = static_cast<std::uint32_t>(std::min<std::uint64_t>(machine.room_bytes[i] / needed, 1U << 30));
  }
  return slots;
}

// Never dearer, whatever the domain; of equal ones the first.
bool dominates(const Tier &one, const Tier &other, bool is_first) {
  if (one.latency_seconds > other.latency_seconds || one.fill_bytes_per_second < other.fill_bytes_per_second ||
      one.empty_bytes_per_second < other.empty_bytes_per_second)
    return false;
  return is_first || one.latency_seconds < other.latency_seconds ||
         one.fill_bytes_per_second > other.fill_bytes_per_second ||
         one.empty_bytes_per_second > other.empty_bytes_per_second;
}

// A tier with room for all that a node may have makes those that are never better superfluous.
bool is_superfluous(const Machine &machine, std::span<const std::uint32_t> slots, std::size_t tier,
                    std::uint32_t most) {
  for (std::size_t other = 0; other < slots.size(); ++other)
    if (other != tier && slots[other] >= most && dominates(machine.tiers[other], machine.tiers[tier], other < tier))
      return true;
  return false;
}

void add_columns(Rooms &rooms, const Machine &machine) {
  const std::size_t tiers = machine.tiers.size();
  for (std::size_t node = 0; node < machine.nodes(); ++node) {
    const std::uint32_t most = rooms.columns.group_room[node];
    const std::span<const std::uint32_t> slots = std::span(rooms.slots).subspan(node * tiers, tiers);
    for (std::size_t tier = 0; tier < tiers; ++tier) {
      if (most == 0 || slots[tier] == 0 || is_superfluous(machine, slots, tier, most)) continue;
      rooms.columns.group.push_back(static_cast<std::uint32_t>(node));
      rooms.columns.room.push_back(std::min(slots[tier], most));
      rooms.tier.push_back(static_cast<std::uint32_t>(tier));
    }
  }
}

// As few on a node as will do; 0 where no number does.
std::uint32_t spread(std::span<const std::uint32_t> limits, std::size_t domains) {
  std::vector<std::uint32_t> sorted(limits.begin(), limits.end());
  std::sort(sorted.begin(), sorted.end());
  std::uint64_t below = 0;  // places on nodes whose own limit is met first
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::size_t nodes = sorted.size() - i;
    if (below + nodes * std::uint64_t{sorted[i]} >= domains)
      return static_cast<std::uint32_t>((domains - below + nodes - 1) / nodes);
    below += sorted[i];
  }
  return 0;
}

}  // namespace

Verdict filtered(const Tier &tier, const Wishes &wishes) {
  if (!wishes.tier.empty() && tier.name != wishes.tier) return Verdict::not_wished;
  return tier.persistence < wishes.persistence ? Verdict::forgets : Verdict::chosen;
}

Rooms find_rooms(const Machine &machine, std::span<const std::uint32_t> ranks_on_node, std::size_t domains,
                 const Wishes &wishes) {
  check_wishes(machine, wishes);
  if (domains > machine.node_of_rank.size())
    throw InputError(std::to_string(domains) + " aggregators of " + std::to_string(machine.node_of_rank.size()) +
                     " ranks: there can be one for each rank at most");
  Rooms rooms;
  rooms.slots = find_slots(machine, wishes);
  const std::size_t tiers = machine.tiers.size();
  std::vector<std::uint32_t> limits(machine.nodes());
  std::uint64_t most = 0;
  for (std::size_t node = 0; node < limits.size(); ++node) {
    std::uint64_t slots = 0;
    for (std::size_t tier = 0; tier < tiers; ++tier) slots += rooms.slots[node * tiers + tier];
    limits[node] = static_cast<std::uint32_t>(std::min<std::uint64_t>(ranks_on_node[node], slots));
    if (!wishes.most_on_node.empty()) limits[node] = std::min(limits[node], wishes.most_on_node[node]);
    most += limits[node];
  }
  if (most < domains)
    throw InputError("buffers of " + std::to_string(wishes.buffers) + " x " + format_bytes(wishes.buffer_bytes) +
                     " for each of " + std::to_string(domains) + " aggregators: there is room for " +
                     std::to_string(most) + " of them on the nodes that may be used; give smaller buffers or fewer " +
                     "aggregators");
  rooms.most_on_node = std::max(1U, spread(limits, domains));
  for (std::uint32_t &limit : limits) limit = std::min(limit, rooms.most_on_node);
  rooms.columns.group_room = std::move(limits);
  add_columns(rooms, machine);
  return rooms;
}

}  // namespace outcrop::aggregate
