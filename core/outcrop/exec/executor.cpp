#include "outcrop/exec/executor.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/ownership.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop {
namespace {

// Adds the life of this object to a counter of seconds.
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

// What a chain of transfers has to wait for: a read for what was written from its slot, either for those before it.
Ticket last_of(Ticket writing, Ticket reading) { return writing != no_ticket ? writing : reading; }

}  // namespace

Executor::Executor(const Grid &grid, const ExecutorOptions &options, outcrop_kernel kernel,
                   std::vector<std::byte> scalars, Store *store)
    : grid_(grid),
      options_(options),
      scalars_(std::move(scalars)),
      window_(grid, options.ring_planes, options.slot_bytes, options.memory),
      team_(options.placement),
      traverse_(team_, grid_, window_, kernel, scalars_.data(), options.tiling, options.levels_max),
      store_(store) {
  for (std::size_t parity = 0; parity < 2; ++parity)
    slots_[parity].resize(static_cast<std::size_t>(options.ring_planes[parity]));
  if (options.memory == nullptr) place_memory(window_, team_);  // no page fault and no refusal comes later
  if (options.lock) lock_memory(window_.data(), window_.size());
  if (options.checksum && store_ != nullptr) {
    traverse_.sum_into(&source_sums_.emplace(grid), &target_sums_.emplace(grid));
    checked_.resize(static_cast<std::size_t>(grid.nz));
    expected_.resize(static_cast<std::size_t>(grid.nz));
    face_sums_.resize(static_cast<std::size_t>(2 * grid.nz));
  }
  if (store_ != nullptr) {
    face_tickets_.resize(static_cast<std::size_t>(2 * grid.nz), no_ticket);
    PumpOptions pump_options;
    pump_options.capacity = slots_[0].size() + slots_[1].size();
    pump_options.capacity = 4 * pump_options.capacity + 2;  // a few parts of each slot; more make submit() wait
    pump_ = std::make_unique<Pump>(*store_, pump_options);
  }
}

void Executor::run(const Actions &actions, const PassFiles &files) {
  const BoundThread bound = team_.bind_caller();
  files_ = files;
  if (source_sums_) {
    source_sums_->clear();
    target_sums_->clear();
    checked_.assign(checked_.size(), false);
  }
  begin_block(BlockAction{whole_plane(grid_), Own{}, 0});
  long levels = 0;
  for (const Action &action : actions)
    if (const auto *update = std::get_if<UpdateAction>(&action)) levels = std::max(levels, update->levels);
  if (levels > 0) traverse_.set_levels(levels);
  for (const Action &action : actions) {
    if (cancelled_) throw Cancelled("the run was cancelled");
    std::visit([this](const auto &one) { perform(one); }, action);
  }
}

void Executor::swap_rings() {
  window_.swap_rings();
  slots_[0].swap(slots_[1]);
}

void Executor::cancel() {
  cancelled_ = true;
  if (pump_) pump_->cancel();
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
}

void Executor::perform(const CarryAction &action) {
  wait_for_reads(action.z0, action.z1);
  wait_for_writes(action.level, action.z0, action.z1);
  const Timer timer(counters_.seconds_copy);
  team_.for_each(action.z1 - action.z0, [&](long i) { carry(action.z0 + i, action.level, action.cut); });
}

void Executor::perform(const ReadAction &action) {
  for (long z = action.z0; z < action.z1; ++z) transfer(false, action.array, action.level, z, action.cut);
}

void Executor::perform(const CopyAction &action) {
  wait_for_reads(action.z0, action.z1);
  wait_for_writes(1, action.z0, action.z1);
  {
    const Timer timer(counters_.seconds_copy);
    team_.for_each(action.z1 - action.z0, [&](long i) { copy_rim(action.z0 + i, action.cut); });
  }
  check_planes(action.z0, action.z1);
}

void Executor::perform(const UpdateAction &action) {
  const long lowest = action.zeta0 - grid_.skew * (action.levels - 1) - grid_.radius_z;
  wait_for_reads(std::max(0L, lowest), std::min(grid_.nz, action.zeta1 + grid_.radius_z));
  {
    const Timer timer(counters_.seconds_update);
    traverse_.update(Slab{action.zeta0, action.zeta1, action.levels, action.region}, cancelled_);
  }
  if (cancelled_) throw Cancelled("the run was cancelled");
  check_planes(std::max(action.zeta0, grid_.first_plane()), std::min(action.zeta1, grid_.end_plane()));
}

void Executor::perform(const WriteAction &action) {
  wait_for_reads(action.z0, action.z1);  // planes of the rim may be written without ever having been used
  if (has_tail(action.array, action.cut) && target_sums_) {
    const Timer timer(counters_.seconds_checksum);
    for (long z = action.z0; z < action.z1; ++z) finish_record(z, action.level);
  }
  if (action.array == Array::faces && source_sums_) {
    const Timer timer(counters_.seconds_checksum);
    team_.for_each(action.z1 - action.z0, [&](long i) {
      face_sums_[face_index(action.level, action.z0 + i)] = sum_face(action.level, action.z0 + i, action.cut);
    });
  }
  for (long z = action.z0; z < action.z1; ++z) transfer(true, action.array, action.level, z, action.cut);
}

void Executor::perform(const CommitAction &) {
  {
    const Timer timer(counters_.seconds_write_wait);
    pump_->drain();
  }
  const Timer timer(counters_.seconds_commit);
  store_->flush();
}

void Executor::wait_for_reads(long z0, long z1) {
  if (pump_ == nullptr) return;
  const Timer timer(counters_.seconds_read_wait);
  for (long z = z0; z < z1; ++z)
    for (const long level : {0, 1}) {
      Slot &entry = slot(level, z);
      if (!holds(entry, z)) continue;
      pump_->wait(std::exchange(entry.reading, no_ticket));
      if (source_sums_ && std::exchange(entry.has_tail, false))
        std::memcpy(&expected_[static_cast<std::size_t>(z)], window_.tail(0, z), sizeof expected_[0]);
    }
  check_faces(z0, z1);
}

std::uint32_t Executor::sum_face(long level, long z, const Cut &cut) const {
  const auto bytes = static_cast<std::size_t>(cut.rows()) * window_.pitch_bytes();
  return crc32c({window_.cell(level, z, cut.y0, cut.x0), bytes});
}

// Faces come back as they were written, in the same pass, so their checksums need not leave memory.
void Executor::check_faces(long z0, long z1) {
  if (!source_sums_) return;
  for (const long level : {0, 1}) {
    std::atomic<long> bad{z1};
    const auto check = [&](long i) {
      Slot &entry = slot(level, z0 + i);
      if (!holds(entry, z0 + i) || entry.face.empty()) return;
      const Cut face = std::exchange(entry.face, Cut{});
      if (sum_face(level, z0 + i, face) != face_sums_[face_index(level, z0 + i)]) bad = z0 + i;
    };
    const auto has_face = [&](long z) { return holds(slot(level, z), z) && !slot(level, z).face.empty(); };
    bool any = false;
    for (long z = z0; z < z1 && !any; ++z) any = has_face(z);
    if (any) team_.for_each(z1 - z0, check);
    if (bad < z1) report_corruption(Array::faces, level, bad);
  }
}

void Executor::wait_for_writes(long level, long z0, long z1) {
  if (pump_ == nullptr) return;
  const Timer timer(counters_.seconds_write_wait);
  for (long z = z0; z < z1; ++z) pump_->wait(std::exchange(slot(level, z).writing, no_ticket));
}

// Compares the checksums of those planes of the source all of whose cells have been summed up.
void Executor::check_planes(long z0, long z1) {
  if (!source_sums_) return;
  const Timer timer(counters_.seconds_checksum);
  for (long z = z0; z < z1; ++z) {
    const auto place = static_cast<std::size_t>(z);
    if (checked_[place] || !source_sums_->is_whole(z)) continue;
    checked_[place] = true;
    if (source_sums_->value(z) != expected_[place]) report_corruption(Array::source, 0, z);
  }
}

// Kernels carry the rim in x along; rows of the rim in y and planes of the rim in z are never updated, so the odd ring
// gets them once, and their checksums are those of every level.
void Executor::copy_rim(long z, const Cut &cut) {
  std::array<Cut, 2> rims{cut, Cut{}};
  if (is_updated(z) && grid_.first_row() < grid_.end_row()) {
    rims[0].y1 = std::min(cut.y1, grid_.first_row());
    rims[1] = cut;
    rims[1].y0 = std::max(cut.y0, grid_.end_row());
  }
  for (const Cut &rim : rims) {
    if (rim.empty()) continue;
    const std::size_t bytes = static_cast<std::size_t>(rim.columns()) * grid_.item_bytes;
    for (long y = rim.y0; y < rim.y1; ++y)
      std::memcpy(window_.cell(1, z, y, rim.x0), window_.cell(0, z, y, rim.x0), bytes);
    if (!source_sums_ || z < own_.z0 || z >= own_.z1) continue;
    const Cut own = intersection(rim, own_.cut);
    source_sums_->add(z, window_.origin(0, z), window_.pitch_bytes(), own);
    target_sums_->add(z, window_.origin(0, z), window_.pitch_bytes(), own);
  }
}

void Executor::carry(long z, long level, const Cut &cut) const {
  const Cut &to = window_.frame(), &from = former_frame_;
  assert(from.x0 == to.x0 && from.x1 == to.x1 && from.y0 <= to.y0 && intersection(cut, from) == cut);
  std::byte *first = window_.cell(level, z, cut.y0, to.x0);
  const std::size_t back = static_cast<std::size_t>(to.y0 - from.y0) * window_.pitch_bytes();
  std::memmove(first, first + back, static_cast<std::size_t>(cut.rows()) * window_.pitch_bytes());
}

// A record may be written before its plane is final; its checksum then comes with the last of its cells.
void Executor::finish_record(long z, long level) const {
  if (!target_sums_->is_whole(z)) return;
  const std::uint32_t crc = target_sums_->value(z);
  std::byte *tail = window_.tail(level, z);
  std::memset(tail, 0, grid_.tail_bytes());
  std::memcpy(tail, &crc, sizeof crc);
}

bool Executor::has_tail(Array array, const Cut &cut) const {
  return (array == Array::source || array == Array::target) && cut.y1 == grid_.ny && cut.x1 == grid_.pitch_cells();
}

Executor::Slot &Executor::slot(long level, long z) {
  return slots_[static_cast<std::size_t>(level & 1)]
               [static_cast<std::size_t>(window_.ring(level).slot(window_.place(z)))];
}

void Executor::submit(Slot &entry, Request request) {
  request.after = request.write ? entry.writing : last_of(entry.writing, entry.reading);
  const Ticket ticket = pump_->submit(request);
  if (!request.write) entry.writing = no_ticket;
  (request.write ? entry.writing : entry.reading) = ticket;
}

void Executor::transfer(bool write, Array array, long level, long z, const Cut &cut) {
  Slot &entry = slot(level, z);
  entry.place = window_.place(z);
  if (!write && array == Array::faces) {
    entry.face = cut;
    pump_->wait(face_tickets_[face_index(level, z)]);  // as a rule a block ago
  }
  entry.has_tail = entry.has_tail || (array == Array::source && has_tail(array, cut));
  Request whole = request(array, level, z, cut);
  whole.write = write;
  const bool is_contiguous = cut.columns() == grid_.pitch_cells();
  if (!has_tail(array, cut)) {
    submit(entry, whole);
    if (write && array == Array::faces) face_tickets_[face_index(level, z)] = entry.writing;
    return;
  }
  if (is_contiguous) {  // the tail follows the last row, on disk and in the slot
    whole.length += grid_.tail_bytes();
    submit(entry, whole);
    return;
  }
  submit(entry, whole);
  Request tail = whole;
  tail.offset += static_cast<std::uint64_t>(cut.rows() - 1) * grid_.pitch_bytes + whole.length;
  tail.data = window_.tail(level, z);
  tail.length = grid_.tail_bytes();
  tail.rows = 1;
  submit(entry, tail);
}

Request Executor::request(Array array, long level, long z, const Cut &cut) const {
  Request result;
  result.data = window_.cell(level, z, cut.y0, cut.x0);
  result.length = static_cast<std::size_t>(cut.rows() * cut.columns()) * grid_.item_bytes;
  if (array == Array::faces) {
    const auto face_bytes = static_cast<std::size_t>(files_.faces_rows) * grid_.pitch_bytes;
    assert(cut.rows() <= files_.faces_rows && cut.columns() == grid_.pitch_cells());
    result.file = files_.faces_file;
    result.offset = static_cast<std::uint64_t>(2 * z + (level & 1)) * face_bytes;
    return result;
  }
  const PlaneFiles &files = array == Array::source   ? files_.source
                            : array == Array::target ? files_.target
                                                     : files_.other;
  result.file = files.first_file + static_cast<std::uint32_t>(z / files.planes_per_file);
  result.offset = static_cast<std::uint64_t>(z % files.planes_per_file) * grid_.record_bytes +
                  static_cast<std::uint64_t>(cut.y0) * grid_.pitch_bytes +
                  static_cast<std::uint64_t>(cut.x0) * grid_.item_bytes;
  if (cut.columns() == grid_.pitch_cells()) return result;
  result.length = static_cast<std::size_t>(cut.columns()) * grid_.item_bytes;
  result.rows = static_cast<std::size_t>(cut.rows());
  result.file_stride = grid_.pitch_bytes;
  result.data_stride = window_.pitch_bytes();
  return result;
}

void Executor::report_corruption(Array array, long level, long z) const {
  const bool is_face = array == Array::faces;
  const Request read = request(array, level, z, is_face ? Cut{0, 0, 0, grid_.pitch_cells()} : whole_plane(grid_));
  throw CorruptionError("checksum of " + std::string(is_face ? "rows between blocks of plane " : "plane ") +
                        std::to_string(z) + " does not match: " + store_->path(read.file) + ", offset " +
                        std::to_string(read.offset) + ", length " + std::to_string(grid_.plane_bytes));
}

}  // namespace outcrop
