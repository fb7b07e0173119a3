// A small problem for tests of several ranks. This file defines the problem, its parts, and its kernels.
//
// The kernels do not read neighbouring cells along x. Each neighbouring cell has a different weight, so that a wrong
// row changes the result.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/traverse.hpp"

namespace outcrop::ranks {

enum class Side { fixed, mirror, periodic, neighbour };

/// The equation determines the fields. `heat` has one field with two copies. `wave` has a field with a previous value,
/// and a static field that is read at neighbouring cells. `pair` has two stages, and each stage updates one field in
/// place.
enum class Equation { heat, wave, pair };

struct Problem {
  Equation equation = Equation::heat;
  long nz = 9, ny = 30, nx = 5, pitch_bytes = 64;
  long radius_z = 1, radius_y = 1;
  Side z = Side::fixed, y_low = Side::fixed, y_high = Side::fixed;
  std::vector<long> passes{4};  // levels of each pass
  long slab = 2;
  Tiling tiling{};
  std::vector<unsigned> node_threads{2};
  long group = 1;      // the frame begins at a multiple of this number of rows
  bool split = false;  // split tiling instead of deep halos
  std::string backend = "memory", folder = "";

  long max_levels() const { return *std::ranges::max_element(passes); }
  long stages() const { return equation == Equation::pair ? 2 : 1; }
};

/// The rows of a rank, and the kind of boundary at each of the two sides of the rows.
struct Part {
  long first = 0, rows = 0;
  Side low = Side::fixed, high = Side::fixed;

  bool has_neighbours() const { return low == Side::neighbour || high == Side::neighbour; }
};

/// Divides the rows at `cuts`.
inline std::vector<Part> parts_of(const Problem &problem, const std::vector<long> &cuts) {
  std::vector<long> edges{0};
  edges.insert(edges.end(), cuts.begin(), cuts.end());
  edges.push_back(problem.ny);
  const bool ring = problem.y_low == Side::periodic && !cuts.empty();
  std::vector<Part> parts;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i)
    parts.push_back({edges[i], edges[i + 1] - edges[i], i == 0 && !ring ? problem.y_low : Side::neighbour,
                     i + 2 == edges.size() && !ring ? problem.y_high : Side::neighbour});
  return parts;
}

/// The data that kernels need in addition to the arguments of a call.
struct KernelData {
  long radius_z = 1, radius_y = 1;
  Side low = Side::fixed, high = Side::fixed;
  std::atomic<long> faults{0}, calls{0};
  long event_at = -1;  // number of the kernel call in which the event begins
  std::function<void()> event;
};

inline KernelData &data_of(const outcrop_block *block) { return **static_cast<KernelData *const *>(block->scalars); }

/// Returns the row that holds the values of row y. Counts a fault if row y is beyond a fixed boundary. Also counts a
/// fault if row y is beyond the neighbour's rows in the frame.
inline long row_of(KernelData &data, const outcrop_block *block, long y) {
  if (y >= 0 && y < block->ny) return y;
  const Side side = y < 0 ? data.low : data.high;
  if (side == Side::periodic) return y < 0 ? y + block->ny : y - block->ny;
  if (side == Side::mirror) return y < 0 ? -1 - y : 2 * block->ny - 1 - y;
  ++data.faults;
  return std::clamp(y, 0L, block->ny - 1);
}

/// Returns the weighted sum of the values in all neighbouring cells of a cell. If `factor` >= 0, each value in the sum
/// is first multiplied by the value of operand number `factor`.
inline float sum_around(KernelData &data, const outcrop_block *block, std::size_t operand, long factor, long k, long y,
                        long x) {
  float sum = 0;
  for (long dz = -data.radius_z; dz <= data.radius_z; ++dz)
    for (long dy = -data.radius_y; dy <= data.radius_y; ++dy) {
      const long place = row_of(data, block, y + dy) * block->pitch + x;
      const float weight = 0.5F / static_cast<float>(9 + (dz + 3) * 7 + dy);
      float value = static_cast<const float *>(block->source[operand][k + dz])[place];
      if (factor >= 0) value *= static_cast<const float *>(block->source[factor][k + dz])[place];
      sum += weight * value;
    }
  return sum;
}

template <typename Cell>
void for_each_cell(const outcrop_block *block, const Cell &cell) {
  KernelData &data = data_of(block);
  if (block->y0 < 0 || block->y1 > block->ny) ++data.faults;
  if (data.calls++ == data.event_at) data.event();
  for (long k = 0; k < block->planes; ++k)
    for (long y = block->y0; y < block->y1; ++y)
      for (long x = block->x0; x < block->x1; ++x)
        static_cast<float *>(block->target[0][k])[y * block->pitch + x] = x < block->nx ? cell(data, k, y, x) : 0;
}

inline float at(const outcrop_block *block, std::size_t operand, long k, long y, long x) {
  return static_cast<const float *>(block->source[operand][k])[y * block->pitch + x];
}

inline void heat_kernel(const outcrop_block *block) {
  for_each_cell(block,
                [&](KernelData &data, long k, long y, long x) { return sum_around(data, block, 0, -1, k, y, x); });
}
inline void wave_kernel(const outcrop_block *block) {
  for_each_cell(block, [&](KernelData &data, long k, long y, long x) {
    const float change = 0.1F * sum_around(data, block, 0, 2, k, y, x);
    return 1.5F * at(block, 0, k, y, x) - 0.6F * at(block, 1, k, y, x) + change;
  });
}
inline void pair_kernel(const outcrop_block *block) {
  for_each_cell(block, [&](KernelData &data, long k, long y, long x) {
    return 0.9F * at(block, 0, k, y, x) + sum_around(data, block, 1, -1, k, y, x);
  });
}

inline Fields fields_of(Equation equation) {
  if (equation == Equation::heat) return Fields({Field{.two_copies = true, .flips = true}});
  if (equation == Equation::pair) return Fields({Field{}, Field{}});
  return Fields({Field{.two_copies = true, .has_previous = true, .flips = true}, Field{.read_only = true}});
}

inline Stages stages_of(Equation equation) {
  if (equation == Equation::heat) return {{{heat_kernel, {0}, {1}}, {heat_kernel, {1}, {0}}}, {}};
  if (equation == Equation::wave) return {{{wave_kernel, {0, 2, 1}, {2}}, {wave_kernel, {2, 0, 1}, {0}}}, {}};
  const StageCall first{pair_kernel, {0, 1}, {0}}, second{pair_kernel, {1, 0}, {1}};
  return {{first, second, first, second}, {}};
}

inline Grid grid_of(const Problem &problem, const Part &part) {
  const auto rim = [&](Side side, long radius) {
    return side == Side::fixed ? radius : side == Side::neighbour ? -UpdateRegion::far : 0;
  };
  Grid grid;
  grid.nz = problem.nz, grid.ny = part.rows, grid.nx = problem.nx;
  grid.radius_z = problem.radius_z, grid.radius_y = problem.radius_y;
  grid.rim_z_low = grid.rim_z_high = rim(problem.z, problem.radius_z);
  grid.rim_y_low = rim(part.low, problem.radius_y), grid.rim_y_high = rim(part.high, problem.radius_y);
  grid.periodic_z = problem.z == Side::periodic, grid.periodic_y = part.low == Side::periodic;
  grid.skew_z = std::max(1L, problem.radius_z * (grid.periodic_z ? 2 : 1));
  grid.skew_y = std::max(1L, problem.radius_y * (grid.periodic_y ? 2 : 1));
  grid.statics_z = problem.equation == Equation::wave ? grid.skew_z : 0;
  grid.item_bytes = sizeof(float);
  grid.pitch_bytes = static_cast<std::size_t>(problem.pitch_bytes);
  // on disk, rows of zeros follow the rows of the last part, as if this part had fewer rows than the other parts
  const long zero_rows = part.low == Side::neighbour && part.high != Side::neighbour ? 3 : 0;
  grid.plane_bytes = static_cast<std::size_t>(part.rows + zero_rows) * grid.pitch_bytes;
  grid.record_bytes = round_up(grid.plane_bytes + 8, AlignedMemory::page_bytes);
  return grid;
}

/// Returns the frame that a rank needs in a pass of `levels` levels.
inline Rectangle frame_of(const Problem &problem, const Part &part, long levels) {
  const long halo = problem.radius_y * levels, group = problem.group;
  if (problem.split && part.has_neighbours())
    return {0, part.rows + (part.high == Side::neighbour ? halo + problem.radius_y : 0), 0, problem.pitch_bytes / 4};
  const long low = part.low == Side::neighbour ? (halo + group - 1) / group * group : 0;
  const long high = part.high == Side::neighbour ? halo : 0;
  return {-low, part.rows + high, 0, problem.pitch_bytes / 4};
}

}  // namespace outcrop::ranks
