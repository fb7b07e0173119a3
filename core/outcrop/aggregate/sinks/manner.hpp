// In which manner ranks open a file together.
//
//     rank 0   shared file, ample room      ─┐
//     rank 1   shared file, ample room      ─┼─►  all: shared file, no ample room
//     rank 2   shared file, no ample room   ─┘
//
// Ranks that write one file must not do so around the page cache and through it at the same time.
#pragma once

#include <cstdint>

#include "outcrop/aggregate/transport/link.hpp"

namespace outcrop::aggregate {

struct Manner {
  bool staged = false, node_files = false;
  bool ample_room = false;  // in the page cache, for what a node moves in a step
};

/// Of this node at this moment.
bool has_ample_room(std::uint64_t node_bytes);

/// Collective. There is ample room where all have it. Throws InputError where ranks were asked for different manners.
Manner agree_on_manner(const Link &link, const Manner &mine);

}  // namespace outcrop::aggregate
