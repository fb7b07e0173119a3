// What a node is like, in a text: its tiers for buffers and stages, where files go, its network. The file that
// `outcrop agg machine` writes, one that people write, or what a node has found out about itself: placement knows no other.
//
//     [hbm]                      a tier of each node, by its name
//     kind = "hbm"               hbm, dram, cxl, nvm: memory; dax, nvme, ssd, hdd, disk, tmpfs: files; disk when left out
//     capacity = "16GiB"         what buffers and stages may take of it
//     read = "180GB/s"
//     write = "180GB/s"
//     read_latency = 1.5e-7      seconds; so for write_latency; 0 when left out
//     persistence = "process"    process, reboot, job, permanent; that of the kind when left out
//     nodes = "2,3"              memory: its NUMA nodes, to which buffers are bound; dram needs none
//     directory = "/local/nvme"  files: where buffers and stages are; "nvm" with a directory is files, too
//     origin = "measured"        of the figures; "declared" when left out
//
//     [target]                   or, where there is none, the table of kind pfs, or the tier whose directory has the files
//     kind, read, write, read_latency, write_latency, origin; a target of kind pfs is shared by all nodes
//
//     [network]
//     cards = 2                  of a node; 1 when left out
//     card = "12.5GB/s"          of each; so when left out
//     latency = 1e-6             seconds, of a message for each unit of distance; so when left out
//
//     [unusable]                 tiers that are not to be had on this node
//     hbm = "why"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outcrop/aggregate/node/medium.hpp"
#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

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

/// All that the nodes of a machine are, as placement takes it: tiers of the same name are one.
struct Nodes {
  std::vector<Tier> tiers;
  std::vector<std::uint64_t> room_bytes;   ///< of each tier of node 0, then of node 1, ...
  std::vector<std::vector<Medium>> media;  ///< of each tier, of each node
  FileTarget target;
  Network network;
  std::vector<std::string> lines;  ///< where figures are from, and what cannot be used
};

/// Figures are those of the first node that has a tier, and of node 0 otherwise. Throws InputError where no node has a
/// tier, or the first no target.
Nodes join_nodes(std::vector<NodeDescription> nodes);

}  // namespace outcrop::aggregate
