// What it costs to gather a domain at an aggregator, and to bring it from there to its target.
//
//     ranks i ────messages────► buffer on a tier of A's node ────────► target T
//        max(Lnet, Lmem) d(i,A) + w_i / min(Bnet, Bmem)        Lnet d(A,T) + W / Bnet
//     ranks of A's own node ──► copied:  Lmem + w_A / Bmem
//
// The model of Tessier, Gressier and Vishwanath for MA-TAPIOCA: latency L times distance d, bytes w over bandwidth B,
// all added up. Writing and reading cost the same with the bandwidths of the other direction. Added to it is what their
// machines had not; each addition is nothing where there is one card, one rank a node, one aggregator and one round:
//
//   crowd     aggregators at work at once share what they meet at: the cards and tiers of a node, the target. One
//             drives one card at most, so it has min(1, cards / aggregators on the node) of a card.
//   node      ranks of A's node copy into its buffer, one latency of the memory each. Ranks of another node may put
//             their bytes together first, through shared memory: then one message instead of one for each of them.
//   rounds    a domain is brought through buffers, R of them. With two, filling one overlaps emptying the other:
//             (fill + empty) / R + max(fill, empty) (R - 1) / R.
//   target    has a bandwidth of its own, for all who write to it, or in each node where the target is there.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace outcrop::aggregate {

inline constexpr double UNLIMITED = std::numeric_limits<double>::infinity();

/// How long what a tier holds lasts; as outcrop.tiers has it.
enum class Persistence : std::uint8_t { process, reboot, job, permanent };

/// What goes between nodes, or from a node to a shared target.
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

/// Where the file is. One that is not shared is a device of each node, beside its network.
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

/// What reaches an aggregator for its domain.
struct Gathering {
  double distance = 0;  ///< of all messages from other nodes together
  std::uint64_t remote_bytes = 0;
  std::uint64_t local_bytes = 0;  ///< of the ranks of its node
  std::uint32_t local_ranks = 1;  ///< that copy
  double seconds_merge = 0;       ///< in the slowest of the other nodes, before its message can go
};

/// How many aggregators are at work at the same time.
struct Crowd {
  std::uint32_t on_node = 1;
  std::uint32_t in_all = 1;
};

/// The rounds of a domain, and the buffers they take turns in.
struct Turns {
  std::uint64_t count = 1;
  std::uint32_t buffers = 2;
};

/// A prediction by its terms, in seconds.
struct Cost {
  double merge = 0;     ///< in the nodes that send
  double messages = 0;  ///< latency
  double transfer = 0;  ///< bytes of other nodes
  double copy = 0;      ///< bytes of the own node
  double target_latency = 0;
  double target_transfer = 0;
  double hidden = 0;  ///< what overlap saves of the sum of the others

  double fill() const { return merge + messages + transfer + copy; }
  double empty() const { return target_latency + target_transfer; }
  double total() const { return fill() + empty() - hidden; }
};

/// What is given once for a node: everything a cost depends on but the gathering and the tier.
struct Surroundings {
  Network network;
  Target target;
  double distance_to_target = 1;
  Crowd crowd;
};

Cost cost(const Gathering &gathering, const Tier &tier, const Surroundings &around, const Turns &turns = {});

/// Seconds in which `ranks` of one node put `bytes` together; none where one rank has them all.
double seconds_merge(const SharedMemory &memory, std::uint32_t ranks, std::uint64_t bytes);

}  // namespace outcrop::aggregate
