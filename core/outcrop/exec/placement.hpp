// Which thread runs where: from a topology and a number of threads to a node and a processor for each.
//
//     6 threads on nodes of 4 and 2 cores:   node 0: 0 1 2 3    node 1: 4 5      in proportion to the cores,
//     2 threads:                             node 0: 0          node 1: 1        each on a core of its own while there are any
//
// Where there is one node threads are not bound unless that is asked for: on a machine that others use, too, a bound thread
// waits for its core while another one is idle. On several nodes that costs less than memory of the wrong node.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/exec/topology.hpp"

namespace outcrop {

enum class Bind : unsigned char {
  automatic,  ///< where there are several nodes
  cores,      ///< always
  none        ///< never: several nodes are treated as one
};

/// A thread's node, counted among those that have threads, and the system's number of its processor.
struct Place {
  unsigned node = 0, processor = 0;

  bool operator==(const Place &) const = default;
};

struct Placement {
  std::vector<Place> threads{Place{}};    ///< by member of the team; those of a node follow each other
  std::vector<unsigned> node_threads{1};  ///< threads of each node, none of them zero
  std::vector<unsigned> node_indices{0};  ///< the system's number of each
  bool is_bound = false;                  ///< whether threads and memory are bound to their nodes

  unsigned size() const { return static_cast<unsigned>(threads.size()); }
  unsigned nodes() const { return static_cast<unsigned>(node_threads.size()); }
  std::optional<unsigned> processor(unsigned member) const {
    return is_bound ? std::optional(threads[member].processor) : std::nullopt;
  }
};

/// Threads that run wherever the system likes, as on one node.
Placement unbound(unsigned threads);

/// `threads` >= 1 threads over all nodes of a topology, not bound yet.
Placement spread(const Topology &topology, unsigned threads);

/// What to do with `threads` threads here, or on the `synthetic` topology, where that is not empty. Throws InputError when
/// binding is asked for and impossible.
Placement place_threads(unsigned threads, Bind bind, const std::string &synthetic = "");

/// Where the parts begin when `total` is cut in proportion to the weights: one more number than weights, 0 to `total`.
std::vector<std::size_t> cut_in_proportion(std::size_t total, const std::vector<unsigned> &weights);

}  // namespace outcrop
