// This file describes a machine for placement: its nodes and their ranks, its network, its tiers and its target. All
// ranks have the same description of the machine.
//
//     first rank of each node: its text, with unusable tiers and a target added ─► texts of all nodes ─┐
//     distances: a file of the ranks' places, or a provider of the caller ────────────────────────────┴─► Machine
//
// A text describes each node. The text of a node is the content of a machine file. The command `outcrop agg machine`
// writes machine files. Without a machine file, each node detects its own tiers and makes the text from them. The text
// has these tables:
//
//     [hbm]                      a tier of each node; its name
//     kind = "hbm"               hbm, dram, cxl, nvm: memory; dax, nvme, ssd, hdd, disk, tmpfs: files; default disk
//     capacity = "16GiB"         the bytes that buffers and stages may use
//     read = "180GB/s"
//     write = "180GB/s"
//     read_latency = 1.5e-7      seconds; write_latency likewise; default 0
//     persistence = "process"    process, reboot, job, permanent; default: that of the kind
//     nodes = "2,3"              memory: the NUMA nodes to which buffers are bound; dram needs none
//     directory = "/local/nvme"  files: the folder of buffers and stages; an "nvm" with a directory is for files, too
//     origin = "measured"        where the sizes and rates come from; default "declared"
//
//     [target]                   default: the table of kind pfs, or the tier whose directory contains the target folder
//     kind, read, write, read_latency, write_latency, origin    as above; all nodes share a target of kind pfs
//
//     [network]
//     cards = 2                  network cards of a node; default 1
//     card = "12.5GB/s"          the bandwidth of each card; this is the default
//     latency = 1e-6             seconds of a message for each unit of distance; this is the default
//
//     [unusable]                 tiers that cannot be used on this node
//     hbm = "the reason"
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/aggregate/transport/transport.hpp"

namespace outcrop::aggregate {

inline constexpr double UNLIMITED = std::numeric_limits<double>::infinity();

/// The time for which a tier keeps its content: until the process ends, until the system reboots, until the job ends,
/// or forever. outcrop.tiers.Persistence has the same values.
enum class Persistence : std::uint8_t { process, reboot, job, permanent };

std::string in_words(Persistence persistence);
std::optional<Persistence> persistence_named(std::string_view word);

/// The network between the nodes, and between the nodes and a shared target.
struct Network {
  double latency_seconds = 0;                ///< the latency of a message for each unit of distance
  double card_bytes_per_second = UNLIMITED;  ///< the bandwidth of one network card
  std::uint32_t cards_on_node = 1;
};

/// A tier that can hold the buffers of a node. Buffers on this tier are filled at the rate `fill_bytes_per_second`, and
/// emptied at the rate `empty_bytes_per_second`. The two rates are the same for writes and for reads.
struct Tier {
  std::string name;
  double latency_seconds = 0;
  double fill_bytes_per_second = UNLIMITED;
  double empty_bytes_per_second = UNLIMITED;
  Persistence persistence = Persistence::process;
  /// true if the tier is a file system of one node; steps can be staged on such a tier
  bool holds_files = false;
};

/// The storage that holds the file. If the target is shared, nodes write to the target through the network. If the
/// target is not shared, each node writes to its own storage device.
struct Target {
  double latency_seconds = 0;
  /// the rate of the whole target if it is shared; otherwise the rate of each node's device
  double bytes_per_second = UNLIMITED;
  bool is_shared = true;
};

/// The memory in which the ranks of a node merge their bytes.
struct SharedMemory {
  double latency_seconds = 0;
  double bytes_per_second = UNLIMITED;
};

/// A function that fills `row` with the distances from the node `node` to all nodes. The distance of a node to itself
/// is 0.
using Distances = std::function<void(std::size_t node, std::span<double> row)>;

/// The machine on which aggregators are placed. The nodes have the numbers 0, 1, 2, ... Each node has at least one
/// rank.
struct Machine {
  std::vector<std::uint32_t> node_of_rank;
  std::vector<double> distance_to_target;  ///< the distance of each node to the target
  Distances distances;                     ///< a function that gives the distances between nodes
  Network network;
  Target target;
  Target target_read;  ///< the target with its latency and its rate for reading
  SharedMemory shared_memory;
  std::vector<Tier> tiers;
  /// The bytes that buffers and stages may use. The list has first all tiers of node 0, then all tiers of node 1, and
  /// so on. If a node lacks a tier, the value for this tier is 0.
  std::vector<std::uint64_t> room_bytes;

  std::size_t nodes() const { return distance_to_target.size(); }
  std::uint64_t room(std::size_t node, std::size_t tier) const { return room_bytes[node * tiers.size() + tier]; }
};

// --- the text of a node ---------------------------------------------------------------------------------------------

/// A tier of one node.
struct NodeTier {
  Tier tier;
  Medium medium;
  std::uint64_t room_bytes = 0;
  std::string origin;    ///< where the rates and the size of the tier come from
  std::string unusable;  ///< the reason why the tier cannot be used on this node; empty if it can be used
};

struct FileTarget {
  Target write, read;
  std::string text;  ///< the target's kind or name, and where its rates come from
};

struct NodeDescription {
  std::vector<NodeTier> tiers;  ///< tiers in memory come first
  std::optional<FileTarget> target;
  Network network;
  std::string network_origin;
};

/// Parses the text of a node. Error messages use `file` as the name of the parsed text. Throws InputError if `text` is
/// invalid.
NodeDescription parse_node(std::string_view text, const std::string &file);

/// Returns `text`, the text of this node, with two additions. The first addition is a table of unusable tiers with the
/// reasons. If the text has no target, the second addition is a target for `target_folder`. If `target_folder` is in
/// the directory of a tier, the target has the rates of this tier. Otherwise the target has assumed rates for the file
/// system of `target_folder`. Throws InputError if `text` is invalid.
std::string text_of_this_node(const std::string &text, const std::string &file, const std::string &target_folder);

/// A description of all nodes. Tiers of several nodes with the same name count as one tier.
struct JoinedNodes {
  std::vector<Tier> tiers;
  std::vector<std::uint64_t> room_bytes;   ///< the same values, in the same order, as Machine::room_bytes
  std::vector<std::vector<Medium>> media;  ///< indices: node, tier
  FileTarget target;
  Network network;
  /// lines of text for users: the origins of sizes and rates, and tiers that cannot be used
  std::vector<std::string> lines;
};

/// Joins the descriptions of all nodes. If tiers of several nodes have the same name, the result has the rates from the
/// first of these nodes. The description of the target and the network is that of node 0. Throws InputError if no node
/// has a tier, or if node 0 has no target.
JoinedNodes join_nodes(std::vector<NodeDescription> nodes);

// --- distances between nodes -----------------------------------------------------------------------------------------

/// The place of a rank: the group, switch and port to which the rank's node is connected.
using RankPlace = std::array<std::string, 3>;
/// Returns the place of each rank. The text has one line for each rank: `rank: group switch port`. Blank lines, and
/// comments that begin with #, are ignored. If the text is invalid or lacks a rank, throws an InputError that names the
/// file and the line.
std::vector<RankPlace> parse_rank_places(std::string_view text, const std::string &file);

/// Returns the distances between nodes. `text` gives the places of the ranks, in the form that parse_rank_places()
/// reads. The distance between two nodes is the number of links between them in a dragonfly network: 2 within a switch,
/// 3 within a group, 5 between groups. Throws InputError if `text` and `node_of_rank` have different numbers of ranks,
/// or if ranks of one node have different places.
Distances distances_by_places(std::string_view text, const std::string &file,
                              std::span<const std::uint32_t> node_of_rank);

/// Returns distances with the value 1 between any two different nodes.
Distances distances_by_node();

// --- the machine that the ranks run on -------------------------------------------------------------------------------

/// The data from which find_machine() describes a machine. Only the first three members of this struct may differ
/// between ranks.
struct MachineSources {
  /// The text that describes this node. Only the first rank of each node needs to give the text. If `node_text` is
  /// empty, find_machine() makes the text.
  std::string node_text;
  std::string host;          ///< the name of this rank's host; if empty, the transport reports the name
  std::string problem;       ///< an error of this rank, which all ranks throw as an InputError; empty if there is none
  std::string machine_file;  ///< the name of the machine file; empty if there is none
  std::string target_folder = ".";
  std::string topology_file;  ///< the name of a file with the places of ranks; if empty, `distances` is used
  /// a function that gives the distances between nodes; if it is empty, distances_by_node() is used
  Distances distances;
  std::string distances_known;     ///< a text with the origin of the distances, such as "distances by Slurm"
  std::vector<std::string> lines;  ///< further lines of text for DetectedMachine::lines
  bool reads_only = false;
};

struct DetectedMachine {
  Machine machine;
  std::vector<Medium> media;       ///< the medium of each tier on this rank's node
  std::vector<std::string> hosts;  ///< the name of each node's host
  /// lines of text for users: the origins of sizes and rates, and tiers that cannot be used
  std::vector<std::string> lines;
};

/// Gives the nodes the numbers 0, 1, 2 and so on, in the order of their lowest ranks. Returns one element for each
/// rank: the number of the rank's node. Element i of `lowest_rank_on_node` is the lowest rank on the node of rank i.
std::vector<std::uint32_t> number_nodes(std::span<const int> lowest_rank_on_node);

/// All ranks must call this function. Returns the texts of all ranks. If a rank has a problem, all ranks throw an
/// InputError such as "rank 3: problem".
std::vector<std::string> gather_texts(const Link &link, const std::string &mine, const std::string &problem);

/// All ranks must call this function. Describes the machine on which the ranks run. If `sources` has no text for a
/// node, the function reads the text from the machine file. If there is no machine file either, the function measures
/// the memory of the node, which takes less than a second. Throws InputError on all ranks if a file cannot be read or
/// is invalid.
DetectedMachine find_machine(const Link &link, const MachineSources &sources);

}  // namespace outcrop::aggregate
