// What placement knows of a machine: its ranks on nodes, network, tiers, and where files go. It is the same on all ranks.
//
//     first rank of each node: machine file, or what it has found ─► what cannot be used here ─┐
//     rank 0: what is assumed of the target                                                    ├─► texts of all nodes
//     distances: a file of places, or a provider of the caller ────────────────────────────────┘   ─► Machine
//
// A node is described by a text: a machine file, which `outcrop agg machine` writes, or what a node has found out about
// itself. Placement knows no other description.
//
//     [hbm]                      a tier of each node, by its name
//     kind = "hbm"               hbm, dram, cxl, nvm: memory; dax, nvme, ssd, hdd, disk, tmpfs: files; default disk
//     capacity = "16GiB"         the bytes that buffers and stages may take
//     read = "180GB/s"
//     write = "180GB/s"
//     read_latency = 1.5e-7      seconds; write_latency likewise; default 0
//     persistence = "process"    process, reboot, job, permanent; default: that of the kind
//     nodes = "2,3"              memory: the NUMA nodes to which buffers are bound; dram needs none
//     directory = "/local/nvme"  files: the folder of buffers and stages; "nvm" with a directory is files, too
//     origin = "measured"        of the figures; default "declared"
//
//     [target]                   default: the table of kind pfs, or the tier whose directory has the files
//     kind, read, write, read_latency, write_latency, origin; a target of kind pfs is shared by all nodes
//
//     [network]
//     cards = 2                  of a node; default 1
//     card = "12.5GB/s"          of each; this is the default
//     latency = 1e-6             seconds, of a message for each unit of distance; this is the default
//
//     [unusable]                 tiers that cannot be used on this node
//     hbm = "why"
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

/// How long a tier keeps its content; as outcrop.tiers has it.
enum class Persistence : std::uint8_t { process, reboot, job, permanent };

std::string in_words(Persistence persistence);
std::optional<Persistence> persistence_named(std::string_view word);

/// Between nodes, or from a node to a shared target.
struct Network {
  double latency_seconds = 0;                ///< of a message, for each unit of distance
  double card_bytes_per_second = UNLIMITED;  ///< of one network card
  std::uint32_t cards_on_node = 1;
};

/// A place for buffers on a node. Filled and emptied are seen from the buffer, whichever way the file's bytes go.
struct Tier {
  std::string name;
  double latency_seconds = 0;
  double fill_bytes_per_second = UNLIMITED;
  double empty_bytes_per_second = UNLIMITED;
  Persistence persistence = Persistence::process;
  bool holds_files = false;  ///< it is a file system of each node: steps can be staged there
};

/// Where the file is. A target that is not shared is a device of each node, beside its network.
struct Target {
  double latency_seconds = 0;
  double bytes_per_second = UNLIMITED;  ///< of all of it, or of each node's where it is not shared
  bool is_shared = true;
};

/// Memory through which the ranks of a node put their bytes together.
struct SharedMemory {
  double latency_seconds = 0;
  double bytes_per_second = UNLIMITED;
};

/// Fills the distances from a node to every node. The distance of a node to itself is 0.
using Distances = std::function<void(std::size_t node, std::span<double> row)>;

/// Nodes are numbered from 0; each has a rank.
struct Machine {
  std::vector<std::uint32_t> node_of_rank;
  std::vector<double> distance_to_target;  ///< of each node
  Distances distances;                     ///< between nodes
  Network network;
  Target target;
  Target target_read;  ///< the same with its figures for reading, where `target` has those for writing
  SharedMemory shared_memory;
  std::vector<Tier> tiers;
  std::vector<std::uint64_t> room_bytes;  ///< of each tier of node 0, then of node 1, ...; 0 where there is none

  std::size_t nodes() const { return distance_to_target.size(); }
  std::uint64_t room(std::size_t node, std::size_t tier) const { return room_bytes[node * tiers.size() + tier]; }
};

// --- a node, by its text ---------------------------------------------------------------------------------------------

/// A tier of one node.
struct NodeTier {
  Tier tier;
  Medium medium;
  std::uint64_t room_bytes = 0;
  std::string origin;    ///< of the figures
  std::string unusable;  ///< why it holds nothing here; empty where it does
};

struct FileTarget {
  Target write, read;
  std::string text;  ///< its kind or name, and where the figures are from
};

struct NodeDescription {
  std::vector<NodeTier> tiers;  ///< memory first
  std::optional<FileTarget> target;
  Network network;
  std::string network_origin;
};

/// `file` is the name of the text, for messages. Throws InputError.
NodeDescription parse_node(std::string_view text, const std::string &file);

/// The text with what only this node can add, so that all ranks read the same in it: tiers that cannot be used here, and
/// why; where it has no target, that of the tier whose directory has the folder, or what is assumed of the file system
/// there. Throws InputError.
std::string text_of_this_node(const std::string &text, const std::string &file, const std::string &target_folder);

/// All nodes of a machine. Tiers of the same name are one.
struct JoinedNodes {
  std::vector<Tier> tiers;
  std::vector<std::uint64_t> room_bytes;   ///< of each tier of node 0, then of node 1, ...
  std::vector<std::vector<Medium>> media;  ///< of each tier, of each node
  FileTarget target;
  Network network;
  std::vector<std::string> lines;  ///< where figures are from, and what cannot be used
};

/// Figures are those of the first node that has a tier, and of node 0 otherwise. Throws InputError where no node has a
/// tier, or the first no target.
JoinedNodes join_nodes(std::vector<NodeDescription> nodes);

// --- how far nodes are from each other -------------------------------------------------------------------------------

/// Group, switch and port of each rank, by a text of lines `rank: group switch port`; blank lines and what follows a # do
/// not count. Throws InputError, with file and line, for what is no such text, and where a rank is missing.
using RankPlace = std::array<std::string, 3>;
std::vector<RankPlace> parse_rank_places(std::string_view text, const std::string &file);

/// By such a text, between the nodes of `node_of_rank`, as in a dragonfly: 2 links within a switch, 3 within a group, 5
/// between groups. Throws InputError for another number of ranks, and where ranks of a node are apart.
Distances distances_by_places(std::string_view text, const std::string &file,
                              std::span<const std::uint32_t> node_of_rank);

/// 0 within a node, 1 between any two.
Distances distances_by_node();

// --- the machine that the ranks run on -------------------------------------------------------------------------------

/// Where the description of the machine comes from; alike on all ranks but for the first three.
struct MachineSources {
  std::string
      node_text;        ///< of the first rank of a node: a machine file, or what it has found; empty: see find_machine
  std::string host;     ///< of this rank; empty: as the transport has it
  std::string problem;  ///< why this rank has no text: an InputError on all ranks
  std::string machine_file;  ///< its name; empty: none
  std::string target_folder = ".";
  std::string topology_file;       ///< places of ranks; empty: `distances`
  Distances distances;             ///< none: distances_by_node()
  std::string distances_known;     ///< who knows them: "distances by Slurm"
  std::vector<std::string> lines;  ///< what else the caller has found, for DetectedMachine::lines
  bool reads_only = false;
};

struct DetectedMachine {
  Machine machine;
  std::vector<Medium> media;       ///< of each tier, on this rank's node
  std::vector<std::string> hosts;  ///< of each node
  std::vector<std::string> lines;  ///< where figures are from, and what cannot be used
};

/// Collective: the texts of all ranks. A problem at one of them is an InputError on all: "rank 3: problem".
std::vector<std::string> gather_texts(const Link &link, const std::string &mine, const std::string &problem);

/// Collective. Without a text the machine file is read; without a machine file memory is measured for a moment. Throws
/// InputError, on all ranks, where a file cannot be read or is wrong.
DetectedMachine find_machine(const Link &link, const MachineSources &sources);

}  // namespace outcrop::aggregate
