#include "outcrop/aggregate/placement/machine.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/available_memory.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::array<std::string_view, 4> PERSISTENCES = {"process", "reboot", "job", "permanent"};

// The numbers by which Linux identifies the types of network file systems. On some systems, the headers define no names
// for these numbers.
constexpr unsigned long NETWORK[] = {
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB2
    0x00C36400,  // Ceph
    0x5346414F,  // AFS
    0x01021997,  // 9P
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x19830326,  // BeeGFS
    0xAAD7AAEA,  // PanFS
    0x20030528,  // OrangeFS
};

unsigned long type_of(std::filesystem::path folder) {
  std::error_code ignored;
  folder = std::filesystem::absolute(folder, ignored);
  while (folder.has_relative_path() && !std::filesystem::exists(folder, ignored)) folder = folder.parent_path();
  struct statfs found {};
  return statfs(folder.c_str(), &found) == 0 ? static_cast<unsigned long>(found.f_type) : 0;
}

std::string target_table(const std::string &kind, double read, double write, double latency,
                         const std::string &origin) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  text << "[target]\nkind = \"" << kind << "\"\nread = " << read << "\nwrite = " << write
       << "\nread_latency = " << latency << "\nwrite_latency = " << latency << "\norigin = \"" << origin << "\"\n";
  return text.str();
}

std::string assumed_target(const std::string &folder) {
  const auto table = [](const std::string &kind, double rate, double latency) {
    return target_table(kind, rate, rate, latency, "assumed for " + kind);
  };
  const unsigned long type = type_of(folder);
  if (std::ranges::find(NETWORK, type) != std::end(NETWORK)) return table("pfs", 1e11, 1e-3);
  if (type == TMPFS_MAGIC || type == RAMFS_MAGIC) return table("tmpfs", 5e9, 1e-6);
  return table("disk", 1e9, 1e-4);
}

constexpr std::array MEMORY = {"hbm", "dram", "cxl", "nvm"};
constexpr std::array FILES = {"dax", "nvme", "ssd", "hdd", "disk", "tmpfs", "pfs"};
constexpr double CARD_BYTES_PER_SECOND = 12.5e9, MESSAGE_SECONDS = 1e-6;

bool is_in(const auto &names, const std::string &name) { return std::ranges::find(names, name) != std::end(names); }

std::string kind_of(TextTable &table) {
  const std::string kind = table.has("kind") ? table.text("kind") : "disk";
  if (!is_in(MEMORY, kind) && !is_in(FILES, kind))
    table.refuse("kind", "hbm, dram, cxl, nvm, dax, nvme, ssd, hdd, disk, tmpfs or pfs");
  return kind;
}

Persistence persistence_of(TextTable &table, const std::string &kind, bool holds_files) {
  const Persistence longest =
      !holds_files ? Persistence::process : (kind == "tmpfs" ? Persistence::reboot : Persistence::permanent);
  if (!table.has("persistence")) return longest;
  const std::optional<Persistence> asked = persistence_named(table.text("persistence"));
  if (!asked) table.refuse("persistence", "process, reboot, job or permanent");
  if (*asked > longest) table.refuse("persistence", "at most " + in_words(longest) + " for " + kind);
  return *asked;
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
    made.unusable = "its NUMA nodes are missing; give them as in nodes = \"2\"";
  if (!is_memory && made.medium.folder.empty()) made.unusable = "its directory is missing";
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

// Returns the text of the table [target] for a folder. The table contains the rates of the tier whose directory
// contains the folder. If the directories of several tiers contain the folder, the longest directory path counts. If no
// tier's directory contains the folder, the text is empty.
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
  return target_table("disk", tier.empty_bytes_per_second, tier.fill_bytes_per_second, tier.latency_seconds,
                      tier.name + ", " + best->origin);
}

// Returns the reason why buffers and stages cannot use a medium on this node. Returns an empty text if buffers and
// stages can use the medium.
std::string why_unusable(const Medium &medium) {
  if (!medium.numa_nodes.empty()) return why_not_on_nodes(medium.numa_nodes);
  if (medium.folder.empty()) return "";
  if (!std::filesystem::is_directory(medium.folder)) return "there is no directory " + medium.folder;
  return access(medium.folder.c_str(), W_OK | X_OK) == 0 ? "" : "this user may not write in " + medium.folder;
}

constexpr std::string_view blanks = " \t\r";
// The numbers of links between ranks. The place of a rank has three parts: group, switch and port. Element i is the
// number of links between two ranks whose places agree in exactly the first i parts.
constexpr std::array<double, 4> LINKS = {5, 3, 2, 0};

std::string_view next_line(std::string_view &text) {
  const std::size_t length = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  line = line.substr(0, line.find('#'));
  while (!line.empty() && blanks.find(line.back()) != std::string_view::npos) line.remove_suffix(1);
  return line;
}

void skip_blanks(std::string_view &line) { line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size())); }

bool take_place(std::string_view line, std::uint64_t &rank, RankPlace &place) {
  skip_blanks(line);
  if (!take_number(line, rank)) return false;
  skip_blanks(line);
  if (!take(line, ":")) return false;
  for (std::string &part : place) {
    skip_blanks(line);
    part = line.substr(0, line.find_first_of(blanks));
    line.remove_prefix(part.size());
    if (part.empty()) return false;
  }
  return line.empty();
}

constexpr std::size_t copied_bytes = std::size_t{32} << 20;
constexpr int copies = 3;
constexpr double memory_latency_seconds = 1e-7;
constexpr SharedMemory typical_shared_memory{1e-6, 10e9};

// Copies a block of memory several times, and returns the rate of the fastest copy. The copied block is larger than
// most caches.
double measured_bytes_per_second() {
  using Clock = std::chrono::steady_clock;
  const AlignedMemory source(copied_bytes), target(copied_bytes);
  std::memset(source.data(), 1, copied_bytes);
  std::memset(target.data(), 1, copied_bytes);
  double least = 1;
  for (int copy = 0; copy < copies; ++copy) {
    const Clock::time_point begin = Clock::now();
    std::memcpy(target.data(), source.data(), copied_bytes);
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return static_cast<double>(copied_bytes) / least;
}

std::string measured_memory() {
  const std::string rate = format_number(measured_bytes_per_second());
  const std::uint64_t bytes = std::clamp(available_bytes(), std::uint64_t{1}, std::uint64_t{1} << 60);
  return "[dram]\nkind = \"dram\"\ncapacity = " + std::to_string(bytes) + "\nread = " + rate + "\nwrite = " + rate +
         "\nread_latency = " + format_number(memory_latency_seconds) + "\norigin = \"measured by a copy\"\n";
}

std::string text_name(const MachineSources &sources) {
  return sources.machine_file.empty() ? "this node" : sources.machine_file;
}

std::string text_of_node(const MachineSources &sources) {
  std::string text = sources.node_text;
  if (text.empty()) text = sources.machine_file.empty() ? measured_memory() : read_text(sources.machine_file);
  return text_of_this_node(text, text_name(sources), sources.target_folder);
}

// All ranks must call this function. Calls make() on each rank whose argument `makes` is true. Returns the texts of all
// ranks. The returned texts of all other ranks are empty.
template <typename Make>
std::vector<std::string> gather_made(const Link &link, bool makes, Make make, std::string problem = {}) {
  std::string mine;
  try {
    if (makes && problem.empty()) mine = make();
  } catch (const std::exception &error) {
    problem = error.what();
  }
  return gather_texts(link, mine, problem);
}

}  // namespace

std::string in_words(Persistence persistence) {
  return std::string(PERSISTENCES[static_cast<std::size_t>(persistence)]);
}

std::optional<Persistence> persistence_named(std::string_view word) {
  const auto found = std::ranges::find(PERSISTENCES, word);
  if (found == PERSISTENCES.end()) return std::nullopt;
  return static_cast<Persistence>(found - PERSISTENCES.begin());
}

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

JoinedNodes join_nodes(std::vector<NodeDescription> nodes) {
  JoinedNodes made;
  std::vector<std::string> origins;
  std::map<std::string, std::size_t> numbers;
  for (const NodeDescription &node : nodes)
    for (const NodeTier &each : node.tiers)
      if (each.unusable.empty() && numbers.try_emplace(each.tier.name, made.tiers.size()).second) {
        made.tiers.push_back(each.tier);
        origins.push_back(each.origin);
      }
  if (made.tiers.empty()) throw InputError("no tier of a node can hold buffers; add one to the machine file");
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
  if (!nodes.front().target) throw InputError("the target is missing; add it to the machine file");
  made.target = *nodes.front().target;
  if (nodes.size() > 1)
    made.lines.push_back("network: " + std::to_string(made.network.cards_on_node) + " x " +
                         format_rate(made.network.card_bytes_per_second) + " a node, " + nodes.front().network_origin);
  return made;
}

std::vector<RankPlace> parse_rank_places(std::string_view text, const std::string &file) {
  std::map<std::uint64_t, RankPlace> places;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = next_line(text);
    if (line.empty()) continue;
    const std::string where = file + ":" + std::to_string(number) + ": ";
    std::uint64_t rank = 0;
    RankPlace place;
    if (!take_place(line, rank, place)) throw InputError(where + "must be `rank: group switch port`");
    if (!places.emplace(rank, std::move(place)).second)
      throw InputError(where + "rank " + std::to_string(rank) + " occurs twice");
  }
  std::vector<RankPlace> listed;
  for (auto &[rank, place] : places) {
    if (rank != listed.size()) break;
    listed.push_back(std::move(place));
  }
  if (listed.empty() || listed.size() < places.size())
    throw InputError(file + ": rank " + std::to_string(listed.size()) +
                     " is missing; there must be a line for each rank from 0 on");
  return listed;
}

Distances distances_by_places(std::string_view text, const std::string &file,
                              std::span<const std::uint32_t> node_of_rank) {
  const std::vector<RankPlace> places = parse_rank_places(text, file);
  if (places.size() != node_of_rank.size())
    throw InputError(file + " has " + std::to_string(places.size()) + " ranks; there are " +
                     std::to_string(node_of_rank.size()));
  std::vector<RankPlace> of_node(std::size_t{std::ranges::max(node_of_rank)} + 1);
  std::vector<std::size_t> first(of_node.size(), places.size());
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const std::uint32_t node = node_of_rank[rank];
    if (first[node] == places.size()) {
      first[node] = rank;
      of_node[node] = places[rank];
    } else if (of_node[node] != places[rank]) {
      throw InputError(file + ": ranks " + std::to_string(first[node]) + " and " + std::to_string(rank) +
                       " are on the same node, but have different places");
    }
  }
  return [of_node](std::size_t node, std::span<double> row) {
    for (std::size_t other = 0; other < row.size(); ++other) {
      const auto [end, ignored] = std::ranges::mismatch(of_node[node], of_node[other]);
      row[other] = LINKS[static_cast<std::size_t>(end - of_node[node].begin())];
    }
  };
}

Distances distances_by_node() {
  return [](std::size_t node, std::span<double> row) {
    for (std::size_t other = 0; other < row.size(); ++other) row[other] = other == node ? 0 : 1;
  };
}

std::vector<std::string> gather_texts(const Link &link, const std::string &mine, const std::string &problem) {
  const std::string told = problem.empty() ? "+" + mine : "-" + problem;
  std::vector<std::size_t> begins;
  const std::vector<char> all = link.gather_lists(told, &begins);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank + 1 < begins.size(); ++rank) {
    std::string text(all.data() + begins[rank], begins[rank + 1] - begins[rank]);
    if (text.front() == '-') throw InputError("rank " + std::to_string(rank) + ": " + text.substr(1));
    texts.push_back(text.substr(1));
  }
  return texts;
}

std::vector<std::uint32_t> number_nodes(std::span<const int> lowest_rank_on_node) {
  std::vector<std::uint32_t> numbers(lowest_rank_on_node.size());
  std::uint32_t nodes = 0;
  for (std::size_t rank = 0; rank < numbers.size(); ++rank) {
    const auto lowest = static_cast<std::size_t>(lowest_rank_on_node[rank]);
    assert(lowest <= rank);
    numbers[rank] = lowest == rank ? nodes++ : numbers[lowest];
  }
  return numbers;
}

DetectedMachine find_machine(const Link &link, const MachineSources &sources) {
  const std::vector<int> lowest = link.gather(link.node());
  const std::string &topology = sources.topology_file;
  const std::vector<std::string> texts =
      gather_made(link, link.node() == link.rank(), [&] { return text_of_node(sources); }, sources.problem);
  const std::vector<std::string> places =
      gather_made(link, link.rank() == 0 && !topology.empty(), [&] { return read_text(topology); });
  const std::vector<std::string> hosts = gather_texts(link, sources.host.empty() ? link.host() : sources.host, "");
  std::vector<NodeDescription> nodes;
  DetectedMachine found;
  for (std::size_t rank = 0; rank < lowest.size(); ++rank) {
    if (lowest[rank] != static_cast<int>(rank)) continue;
    nodes.push_back(parse_node(texts[rank], text_name(sources)));
    found.hosts.push_back(hosts[rank]);
  }
  JoinedNodes joined = join_nodes(std::move(nodes));

  Machine &machine = found.machine;
  machine.node_of_rank = number_nodes(lowest);
  machine.distance_to_target.assign(found.hosts.size(), 1);
  std::string distances_known = "distances by " + (topology.empty() ? "node" : topology);
  if (!topology.empty()) {
    machine.distances = distances_by_places(places[0], topology, machine.node_of_rank);
  } else if (sources.distances) {
    machine.distances = sources.distances;
    distances_known = sources.distances_known;
  } else {
    machine.distances = distances_by_node();
  }
  machine.network = joined.network;
  machine.shared_memory = typical_shared_memory;
  machine.target = sources.reads_only ? joined.target.read : joined.target.write;
  machine.target_read = joined.target.read;
  machine.tiers = std::move(joined.tiers);
  machine.room_bytes = std::move(joined.room_bytes);
  found.media = std::move(joined.media[machine.node_of_rank[static_cast<std::size_t>(link.rank())]]);
  found.lines.push_back("target " + std::filesystem::absolute(sources.target_folder).lexically_normal().string() +
                        ": " + format_rate(machine.target.bytes_per_second) + ", " + joined.target.text);
  found.lines.insert(found.lines.end(), joined.lines.begin(), joined.lines.end());
  if (found.hosts.size() > 1) found.lines.push_back(std::move(distances_known));
  found.lines.insert(found.lines.end(), sources.lines.begin(), sources.lines.end());
  return found;
}

}  // namespace outcrop::aggregate
