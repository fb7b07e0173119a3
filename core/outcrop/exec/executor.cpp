#include "outcrop/exec/executor.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <utility>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

// Measures the time of a phase. The destructor adds the time for which the object has existed, in seconds, to a
// counter.
class Timer {
 public:
  explicit Timer(std::atomic<double> &seconds) : seconds_(seconds) {}
  ~Timer() { seconds_.fetch_add(std::chrono::duration<double>(Clock::now() - start_).count()); }
  Timer(const Timer &) = delete;
  Timer &operator=(const Timer &) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<double> &seconds_;
  const Clock::time_point start_ = Clock::now();
};

// Returns the number of a side (faces.hpp). An action sends rows to this side, or receives rows from this side.
std::size_t side_of(Array array, long level, bool send) {
  if (array == Array::stairs) return send ? 0 : 1;
  if (array == Array::finished) return send ? 1 : 0;
  return static_cast<std::size_t>(level);
}

}  // namespace

Executor::Executor(const Grid &grid, const ExecutorOptions &options, const Fields &fields, Stages stages, Store *store)
    : grid_(grid),
      fields_(fields),
      stages_(std::move(stages)),
      window_(grid_, rings_for_direct_io(options.rings, store == nullptr ? 1 : store->memory_alignment()),
              options.memory),
      team_(options.placement),
      traverse_(team_, grid_, window_, stages_, options.tiling, options.max_levels),
      store_(store),
      transfers_(grid_, window_, fields_, store, options.links, options.max_levels) {
  assert(window_.rings() == fields_.rings());
  // The constructor touches the whole memory. Page faults and errors then occur before the first pass.
  if (options.memory == nullptr) place_memory(window_, team_);
  if (options.lock) lock_memory(window_.data(), window_.size());
  if (!options.checksum || store_ == nullptr) return;
  checks_.emplace(grid_, window_, fields_);
  fringe_sums_.resize(fields_.rings() * static_cast<std::size_t>(grid.nz));
}

AcquisitionResults Executor::run(const Pass &pass, const PassFiles &files, std::vector<std::byte> scalars,
                                 AcquisitionRequests requests, std::vector<std::byte> lead_scalars,
                                 std::function<void()> before_write) {
  const BoundThread bound = team_.bind_caller();
  stages_.scalars.values = std::move(scalars);
  stages_.lead.scalars.values = std::move(lead_scalars);
  before_write_ = std::move(before_write);
  begin_pass(pass, files, std::move(requests));
  begin_block(BlockAction{whole_plane(grid_), OwnedCells{}, 0});
  try {
    for (const Action &action : pass.actions) {
      if (cancelled_) throw Cancelled("the run was cancelled");
      std::visit([this](const auto &one) { perform(one); }, action);
    }
  } catch (...) {
    transfers_.cancel_faces();
    throw;
  }
  return acquisition_ ? acquisition_->results() : AcquisitionResults();
}

void Executor::begin_pass(const Pass &pass, const PassFiles &files, AcquisitionRequests requests) {
  const long levels = std::max(0L, pass.levels - stages_.lead.levels);
  assert(levels % stages_.per_step() == 0);
  steps_ = levels / stages_.per_step();
  transfers_.set_files(files);
  history_sums_.begin_pass(files.history);
  if (pass.levels > 0) traverse_.set_levels(pass.levels);
  if (checks_) {
    const bool reads_statics = std::ranges::any_of(pass.actions, [](const Action &action) {
      const auto *read = std::get_if<ReadAction>(&action);
      return read != nullptr && read->array == Array::statics;
    });
    checks_->begin_pass(steps_, reads_statics, files);
    traverse_.sum_into(checks_->source_sums(), checks_->target_sums());
  }
  traverse_.set_acquisition(nullptr);
  acquisition_.reset();
  if (requests.empty()) return;
  if (store_ != nullptr && store_->direct()) requests.backend = store_->name();
  acquisition_.emplace(grid_, window_, fields_, stages_, std::move(requests), steps_, bytes_snapshots_);
  traverse_.set_acquisition(&*acquisition_);
}

void Executor::swap_rings() {
  window_.swap_rings();
  transfers_.swap_rings();
}

void Executor::cancel() {
  cancelled_ = true;
  transfers_.cancel();
}

void Executor::perform(const BlockAction &action) {
  assert(window_.has_room(action.frame));
  begin_block(action);
}

void Executor::begin_block(const BlockAction &action) {
  former_frame_ = window_.frame();
  window_.set_frame(action.frame, action.shift);
  traverse_.set_own(action.own);
  own_ = action.own;
  if (acquisition_) acquisition_->set_own(action.own);
}

// Returns the arrays of an action, with the ring of each array. If the state has one field and a step has one stage, a
// plan can also store the values of levels before the last level. In such a plan, one ring of the field holds the even
// levels, and the other ring holds the odd levels. The array `target` stores the levels in the ring of the last level.
// The array `other` stores all other levels.
std::vector<ArrayRing> Executor::array_rings(Array array, long level) const {
  std::vector<ArrayRing> result;
  if (array == Array::statics || array == Array::static_faces) {
    for (std::size_t i = 0; i < fields_.statics().size(); ++i)
      result.push_back({array, i, fields_.ring(fields_.statics()[i], 0)});
  } else if (array == Array::stairs && level > 0) {
    for (const std::size_t ring : stages_.at(level).targets) result.push_back({array, result.size(), ring});
  } else if (array == Array::source || array == Array::target || is_faces(array)) {
    const bool is_last = array == Array::target || array == Array::finished;
    for (std::size_t i = 0; i < fields_.state().size(); ++i)
      result.push_back({array, i, fields_.ring(fields_.state()[i], is_last ? steps_ : 0)});
  } else if (array == Array::history || array == Array::recomputed) {
    const auto index = static_cast<std::size_t>(level);
    result.push_back({array, index, (array == Array::history ? fields_.histories() : fields_.computed())[index]});
  } else if (array == Array::fringes) {
    const std::size_t updated = fields_.updated();
    if (level % 2 == 0) {
      for (std::size_t i = 0, place = 0; i < fields_.size(); ++i)
        if (!fields_.read_only(i) && !fields_.is_computed(i)) result.push_back({array, place++, fields_.ring(i, 0)});
    } else {
      for (std::size_t i = 0; i < fields_.doubles().size(); ++i)
        result.push_back({array, updated + i, fields_.ring(fields_.doubles()[i], 1)});
    }
  } else {
    assert(fields_.state().size() == 1 && stages_.per_step() == 1);
    result.push_back({array, 0, fields_.ring(0, static_cast<std::size_t>(level & 1))});
  }
  return result;
}

void Executor::perform(const CarryAction &action) {
  wait_for_reads(action.z0, action.z1);
  const std::vector<ArrayRing> pairs = array_rings(Array::fringes, action.level);
  for (const ArrayRing &pair : pairs) wait_for_writes(pair.ring, action.z0, action.z1);
  const Timer timer(counters_.seconds_copy);
  for (const ArrayRing &pair : pairs)
    team_.for_each(action.z1 - action.z0, [&](long i) { carry(pair.ring, action.z0 + i, action.cells); });
}

void Executor::perform(const ReadAction &action) {
  const std::vector<ArrayRing> pairs = array_rings(action.array, action.level);
  if (!is_faces(action.array)) return transfers_.read(pairs, action.z0, action.z1, action.cells);
  const Timer timer(counters_.seconds_face_wait);
  transfers_.receive(pairs, action.z0, action.z1, action.cells, side_of(action.array, action.level, false));
}

void Executor::perform(const CopyAction &action) {
  if (action.recomputed >= 0) return copy_recomputed(action);
  wait_for_reads(action.z0, action.z1);
  for (const std::size_t field : fields_.doubles()) wait_for_writes(fields_.ring(field, 1), action.z0, action.z1);
  wait_for_faces(action);
  {
    const Timer timer(counters_.seconds_copy);
    team_.for_each(action.z1 - action.z0, [&](long i) { copy_rim(action.z0 + i, action); });
  }
  check_planes(action.z0, action.z1);
}

void Executor::perform(const UpdateAction &action) {
  const long reach = grid_.skew_z * action.levels;
  // The levels of the lead do not use the state. `lead` is the number of planes by which the first level after the lead
  // lags behind zeta.
  const long lead = grid_.skew_z * stages_.lead.levels;
  // Wait only for the planes that this update needs. The reads of the next slab may continue during the update.
  wait_for_reads(std::max(0L, action.zeta0 - reach), std::min(grid_.nz, action.zeta1 + grid_.skew_z - lead),
                 std::min(grid_.nz, action.zeta1 + grid_.statics_z));
  wait_for_faces(action);
  wait_for_history(std::max(0L, action.zeta0 - reach), action.zeta1, true);
  {
    const Timer timer(counters_.seconds_update);
    traverse_.update(Slab{action.zeta0, action.zeta1, action.levels, action.region}, cancelled_);
  }
  if (cancelled_) throw Cancelled("the run was cancelled");
  if (acquisition_) acquisition_->end_slab();
  check_planes(std::max(action.zeta0 - lead, grid_.first_plane()), std::min(action.zeta1 - lead, grid_.end_plane()));
}

void Executor::perform(const WriteAction &action) {
  const std::vector<ArrayRing> pairs = array_rings(action.array, action.level);
  if (is_faces(action.array)) {
    const Timer timer(counters_.seconds_face_wait);
    return transfers_.send(pairs, action.z0, action.z1, action.cells, side_of(action.array, action.level, true));
  }
  // no update has waited for the planes of the rim, so reads of these planes may still be in flight
  if (action.array != Array::recomputed) wait_for_reads(action.z0, action.z1);
  wait_for_faces(pairs, action.z0, action.z1, action.cells);
  if (action.array != Array::recomputed || fields_.is_history(pairs.front().ring))
    wait_for_history(action.z0, action.z1, false);
  if (transfers_.has_tail(action.array, action.cells, true) && checks_) {
    const Timer timer(counters_.seconds_checksum);
    for (long z = action.z0; z < action.z1; ++z)
      for (const ArrayRing &pair : pairs) checks_->finish_record(pair, z);
  }
  if ((action.array == Array::fringes || action.array == Array::recomputed) && checks_) {
    const Timer timer(counters_.seconds_checksum);
    for (const ArrayRing &pair : pairs)
      team_.for_each(action.z1 - action.z0, [&](long i) {
        const long z = action.z0 + i;
        fringe_sums_[transfers_.fringe_index(pair.ring, z)] = sum_fringe(pair.ring, z, action.cells);
      });
  }
  if (action.array == Array::target)
    if (const auto wait = std::exchange(before_write_, {})) wait();
  transfers_.write(pairs, action.z0, action.z1, action.cells);
}

void Executor::perform(const CheckAction &action) {
  if (own_.z0 >= own_.z1) return check_sent(action);
  assert(action.array == Array::source || action.array == Array::target);
  const bool is_source = action.array == Array::source;
  std::vector<ArrayRing> pairs = array_rings(action.array, 0);
  if (is_source)
    for (const ArrayRing &pair : array_rings(Array::statics, 0)) pairs.push_back(pair);
  const Rectangle own = intersection(action.cells, whole_plane(grid_));
  wait_for_reads(action.z0, action.z1);
  wait_for_faces(pairs, action.z0, action.z1, own);
  if (acquisition_)
    team_.for_each(action.z1 - action.z0,
                   [&](long i) { acquisition_->received(is_source ? 0 : steps_, action.z0 + i, own); });
  if (!checks_) return;
  {
    const Timer timer(counters_.seconds_checksum);
    team_.for_each(action.z1 - action.z0, [&](long i) {
      if (is_source)
        checks_->add_to_sources(action.z0 + i, own);
      else
        checks_->add_to_targets(action.z0 + i, own);
    });
  }
  if (is_source) check_planes(action.z0, action.z1);
}

// Compares the checksums and seals of whole planes. The rank has read these planes only to send the planes to another
// rank. The pass reads the same planes again later. Only the later read adds the planes to the checksums of the pass.
void Executor::check_sent(const CheckAction &action) {
  const std::vector<ArrayRing> pairs = array_rings(action.array, 0);
  {
    // Wait only for the rings that this action uses. Slots with the same numbers in other rings can hold other planes
    // of the pass.
    const Timer timer(counters_.seconds_read_wait);
    for (const ArrayRing &pair : pairs)
      for (long z = action.z0; z < action.z1; ++z)
        if (transfers_.wait_for_read(pair.ring, z) && checks_) checks_->keep(pair.ring, z);
  }
  if (!checks_) return;
  const Timer timer(counters_.seconds_checksum);
  for (const ArrayRing &pair : pairs) {
    std::atomic<long> bad{-1}, displaced{-1};
    team_.for_each(action.z1 - action.z0, [&](long i) {
      const Checks::Verdict verdict = checks_->verdict(pair, action.z0 + i);
      if (verdict == Checks::Verdict::damaged) bad = action.z0 + i;
      if (verdict == Checks::Verdict::displaced) displaced = action.z0 + i;
    });
    if (bad >= 0) throw CorruptionError(transfers_.damage(pair, bad, false));
    if (displaced >= 0) throw CorruptionError(transfers_.damage(pair, displaced, true));
  }
}

void Executor::perform(const CommitAction &) {
  if (transfers_.has_faces()) {
    const Timer timer(counters_.seconds_face_wait);
    transfers_.drain_faces();
  }
  {
    const Timer timer(counters_.seconds_write_wait);
    transfers_.drain();
  }
  if (const auto wrong = history_sums_.wrong(); wrong && checks_)
    throw CorruptionError(transfers_.path(*wrong), " is damaged: checksum mismatch");
  const Timer timer(counters_.seconds_commit);
  if (acquisition_) acquisition_->flush();
  store_->flush();
}

std::uint32_t Executor::sum_fringe(std::size_t ring, long z, const Rectangle &cells) const {
  const auto bytes = static_cast<std::size_t>(cells.rows()) * window_.pitch_bytes();
  return crc32c({window_.cell(ring, z, cells.y0, cells.x0), bytes});
}

// Compares two checksums of each fringe. One checksum was computed before the fringe was written. The other checksum
// was computed after the fringe was read. A fringe is written and read in the same pass. Therefore the first checksum
// can stay in memory.
void Executor::check_fringes(const std::vector<ArrayRing> &pairs, long z0, long z1) {
  if (!checks_) return;
  for (const ArrayRing &pair : pairs) {
    std::atomic<long> bad{z1};
    const auto check = [&](long i) {
      const Rectangle fringe = transfers_.take_fringe(pair.ring, z0 + i);
      if (fringe.empty()) return;
      if (sum_fringe(pair.ring, z0 + i, fringe) != fringe_sums_[transfers_.fringe_index(pair.ring, z0 + i)])
        bad = z0 + i;
    };
    bool any = false;
    for (long z = z0; z < z1 && !any; ++z) any = transfers_.has_fringe(pair.ring, z);
    if (any) team_.for_each(z1 - z0, check);
    if (bad < z1) throw CorruptionError(transfers_.damage(pair, bad, false));
  }
}

// Compares computed checksums and seals of source planes with the stored checksums and seals. The function skips planes
// whose checksums are not complete yet.
void Executor::check_planes(long z0, long z1) {
  if (!checks_) return;
  const Timer timer(counters_.seconds_checksum);
  for (long z = std::max(0L, z0); z < std::min(grid_.nz, z1); ++z)  // planes of other ranks have no checksums here
    if (const auto wrong = checks_->wrong(z)) throw CorruptionError(transfers_.damage(wrong->pair, z, wrong->whole));
}

// Returns the part of the rim that lies inside `cells` in plane z. The result has one rectangle for each end of the y
// axis. If plane z belongs to the rim in z, all rows of the plane belong to the rim.
std::array<Rectangle, 2> Executor::rim_of(long z, const Rectangle &cells) const {
  Rectangle low = cells, high = cells;
  const bool updated = z >= grid_.first_plane() && z < grid_.end_plane() && grid_.first_row() < grid_.end_row();
  low.y1 = std::min(low.y1, updated ? grid_.first_row() : grid_.ny);
  high.y0 = std::max(high.y0, updated ? grid_.end_row() : grid_.ny);
  return {low, high};
}

void Executor::copy_rows(std::size_t from, std::size_t to, long z, const Rectangle &rows) const {
  const std::size_t bytes = static_cast<std::size_t>(rows.columns()) * grid_.item_bytes;
  for (long y = rows.y0; y < rows.y1; ++y)
    std::memcpy(window_.cell(to, z, y, rows.x0), window_.cell(from, z, y, rows.x0), bytes);
}

// Copies the rim of a recomputed field from another field (Field::follows). If the other field is a state of the
// history, the function first waits for the reads of this state. For each slot, the function also waits for two
// transfers: the write of the previous block's rows, and the read of the fringe.
void Executor::copy_recomputed(const CopyAction &action) {
  const std::size_t to = fields_.recomputed()[static_cast<std::size_t>(action.recomputed)], from = fields_.follows(to);
  if (fields_.is_history(from)) wait_for_history(action.z0, action.z1, false);
  {
    const Timer timer(counters_.seconds_read_wait);
    for (long z = action.z0; z < action.z1; ++z) transfers_.wait_for_read(to, z);
  }
  wait_for_writes(to, action.z0, action.z1);
  const auto number = std::ranges::find(fields_.computed(), to) - fields_.computed().begin();
  check_fringes(array_rings(Array::recomputed, number), action.z0, action.z1);
  const Timer timer(counters_.seconds_copy);
  for (long z = action.z0; z < action.z1; ++z)
    for (const Rectangle &rim : rim_of(z, action.cells))
      if (!rim.empty()) copy_rows(from, to, z, rim);
}

// Copies the rim in y and z from the first copies of the fields to the second copies. The function does not copy the
// rim in x, because kernels write it. No update changes the rim in y and z. Therefore the rim in y and z is copied only
// once, and the checksums of its cells are the same at every level.
void Executor::copy_rim(long z, const CopyAction &action) {
  const bool sums = checks_ && z >= own_.z0 && z < own_.z1;
  for (const Rectangle &rim : rim_of(z, action.cells)) {
    if (rim.empty()) continue;
    if (acquisition_) acquisition_->rim(z, rim);
    const Rectangle own = intersection(rim, intersection(action.own, whole_plane(grid_)));
    if (sums) checks_->add_to_sources(z, own);
    for (const std::size_t field : fields_.doubles()) copy_rows(fields_.ring(field, 0), fields_.ring(field, 1), z, rim);
    if (sums) checks_->add_to_targets(z, own);
  }
}

void Executor::carry(std::size_t ring, long z, const Rectangle &cells) const {
  const Rectangle &to = window_.frame(), &from = former_frame_;
  assert(from.x0 == to.x0 && from.x1 == to.x1 && from.y0 <= to.y0 && intersection(cells, from) == cells);
  std::byte *first = window_.cell(ring, z, cells.y0, to.x0);
  const std::size_t back = static_cast<std::size_t>(to.y0 - from.y0) * window_.pitch_bytes();
  std::memmove(first, first + back, static_cast<std::size_t>(cells.rows()) * window_.pitch_bytes());
}

// --- waiting for transfers ------------------------------------------------------------------------------------------
// An action waits only for the planes and rows that it uses.

// Waits until the reads of two groups of planes have ended: the planes z0 <= z < z1 of the state, and the planes z0 <=
// z < z1_statics of the static fields.
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

// Waits until the rank has received the rows of the rim from the neighbouring ranks. For a new plane, the copy of the
// rim is the first action that changes the slots of second copies. Therefore the function also waits until all faces of
// the previous planes in these slots are sent and received.
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

// Waits for the faces that an update needs. The rank must have received the rows that the update reads. It must have
// sent the rows that the update overwrites. The function must not wait for other faces of the same planes. A
// neighbouring rank may need the result of this update before it can transfer these other faces.
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
      const long first = grid_.has_below() ? z0 - reach_z : std::max(0L, z0 - reach_z);
      const long end = grid_.has_above() ? z1 + reach_z : std::min(grid_.nz, z1 + reach_z);
      for (long z = first; z < end; ++z) transfers_.wait_for_received(ring, z, y0 - reach_y, y1 + reach_y);
    }
    for (const std::size_t ring : stage.targets)
      for (long z = z0; z < z1; ++z) {
        transfers_.begin_plane(ring, z);
        transfers_.wait_for_received(ring, z, y0, y1);
        transfers_.wait_for_sent(ring, z, y0, y1);
      }
  }
}

// Waits until the rank has received the rows of `cells` in the planes z0 <= z < z1 from the neighbouring ranks.
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

// Waits until the planes z0 <= z < z1 of each state of the history are read. If `is_update` is true, z1 is the end of a
// slab. The function then waits for the planes below z1 + Fields::ahead(). After waiting, the function adds the rows of
// these planes to the checksums of the states.
void Executor::wait_for_history(long z0, long z1, bool is_update) {
  if (store_ == nullptr) return;
  std::vector<std::pair<std::size_t, long>> arrived;  // pairs: number of a state, plane of this state
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
  if (!checks_ || arrived.empty()) return;  // without planes there is no work for the threads
  const Timer timer(counters_.seconds_checksum);
  team_.for_each(static_cast<long>(arrived.size()), [&](long place) {
    const auto [index, z] = arrived[static_cast<std::size_t>(place)];
    const std::size_t ring = fields_.histories()[index];
    // If several blocks read the same row of a state, only the owner of the row adds the row to the checksum. In a
    // computed field, only one block reads each row.
    Rectangle rows = transfers_.history_rows(ring, z);
    if (!fields_.is_computed(ring)) rows = intersection(rows, own_.cells);
    if (z < own_.z0 || z >= own_.z1 || rows.empty()) return;
    const std::byte *first = window_.cell(ring, z, rows.y0, 0);
    history_sums_.add(grid_, index, z, rows.y0, rows.y1, first, window_.pitch_bytes());
  });
}

}  // namespace outcrop
