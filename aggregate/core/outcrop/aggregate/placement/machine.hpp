// The description of a machine for placement: its ranks on nodes, network, tiers and target. It is the same on all ranks.
//
//     first rank of each node: its text, with unusable tiers and a target added ─► texts of all nodes ─┐
//     distances: a file of the ranks' places, or a provider of the caller ────────────────────────────┴─► Machine
//
// Each node is described by a text. This is a machine file, which `outcrop agg machine` writes, or a text that the node has
// made from its own hardware. The text has these tables:
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
//     origin = "measured"        where the figures come from; default "declared"
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

/// How long a tier keeps its content. The values are those of outcrop.tiers.
enum class Persistence : std::uint8_t { process, reboot, job, permanent };

std::string in_words(Persistence persistence);
std::optional<Persistence> persistence_named(std::string_view word);

/// The network between nodes, and from a node to a shared target.
struct Network {
  double latency_seconds = 0;                ///< of a message for each unit of distance
  double card_bytes_per_second = UNLIMITED;  ///< of one network card
  std::uint32_t cards_on_node = 1;
};

/// A place for buffers on a node. `fill` is the rate into a buffer and `empty` the rate out of it, for writes and reads.
struct Tier {
  std::string name;
  double latency_seconds = 0;
  double fill_bytes_per_second = UNLIMITED;
  double empty_bytes_per_second = UNLIMITED;
  Persistence persistence = Persistence::process;
  bool holds_files = false;  ///< it is a file system of each node, on which steps can be staged
};

/// The storage of the file. A target that is not shared is a device of each node and is reached without the network.
struct Target {
  double latency_seconds = 0;
  double bytes_per_second = UNLIMITED;  ///< of a shared target as a whole; otherwise of each node's device
  bool is_shared = true;
};

/// The memory in which the ranks of a node merge their bytes.
struct SharedMemory {
  double latency_seconds = 0;
  double bytes_per_second = UNLIMITED;
};

/// Fills the distances from a node to every node. The distance of a node to itself is 0.
using Distances = std::function<void(std::size_t node, std::span<double> row)>;

/// Nodes are numbered from 0. Each has at least one rank.
struct Machine {
  std::vector<std::uint32_t> node_of_rank;
  std::vector<double> distance_to_target;  ///< of each node
  Distances distances;                     ///< between nodes
  Network network;
  Target target;
  Target target_read;  ///< the same target with its figures for reading
  SharedMemory shared_memory;
  std::vector<Tier> tiers;
  std::vector<std::uint64_t> room_bytes;  ///< of each tier of node 0, then of node 1, ...; 0 if a node lacks the tier

  std::size_t nodes() const { return distance_to_target.size(); }
  std::uint64_t room(std::size_t node, std::size_t tier) const { return room_bytes[node * tiers.size() + tier]; }
};

// --- the text of a node ---------------------------------------------------------------------------------------------

/// A tier of one node.
struct NodeTier {
  Tier tier;
  Medium medium;
  std::uint64_t room_bytes = 0;
  std::string origin;    ///< of the figures
  std::string unusable;  ///< why it cannot be used on this node; empty: it can
};

struct FileTarget {
  Target write, read;
  std::string text;  ///< its kind or name, and the origin of the figures
};

struct NodeDescription {
  std::vector<NodeTier> tiers;  ///< memory first
  std::optional<FileTarget> target;
  Network network;
  std::string network_origin;
};

/// `file` is the name of the text in messages. Throws InputError.
NodeDescription parse_node(std::string_view text, const std::string &file);

/// Adds to the text what only this node knows, so that all ranks can read it: tiers that cannot be used here, with the reason.
/// If the text has no target, also adds a target: the tier whose directory contains the folder, or assumed figures for the
/// folder's file system. Throws InputError.
std::string text_of_this_node(const std::string &text, const std::string &file, const std::string &target_folder);

/// All nodes of a machine. Tiers with the same name are one tier.
struct JoinedNodes {
  std::vector<Tier> tiers;
  std::vector<std::uint64_t> room_bytes;   ///< of each tier of node 0, then of node 1, ...
  std::vector<std::vector<Medium>> media;  ///< a row of all tiers for each node
  FileTarget target;
  Network network;
  std::vector<std::string> lines;  ///< the origin of figures, and tiers that cannot be used
};

/// The figures of a tier are those of the first node that has it; the target and the network are those of node 0. Throws
/// InputError if no node has a tier, or if node 0 has no target.
JoinedNodes join_nodes(std::vector<NodeDescription> nodes);

// --- distances between nodes -----------------------------------------------------------------------------------------

/// Group, switch and port of a rank.
using RankPlace = std::array<std::string, 3>;
/// The place of each rank, from a text of lines `rank: group switch port`. Blank lines and comments from # on are ignored.
/// Throws InputError with file and line for an invalid text, and for a missing rank.
std::vector<RankPlace> parse_rank_places(std::string_view text, const std::string &file);

/// The distances between nodes by such a text, as in a dragonfly network: 2 links within a switch, 3 within a group, 5 between
/// groups. Throws InputError if the number of ranks differs, or if ranks of one node have different places.
Distances distances_by_places(std::string_view text, const std::string &file,
                              std::span<const std::uint32_t> node_of_rank);

/// The distance between two different nodes is 1.
Distances distances_by_node();

// --- the machine that the ranks run on -------------------------------------------------------------------------------

/// Where the description of the machine comes from. All ranks give the same except for the first three.
struct MachineSources {
  std::string node_text;     ///< the text of this node, from its first rank; empty: find_machine makes it
  std::string host;          ///< of this rank; empty: the transport's
  std::string problem;       ///< why this rank has no text; all ranks throw it as an InputError
  std::string machine_file;  ///< its name; empty: none
  std::string target_folder = ".";
  std::string topology_file;       ///< the places of ranks; empty: `distances` is used
  Distances distances;             ///< none: distances_by_node()
  std::string distances_known;     ///< the origin of the distances: "distances by Slurm"
  std::vector<std::string> lines;  ///< the caller's lines for DetectedMachine::lines
  bool reads_only = false;
};

struct DetectedMachine {
  Machine machine;
  std::vector<Medium> media;       ///< of each tier on this rank's node
  std::vector<std::string> hosts;  ///< of each node
  std::vector<std::string> lines;  ///< the origin of figures, and tiers that cannot be used
};

/// The number of each rank's node, from 0 on, in the order of their lowest ranks. The argument has the lowest rank of each
/// rank's node.
std::vector<std::uint32_t> number_nodes(std::span<const int> lowest_rank_on_node);

/// Collective: returns the texts of all ranks. If a rank has a problem, all ranks throw an InputError: "rank 3: problem".
std::vector<std::string> gather_texts(const Link &link, const std::string &mine, const std::string &problem);

/// Collective. Without a text it reads the machine file. Without a machine file it measures the node's memory, which takes
/// less than a second. Throws InputError on all ranks if a file cannot be read or is invalid.
DetectedMachine find_machine(const Link &link, const MachineSources &sources);

}  // namespace outcrop::aggregate
