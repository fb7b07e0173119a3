#include "outcrop/aggregate/placement/machine_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "outcrop/aggregate/node/numa_memory.hpp"
#include "outcrop/aggregate/placement/file_system.hpp"
#include "outcrop/aggregate/placement/table_text.hpp"
#include "outcrop/aggregate/text/format.hpp"
#include "outcrop/aggregate/text/listing.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::array MEMORY = {"hbm", "dram", "cxl", "nvm"};
constexpr std::array FILES = {"dax", "nvme", "ssd", "hdd", "disk", "tmpfs", "pfs"};
constexpr std::array LASTS = {"process", "reboot", "job", "permanent"};
constexpr double CARD_BYTES_PER_SECOND = 12.5e9, MESSAGE_SECONDS = 1e-6;

bool is_in(const auto &names, const std::string &name) { return std::ranges::find(names, name) != std::end(names); }

std::string kind_of(TextTable &table) {
  const std::string kind = table.has("kind") ? table.text("kind") : "disk";
  if (!is_in(MEMORY, kind) && !is_in(FILES, kind))
    table.refuse("kind", "hbm, dram, cxl, nvm, dax, nvme, ssd, hdd, disk, tmpfs or pfs");
  return kind;
}

Persistence persistence_of(TextTable &table, const std::string &kind, bool holds_files) {
  const Persistence most =
      !holds_files ? Persistence::process : (kind == "tmpfs" ? Persistence::reboot : Persistence::permanent);
  if (!table.has("persistence")) return most;
  const auto found = std::ranges::find(LASTS, table.text("persistence"));
  if (found == LASTS.end()) table.refuse("persistence", "process, reboot, job or permanent");
  const auto asked = static_cast<Persistence>(found - LASTS.begin());
  if (asked > most)
    table.refuse("persistence", std::string("at most ") + LASTS[static_cast<std::size_t>(most)] + " for " + kind);
  return asked;
}

std::vector<std::uint32_t> nodes_of(TextTable &table) {
  std::vector<std::uint32_t> nodes;
  const std::string text = table.text("nodes");
  std::string_view rest = text;
  do {
    std::uint32_t node = 0;
    if (!take_number(rest, node) || node > 4095) table.refuse("nodes", "numbers of NUMA nodes such as \"2,3\"");
    nodes.push_back(node);
  } while (take(rest, ","));
  if (!rest.empty()) table.refuse("nodes", "numbers of NUMA nodes such as \"2,3\"");
  return nodes;
}

double seconds_or(TextTable &table, const std::string &key, double otherwise) {
  return table.has(key) ? table.seconds(key) : otherwise;
}

NodeTier tier_of(TextTable &table) {
  NodeTier made;
  const std::string kind = kind_of(table);
  made.medium.tier = made.tier.name = table.name();
  if (table.has("directory")) made.medium.folder = table.text("directory");
  const bool is_memory = is_in(MEMORY, kind) && made.medium.folder.empty();
  if (!is_memory && !made.medium.folder.empty() && made.medium.folder.front() != '/')
    table.refuse("directory", "an absolute path");
  if (is_memory && table.has("nodes")) made.medium.numa_nodes = nodes_of(table);
  made.room_bytes = table.bytes("capacity");
  made.tier.fill_bytes_per_second = table.bytes_per_second("write");
  made.tier.empty_bytes_per_second = table.bytes_per_second("read");
  made.tier.latency_seconds = seconds_or(table, "write_latency", seconds_or(table, "read_latency", 0));
  made.tier.persistence = persistence_of(table, kind, !is_memory);
  made.tier.holds_files = !is_memory;
  made.origin = table.has("origin") ? table.text("origin") : "declared";
  table.refuse_other_keys();
  if (is_memory && kind != "dram" && made.medium.numa_nodes.empty())
    made.unusable = "which NUMA nodes it is, such as nodes = \"2\", is not said";
  if (!is_memory && made.medium.folder.empty()) made.unusable = "no directory of it is named";
  return made;
}

FileTarget target_of(TextTable &table) {
  const std::string kind = kind_of(table);
  if (table.has("capacity")) table.bytes("capacity");
  if (table.has("directory")) table.text("directory");
  const double read = table.bytes_per_second("read"), write = table.bytes_per_second("write");
  FileTarget made{{seconds_or(table, "write_latency", 0), write, kind == "pfs"},
                  {seconds_or(table, "read_latency", 0), read, kind == "pfs"},
                  table.name() == "target" ? kind + ", declared" : table.name() + ", declared"};
  if (table.has("origin")) made.text = table.text("origin");
  if (table.has("persistence")) table.text("persistence");
  table.refuse_other_keys();
  return made;
}

// The table of the tier with the longest directory that holds the folder; empty where none does.
std::string target_on(const std::vector<NodeTier> &tiers, const std::string &folder) {
  std::error_code ignored;
  const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(folder, ignored), ignored);
  const NodeTier *best = nullptr;
  for (const NodeTier &each : tiers) {
    const std::filesystem::path where = each.medium.folder;
    if (where.empty() || std::ranges::mismatch(where, path).in1 != where.end()) continue;
    if (best == nullptr || each.medium.folder.size() > best->medium.folder.size()) best = &each;
  }
  if (best == nullptr) return "";
  const Tier &tier = best->tier;
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  text << "[target]\nread = " << tier.empty_bytes_per_second << "\nwrite = " << tier.fill_bytes_per_second
       << "\nread_latency = " << tier.latency_seconds << "\nwrite_latency = " << tier.latency_seconds << "\norigin = \""
       << tier.name << ", " << best->origin << "\"\n";
  return text.str();
}

// Why buffers and stages cannot be there, asked of the system.
std::string why_unusable(const Medium &medium) {
  if (!medium.numa_nodes.empty()) return why_not_on_nodes(medium.numa_nodes);
  if (medium.folder.empty()) return "";
  if (!std::filesystem::is_directory(medium.folder)) return "there is no directory " + medium.folder;
  return access(medium.folder.c_str(), W_OK | X_OK) == 0 ? "" : "this user may not write in " + medium.folder;
}

}  // namespace

NodeDescription parse_node(std::string_view text, const std::string &file) {
  NodeDescription made{{}, {}, {MESSAGE_SECONDS, CARD_BYTES_PER_SECOND, 1}, "assumed"};
  std::vector<TextTable> tables = parse_tables(text, file);
  std::map<std::string, std::string> unusable;
  std::optional<FileTarget> shared;
  for (TextTable &table : tables) {
    if (table.name() == "network") {
      if (table.has("cards")) made.network.cards_on_node = table.count("cards");
      if (table.has("card")) made.network.card_bytes_per_second = table.bytes_per_second("card");
      made.network.latency_seconds = seconds_or(table, "latency", MESSAGE_SECONDS);
      made.network_origin = table.has("card") ? "declared" : "assumed";
      table.refuse_other_keys();
    } else if (table.name() == "unusable") {
      for (const std::string &key : table.keys()) unusable[key] = table.text(key);
    } else if (table.name() == "target") {
      made.target = target_of(table);
    } else if (kind_of(table) == "pfs") {
      shared = target_of(table);
    } else {
      made.tiers.push_back(tier_of(table));
    }
  }
  for (NodeTier &each : made.tiers)
    if (const auto found = unusable.find(each.tier.name); found != unusable.end()) each.unusable = found->second;
  std::ranges::stable_partition(made.tiers, [](const NodeTier &each) { return !each.tier.holds_files; });
  if (!made.target) made.target = shared;
  return made;
}

std::string text_of_this_node(const std::string &text, const std::string &file, const std::string &target_folder) {
  const NodeDescription node = parse_node(text, file);
  std::string unusable;
  for (const NodeTier &each : node.tiers) {
    std::string why = each.unusable.empty() ? why_unusable(each.medium) : "";
    std::ranges::replace(why, '"', '\'');
    std::ranges::replace(why, '\\', '/');
    if (!why.empty()) unusable += each.tier.name + " = \"" + why + "\"\n";
  }
  std::string made = text + "\n";
  if (!node.target) {
    const std::string target = target_on(node.tiers, target_folder);
    made += target.empty() ? assumed_target(target_folder) : target;
  }
  if (!unusable.empty()) made += "[unusable]\n" + unusable;
  return made;
}

Nodes join_nodes(std::vector<NodeDescription> nodes) {
  Nodes made;
  std::vector<std::string> origins;
  std::map<std::string, std::size_t> numbers;
  for (const NodeDescription &node : nodes)
    for (const NodeTier &each : node.tiers)
      if (each.unusable.empty() && numbers.try_emplace(each.tier.name, made.tiers.size()).second) {
        made.tiers.push_back(each.tier);
        origins.push_back(each.origin);
      }
  if (made.tiers.empty()) throw InputError("no tier of a node can have buffers; name one in the machine file");
  made.network = nodes.front().network;
  for (std::size_t number = 0; number < nodes.size(); ++number) {
    std::vector<std::uint64_t> room(made.tiers.size());
    std::vector<Medium> media(made.tiers.size());
    for (const NodeTier &each : nodes[number].tiers) {
      if (!each.unusable.empty()) {
        made.lines.push_back(each.tier.name + " of node " + std::to_string(number) + " is left out: " + each.unusable);
        continue;
      }
      room[numbers[each.tier.name]] = each.room_bytes;
      media[numbers[each.tier.name]] = each.medium;
    }
    made.room_bytes.insert(made.room_bytes.end(), room.begin(), room.end());
    made.media.push_back(std::move(media));
    made.network.cards_on_node = std::min(made.network.cards_on_node, nodes[number].network.cards_on_node);
  }
  for (std::size_t tier = 0; tier < made.tiers.size(); ++tier)
    made.lines.push_back(made.tiers[tier].name + ": " + format_rate(made.tiers[tier].fill_bytes_per_second) + ", " +
                         origins[tier]);
  if (!nodes.front().target) throw InputError("nothing is said of the target; name it in the machine file");
  made.target = *nodes.front().target;
  if (nodes.size() > 1)
    made.lines.push_back("network: " + std::to_string(made.network.cards_on_node) + " x " +
                         format_rate(made.network.card_bytes_per_second) + " a node, " + nodes.front().network_origin);
  return made;
}

}  // namespace outcrop::aggregate
