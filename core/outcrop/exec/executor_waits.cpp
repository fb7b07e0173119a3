// This file has the functions of the executor that wait for transfers. An action waits only for the planes and rows
// that it uses.
#include <algorithm>
#include <utility>

#include "outcrop/exec/executor.hpp"
#include "outcrop/exec/timer.hpp"

namespace outcrop {

// Waits until the planes z0 <= z < z1 of the state and the planes z0 <= z < z1_statics of the static fields have been
// read.
void Executor::wait_for_reads(long z0, long z1, long z1_statics) {
  if (store_ == nullptr) return;
  const Timer timer(counters_.seconds_read_wait);
  for (long z = z0; z < std::max(z1, z1_statics); ++z)
    for (std::size_t ring = 0; ring < window_.rings(); ++ring) {
      if (fields_.is_history(ring) || fields_.is_recomputed(ring)) continue;
      const bool is_static = ring < fields_.size() && fields_.read_only(ring);
      if (z >= (is_static ? z1_statics : z1)) continue;
      if (transfers_.wait_for_read(ring, z) && checks_) checks_->keep(ring, z);
    }
  for (const long copy : {0, 1}) check_fringes(array_rings(Array::fringes, copy), z0, z1);
}

// Waits until the rows of the rim have been received from the neighbouring ranks. A copy is the first action that
// changes the slots of second copies.
void Executor::wait_for_faces(const CopyAction &action) {
  if (!transfers_.has_faces()) return;
  const Timer timer(counters_.seconds_face_wait);
  for (long z = action.z0; z < action.z1; ++z) {
    for (const std::size_t field : fields_.doubles()) transfers_.begin_plane(fields_.ring(field, 1), z);
    for (const Rectangle &rim : rim_of(z, action.cells)) {
      if (rim.empty()) continue;
      for (std::size_t ring = 0; ring < window_.rings(); ++ring) transfers_.wait_for_received(ring, z, rim.y0, rim.y1);
      for (const std::size_t field : fields_.doubles())
        transfers_.wait_for_sent(fields_.ring(field, 1), z, rim.y0, rim.y1);
    }
  }
}

// Waits until the rows that the levels of an update use have been received. The function also waits until the rows that
// these levels overwrite have been sent. It does not wait for other faces of the same planes. A neighbouring rank may
// need the result of the update before it can send or receive the other faces.
void Executor::wait_for_faces(const UpdateAction &action) {
  if (!transfers_.has_faces()) return;
  const Timer timer(counters_.seconds_face_wait);
  const UpdateRegion &region = action.region;
  const long reach_y = grid_.radius_y;
  for (long level = 1; level <= action.levels; ++level) {
    const long lag = grid_.skew_z * (level - 1);
    const long z0 = std::max({grid_.first_plane(), action.zeta0 - lag, region.z_low.at(level)});
    const long z1 = std::min({grid_.end_plane(), action.zeta1 - lag, region.z_high.at(level)});
    const long y0 = region.y_low.at(level), y1 = region.y_high.at(level);
    if (z0 >= z1 || y0 >= y1) continue;
    const StageCall &stage = stages_.at(level);
    for (const std::size_t ring : stage.sources) {
      // planes of static fields are read and exchanged later than planes of updated fields
      const bool is_static = ring < fields_.size() && fields_.read_only(ring);
      const long reach_z = is_static ? grid_.statics_z : grid_.skew_z;
      for (long z = std::max(0L, z0 - reach_z); z < std::min(grid_.nz, z1 + reach_z); ++z)
        transfers_.wait_for_received(ring, z, y0 - reach_y, y1 + reach_y);
    }
    for (const std::size_t ring : stage.targets)
      for (long z = z0; z < z1; ++z) {
        transfers_.begin_plane(ring, z);
        transfers_.wait_for_received(ring, z, y0, y1);
        transfers_.wait_for_sent(ring, z, y0, y1);
      }
  }
}

// Waits until cells of planes z0 <= z < z1 have been received from the neighbouring ranks.
void Executor::wait_for_faces(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells) {
  if (!transfers_.has_faces()) return;
  const Timer timer(counters_.seconds_face_wait);
  for (long z = z0; z < z1; ++z)
    for (const ArrayRing &pair : pairs) transfers_.wait_for_received(pair.ring, z, cells.y0, cells.y1);
}

void Executor::wait_for_writes(std::size_t ring, long z0, long z1) {
  const Timer timer(counters_.seconds_write_wait);
  for (long z = z0; z < z1; ++z) transfers_.wait_for_write(ring, z);
}

// Waits until the planes z0 <= z < z1 of each state that the pass reads have arrived. If `is_update` is true, z1 is the
// end of a slab. If `is_update` is true, the function waits for the planes below z1 + Fields::ahead() of the field.
// Later planes belong to the next slab. Adds the rows that have arrived to the checksums of the states.
void Executor::wait_for_history(long z0, long z1, bool is_update) {
  if (store_ == nullptr) return;
  std::vector<std::pair<std::size_t, long>> arrived;  // pairs of the number of a state and a plane of this state
  {
    const Timer timer(counters_.seconds_read_wait);
    for (std::size_t i = 0; i < fields_.histories().size(); ++i) {
      const std::size_t ring = fields_.histories()[i];
      const long end = is_update ? std::min(grid_.nz, z1 + fields_.ahead(ring)) : z1;
      for (long z = z0; z < end; ++z)
        if (transfers_.wait_for_read(ring, z)) arrived.emplace_back(i, z);
    }
  }
  for (std::size_t i = 0; i < fields_.computed().size(); ++i) {
    const std::size_t ring = fields_.computed()[i];
    if (!fields_.is_history(ring)) continue;
    const long end = is_update ? std::min(grid_.nz, z1 + fields_.ahead(ring)) : z1;
    check_fringes(array_rings(Array::recomputed, static_cast<long>(i)), z0, end);
  }
  if (!checks_ || arrived.empty()) return;  // a job without planes would wake the threads for nothing
  const Timer timer(counters_.seconds_checksum);
  team_.for_each(static_cast<long>(arrived.size()), [&](long place) {
    const auto [index, z] = arrived[static_cast<std::size_t>(place)];
    const std::size_t ring = fields_.histories()[index];
    // Several blocks may read the same row of a state, so only the block that owns the row adds it. Each row of a
    // computed field is read by only one block.
    Rectangle rows = transfers_.history_rows(ring, z);
    if (!fields_.is_computed(ring)) rows = intersection(rows, own_.cells);
    if (z < own_.z0 || z >= own_.z1 || rows.empty()) return;
    const std::byte *first = window_.cell(ring, z, rows.y0, 0);
    history_sums_.add(grid_, index, z, rows.y0, rows.y1, first, window_.pitch_bytes());
  });
}

}  // namespace outcrop
