// The instructions of a plan, as the executor sees them. Python's plan/actions.py is the same list with its meaning
// spelled out; plan/validate.py proves a list legal before it comes here.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// Which arrays on disk, of all fields at once: generation g, generation g + 1, what no pass changes, and what a pass keeps
/// for itself.
enum class Array : std::uint8_t {
  source,
  target,
  statics,
  other,  ///< as large as a grid, for levels of the other parity than the last
  faces   ///< for each plane the rows between two blocks, first those of even levels, then those of odd ones
};

/// What follows is about a block whose slots hold `frame` of their planes, plane z in slot (z + shift) mod ring; `own` are the
/// cells whose checksums it accounts for.
struct BlockAction {
  Cut frame;
  Own own;
  long shift = 0;
};

/// Move cells of planes z0 <= z < z1 in the rings of `level` from where the former frame has them to where this one does.
struct CarryAction {
  long z0, z1;
  Cut cut;
  long level;
};

/// Start reading cells of planes z0 <= z < z1 into the rings of `level`: source into those of values before the first step;
/// what a pass keeps for itself into first copies (even) or second copies (odd).
struct ReadAction {
  long z0, z1;
  Cut cut;
  Array array;
  long level;
};

/// Copy what is rim of the cells `cut` of planes z0 <= z < z1 from first to second copies.
/// The checksums of `own` cells are taken with it.
struct CopyAction {
  long z0, z1;
  Cut cut, own;
};

/// Update levels 1 .. levels of the slab zeta0 <= zeta < zeta1 as far as `region` goes.
struct UpdateAction {
  long zeta0, zeta1, levels;
  Region region;
};

/// Start writing cells of planes z0 <= z < z1 from the rings of `level`.
struct WriteAction {
  long z0, z1;
  Cut cut;
  Array array;
  long level;
};

/// Wait for all transfers and flush the target to its device.
struct CommitAction {};

using Action = std::variant<BlockAction, CarryAction, ReadAction, CopyAction, UpdateAction, WriteAction, CommitAction>;
using Actions = std::vector<Action>;

}  // namespace outcrop
