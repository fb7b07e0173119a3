// Memory of NUMA nodes of one's choice, by calls of the system: high-bandwidth memory and memory behind CXL are such nodes.
//
//     is there enough free? ─► bound, before anything is touched ─► touched ─► do the pages lie there?
//
// The first question comes before all others because the system ends a process that is bound to a full node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace outcrop::aggregate {

/// Takes all pages of memory that nobody has touched, shared or not, from these nodes. Throws InputError where they have
/// not so much, where the system refuses, and where pages lie elsewhere.
void take_on_nodes(std::span<std::byte> memory, std::span<const std::uint32_t> nodes);

/// Why no memory of these nodes can be taken; empty where it can, as taking a page has shown.
std::string why_not_on_nodes(std::span<const std::uint32_t> nodes);

/// "NUMA node 2", "NUMA nodes 2, 3".
std::string name_of_nodes(std::span<const std::uint32_t> nodes);

}  // namespace outcrop::aggregate
