// On several NUMA nodes each owns a part of every slot of the window: the memory of that part is its own, and its threads
// take the tiles of the rows that lie there first.
//
//     slot of plane z:    | node 0         | node 1         |      in proportion to the threads of the nodes
//     slot of plane z+1:  | node 0         | node 1         |
//                           rows of the frame, whatever it is: what counts is where in its slot a row lies
//
// Memory is placed twice over, because containers often forbid the first: each part is bound to its node, and then its
// pages are touched for the first time by a thread of that node, which is where the system takes them from unasked.
//
// A page has one node, and the window's pages are huge ones (2 MiB), so parts begin at multiples of that. At its edges a part
// then loses or wins up to 1 MiB, which costs less than small pages: these make every access slower, this only some of
// those that miss the caches. Parts smaller than a huge page are not worth it: pages are taken from all nodes in turn,
// and only the tiles stay with their nodes, for their caches' sake.
#pragma once

#include <cstddef>
#include <vector>

#include "outcrop/exec/team.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// Where the rows of each node begin in the frame of the window as it is now: one more row of the grid than nodes, the first
/// and the last being those of the frame.
std::vector<long> first_rows(const Window &window, const std::vector<unsigned> &node_threads);

/// The node that owns a row; rows outside of the frame belong to the nearest.
unsigned owner_of(long row, const std::vector<long> &first_rows);

/// Where diamond_tiles() is to begin, so that nodes do not wait for each other: at every second edge between parts. Each part
/// has one then. One node begins at row 0, whatever the frame.
std::vector<long> rows_to_begin_at(const std::vector<long> &first_rows);

/// A piece of the window, and the node whose memory it is to be in.
struct MemoryPart {
  std::byte *data = nullptr;
  std::size_t size = 0;
  unsigned node = 0;

  bool operator==(const MemoryPart &) const = default;
};

/// The whole window cut into the parts of nodes, in ascending order; empty when parts would be too small.
std::vector<MemoryPart> memory_parts(const Window &window, const std::vector<unsigned> &node_threads);

/// Makes every byte of a window that nobody has touched yet resident, near the threads of the team that will use it.
void place_memory(const Window &window, Team &team);

}  // namespace outcrop
