#include "outcrop/aggregate/placement/machine_here.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "outcrop/aggregate/node/available_memory.hpp"
#include "outcrop/aggregate/placement/machine_file.hpp"
#include "outcrop/aggregate/placement/rank_places.hpp"
#include "outcrop/aggregate/text/format.hpp"
#include "outcrop/aggregate/text/listing.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t copied_bytes = std::size_t{32} << 20;
constexpr int copies = 3;
constexpr double memory_latency_seconds = 1e-7;
// Of ranks that put their bytes together: as outcrop.aggregate.machine.SharedMemory has it.
constexpr double shared_memory_seconds = 1e-6, shared_memory_bytes_per_second = 10e9;

// Of the fastest of a few copies, each of which is larger than most caches.
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

std::string name_of(const Settings &settings) {
  return settings.machine.value.empty() ? "this node" : settings.machine.value;
}

std::string text_of_node(const Settings &settings) {
  const std::string text = settings.machine.value.empty() ? measured_memory() : read_text(settings.machine.value);
  return text_of_this_node(text, name_of(settings), settings.target.value);
}

// The texts of those who have one, by rank. What goes wrong at one rank is thrown on all.
std::vector<std::string> gather_texts(const Link &link, const std::string &mine, const std::string &problem) {
  const std::string told = problem.empty() ? std::string("+").append(mine) : std::string("-").append(problem);
  std::vector<std::size_t> begins;
  const std::vector<char> all = link.gather_lists(std::span<const char>(told), begins);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank + 1 < begins.size(); ++rank) {
    const std::string_view text(all.data() + begins[rank], begins[rank + 1] - begins[rank]);
    if (text.front() == '-') throw InputError("rank " + std::to_string(rank) + ": " + std::string(text.substr(1)));
    texts.emplace_back(text.substr(1));
  }
  return texts;
}

template <typename Make>
std::vector<std::string> gather_made(const Link &link, bool makes, Make make) {
  std::string mine, problem;
  try {
    if (makes) mine = make();
  } catch (const std::exception &error) {
    problem = error.what();
  }
  return gather_texts(link, mine, problem);
}

struct Host {
  char name[sizeof(outcrop_transport::host)];
};

}  // namespace

MachineHere find_machine(const Link &link, const Settings &settings) {
  const std::vector<int> lowest = link.gather(link.node());
  std::map<int, std::uint32_t> numbers;
  for (const int node : lowest) numbers.emplace(node, 0);
  std::uint32_t next = 0;
  for (auto &[node, number] : numbers) number = next++;

  const std::vector<std::string> texts =
      gather_made(link, link.node() == link.rank(), [&] { return text_of_node(settings); });
  const std::vector<std::string> places = gather_made(link, link.rank() == 0 && !settings.topology.value.empty(),
                                                      [&] { return read_text(settings.topology.value); });
  Host own{};
  link.host().copy(own.name, sizeof own.name - 1);
  const std::vector<Host> hosts = link.gather(own);
  std::vector<NodeDescription> nodes;
  MachineHere here;
  for (const auto &[node, number] : numbers) {
    nodes.push_back(parse_node(texts[static_cast<std::size_t>(node)], name_of(settings)));
    here.hosts.emplace_back(hosts[static_cast<std::size_t>(node)].name);
  }
  Nodes joined = join_nodes(std::move(nodes));

  Machine &machine = here.machine;
  for (const int node : lowest) machine.node_of_rank.push_back(numbers[node]);
  machine.distance_to_target.assign(numbers.size(), 1);
  machine.distances = settings.topology.value.empty()
                          ? distances_by_node()
                          : distances_by_places(places[0], settings.topology.value, machine.node_of_rank);
  machine.network = joined.network;
  machine.shared_memory = {shared_memory_seconds, shared_memory_bytes_per_second};
  machine.target = settings.reads_only.value ? joined.target.read : joined.target.write;
  machine.target_read = joined.target.read;
  machine.tiers = std::move(joined.tiers);
  machine.room_bytes = std::move(joined.room_bytes);
  here.media = std::move(joined.media[numbers[link.node()]]);
  here.lines.push_back("target " + std::filesystem::absolute(settings.target.value).lexically_normal().string() + ": " +
                       format_rate(machine.target.bytes_per_second) + ", " + joined.target.text);
  here.lines.insert(here.lines.end(), joined.lines.begin(), joined.lines.end());
  if (numbers.size() > 1)
    here.lines.push_back("distances by " + (settings.topology.value.empty() ? "node" : settings.topology.value));
  return here;
}

}  // namespace outcrop::aggregate
