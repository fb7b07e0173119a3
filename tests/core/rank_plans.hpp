// Passes for tests of several ranks. Passes of one rank and passes with deep halos have the same actions as in
// plan/schemes/wavefront.py. With split tiling, no row is updated twice. Near the cut to the neighbour with higher
// rows, each level ends some rows before the end of the level below it. The remaining rows form a triangle, which is
// updated one slab later:
//
//     level L            /  trapezoid of rank j  \ tri- /   trapezoid of rank j + 1
//       :              /                          \ an /
//       1            /                             \gl/
//       0   |______/________________________________\/___________________
//           row 0                                   rows
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "outcrop/exec/executor.hpp"
#include "rank_problems.hpp"

namespace outcrop::ranks {

inline std::vector<RingSpec> rings_of(const Problem &problem, const Part &part) {
  const Grid grid = grid_of(problem, part);
  const long skew = grid.skew_z, slab = problem.slab;
  long first = 0, second = 0, statics = 0;
  for (const long levels : problem.passes) {
    const long reach = skew * levels, all = 2 * slab + skew * (levels + 2);
    const bool is_heat = problem.equation == Equation::heat, even = levels % 2 == 0;
    first = std::max(first, !is_heat ? all : 2 * slab + reach + (even ? 0 : skew));
    second = std::max(second, !is_heat ? all : slab + (even ? reach : std::max(slab + reach - skew, problem.radius_z)));
    statics = std::max(
        statics, 2 * slab + std::max(skew * (levels - 1) + 2 * grid.statics_z, grid.first_plane() + grid.statics_z));
    if (problem.split && part.has_neighbours()) {  // planes are written two slabs later
      first = second = std::max(first, 4 * slab + skew * (levels + 1));
      statics = std::max(statics, 3 * slab + skew * (levels - 1) + 2 * grid.statics_z);
    }
  }
  const Rectangle frame = frame_of(problem, part, problem.max_levels());
  const auto cells = static_cast<std::size_t>(frame.rows() * frame.columns());
  const std::size_t slot = round_up(cells * grid.item_bytes + grid.tail_bytes(), AlignedMemory::page_bytes);
  std::vector<RingSpec> rings;
  for (const long planes : problem.equation == Equation::wave   ? std::vector<long>{first, statics, second}
                           : problem.equation == Equation::heat ? std::vector<long>{first, second}
                                                                : std::vector<long>{first, first})
    rings.push_back({std::min(planes, grid.nz), slot, false});
  return rings;
}

/// Returns the range of planes from `done` to `end`, and sets `done` to the end of the range.
inline std::pair<long, long> advance(const Grid &grid, long &done, long end) {
  const long first = done;
  done = std::max(done, std::min(end, grid.nz));
  return {first, done};
}

/// Makes the actions of a pass with split tiling, for a rank with neighbours.
class SplitPass {
 public:
  SplitPass(const Problem &problem, const Part &part, long levels)
      : problem_(problem),
        grid_(grid_of(problem, part)),
        frame_(frame_of(problem, part, levels)),
        low_(part.low == Side::neighbour),
        high_(part.high == Side::neighbour),
        levels_(levels) {}

  Pass make() {
    const long rows = grid_.ny, radius = problem_.radius_y, slab = problem_.slab, lag = grid_.skew_z * (levels_ - 1);
    OwnedCells owned;
    owned.cells.y0 = 0, owned.cells.y1 = rows;
    add(BlockAction{frame_, owned, 0});
    UpdateRegion trapezoid, triangle;
    if (low_) trapezoid.y_low = {0, radius};
    if (high_) trapezoid.y_high = {rows, -radius};
    triangle.y_low = {rows, -radius}, triangle.y_high = {rows, radius};
    const long end = grid_.end_plane() + lag;
    long before = grid_.first_plane();  // the beginning of the previous slab
    for (long zeta = before; zeta < end; zeta += slab) {
      const long zeta1 = std::min(zeta + slab, end);
      read_to(zeta1 + slab);
      copy_to(zeta1);
      add(UpdateAction{zeta, zeta1, levels_, trapezoid});
      for (long level = 1; level < levels_; ++level) stairs(zeta, zeta1, level);
      if (zeta > before) finish(before, zeta, triangle);
      before = zeta;
    }
    read_to(grid_.nz);
    copy_to(grid_.nz);
    finish(before, end, triangle);
    write_to(grid_.nz);
    add(CommitAction{});
    return {std::move(actions_), levels_};
  }

 private:
  void add(const Action &action) { actions_.push_back(action); }
  Rectangle at_rows(long y0, long y1) const { return {y0, y1, 0, frame_.x1}; }
  long updated(long z) const { return std::clamp(z, grid_.first_plane(), grid_.end_plane()); }

  // Sends rows y0 <= y < y1 of planes z0 <= z < z1 to the neighbour with lower rows. Receives rows from the neighbour
  // with higher rows.
  void exchange(long z0, long z1, long y0, long y1, Array array, long level) {
    if (z0 >= z1) return;
    const bool by_side = array == Array::static_faces;
    if (low_) add(WriteAction{z0, z1, at_rows(y0, y1), array, by_side ? 0 : level});
    if (high_) add(ReadAction{z0, z1, at_rows(grid_.ny + y0, grid_.ny + y1), array, by_side ? 1 : level});
  }

  long last_row(long level) const { return problem_.radius_y * std::min(level + problem_.stages() + 1, levels_ + 1); }

  void stairs(long zeta0, long zeta1, long level) {
    const long lag = grid_.skew_z * (level - 1);
    exchange(updated(zeta0 - lag), updated(zeta1 - lag), problem_.radius_y * level, last_row(level), Array::stairs,
             level);
  }

  void read_to(long zeta) {
    const long all = problem_.radius_y * (levels_ + 1);
    if (const auto [z0, z1] = advance(grid_, read_, zeta + grid_.skew_z); z1 > z0) {
      add(ReadAction{z0, z1, whole_plane(grid_), Array::source, 0});
      exchange(z0, std::min(z1, grid_.first_plane()), 0, all, Array::stairs, 0);
      exchange(updated(z0), updated(z1), 0, last_row(0), Array::stairs, 0);
      exchange(std::max(z0, grid_.end_plane()), z1, 0, all, Array::stairs, 0);
    }
    if (problem_.equation != Equation::wave) return;
    if (const auto [z0, z1] = advance(grid_, read_statics_, zeta + grid_.statics_z); z1 > z0) {
      add(ReadAction{z0, z1, whole_plane(grid_), Array::statics, 0});
      exchange(z0, z1, 0, all, Array::static_faces, 0);
    }
  }

  void copy_to(long end) {
    const auto [z0, z1] = advance(grid_, copied_, end);
    if (z0 >= z1) return;
    add(CopyAction{z0, z1, frame_, frame_});
    check(updated(z0), updated(z1), problem_.radius_y, Array::source);
  }

  void check(long z0, long z1, long rows, Array array) {
    if (low_ && z0 < z1) add(CheckAction{z0, z1, at_rows(0, rows), array});
  }

  // Updates the triangle of a slab, and exchanges its finished rows. After the exchange, writes the planes that are
  // finished.
  void finish(long zeta0, long zeta1, const UpdateRegion &triangle) {
    const long lag = grid_.skew_z * (levels_ - 1), rows = problem_.radius_y * levels_, ny = grid_.ny;
    const long z0 = updated(zeta0 - lag), z1 = updated(zeta1 - lag);
    if (high_) add(UpdateAction{zeta0, zeta1, levels_, triangle});
    if (high_ && z0 < z1) add(WriteAction{z0, z1, at_rows(ny, ny + rows), Array::finished, 0});
    if (low_ && z0 < z1) add(ReadAction{z0, z1, at_rows(0, rows), Array::finished, 0});
    write_to(z0);
  }

  void write_to(long end) {
    const auto [z0, z1] = advance(grid_, written_, end);
    if (z0 >= z1) return;
    check(updated(z0), updated(z1), problem_.radius_y * levels_, Array::target);
    add(WriteAction{z0, z1, whole_plane(grid_), Array::target, levels_});
  }

  const Problem problem_;
  const Grid grid_;
  const Rectangle frame_;
  const bool low_, high_;
  const long levels_;
  long read_ = 0, read_statics_ = 0, copied_ = 0, written_ = 0;
  std::vector<Action> actions_;
};

/// Makes the actions of a pass.
inline Pass make_pass(const Problem &problem, const Part &part, long levels) {
  if (problem.split && part.has_neighbours()) return SplitPass(problem, part, levels).make();
  const Grid grid = grid_of(problem, part);
  const long halo = problem.radius_y * levels, rows = part.rows, skew = grid.skew_z;
  const Rectangle frame = frame_of(problem, part, levels), own = whole_plane(grid);
  std::vector<Action> actions;
  UpdateRegion region;
  if (part.has_neighbours()) {
    OwnedCells owned;
    owned.cells.y0 = 0, owned.cells.y1 = rows;
    actions.push_back(BlockAction{frame, owned, 0});
    if (part.low == Side::neighbour) region.y_low = {-halo, problem.radius_y};
    if (part.high == Side::neighbour) region.y_high = {rows + halo, -problem.radius_y};
  }
  const auto exchange = [&](long z0, long z1, Array array) {
    const auto at_rows = [&](long y0, long y1) { return Rectangle{y0, y1, 0, frame.x1}; };
    const bool low = part.low == Side::neighbour, high = part.high == Side::neighbour;
    if (low) actions.push_back(WriteAction{z0, z1, at_rows(0, halo), array, 0});
    if (high) actions.push_back(WriteAction{z0, z1, at_rows(rows - halo, rows), array, 1});
    if (low) actions.push_back(ReadAction{z0, z1, at_rows(-halo, 0), array, 0});
    if (high) actions.push_back(ReadAction{z0, z1, at_rows(rows, rows + halo), array, 1});
  };
  long read = 0, read_statics = 0, copied = 0, written = 0;
  const auto read_to = [&](long zeta) {
    if (const auto [z0, z1] = advance(grid, read, zeta + skew); z1 > z0) {
      actions.push_back(ReadAction{z0, z1, own, Array::source, 0});
      exchange(z0, z1, Array::faces);
    }
    if (problem.equation != Equation::wave) return;
    if (const auto [z0, z1] = advance(grid, read_statics, zeta + grid.statics_z); z1 > z0) {
      actions.push_back(ReadAction{z0, z1, own, Array::statics, 0});
      exchange(z0, z1, Array::static_faces);
    }
  };
  const auto copy_to = [&](long end) {
    if (const auto [z0, z1] = advance(grid, copied, end); z1 > z0) actions.push_back(CopyAction{z0, z1, frame, frame});
  };
  const auto write_to = [&](long end) {
    if (const auto [z0, z1] = advance(grid, written, end); z1 > z0)
      actions.push_back(WriteAction{z0, z1, own, Array::target, levels});
  };
  const long end = grid.end_plane() + skew * (levels - 1);
  for (long zeta = grid.first_plane(); zeta < end; zeta += problem.slab) {
    const long zeta1 = std::min(zeta + problem.slab, end);
    read_to(zeta1 + problem.slab);
    copy_to(zeta1);
    actions.push_back(UpdateAction{zeta, zeta1, levels, region});
    write_to(std::min(grid.end_plane(), zeta1 - skew * (levels - 1)));
  }
  read_to(grid.nz);
  copy_to(grid.nz);
  write_to(grid.nz);
  actions.push_back(CommitAction{});
  return {actions, levels};
}

}  // namespace outcrop::ranks
