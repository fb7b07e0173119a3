#include "outcrop/exec/executor.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "outcrop/base/error.hpp"

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

// Rows shorter than this are not worth parts: a plane of them is in a cache anyway, and parts would cost memory.
constexpr std::size_t shortest_pitch_bytes = 256;
// Parts lie outside the budget, so they must stay a small part of the fixed overhead a run may have above it.
constexpr std::size_t most_parts_bytes = std::size_t{32} << 20;

bool is_worth_parts(const Grid &grid, long planes) {
  return grid.pitch_bytes >= shortest_pitch_bytes && 2 * PlaneSums::bytes(grid, planes) <= most_parts_bytes;
}

}  // namespace

Executor::Executor(const Grid &grid, const ExecutorOptions &options, outcrop_kernel kernel,
                   std::vector<std::byte> scalars, Store *store)
    : grid_(grid),
      options_(options),
      scalars_(std::move(scalars)),
      window_(grid, options.ring_planes),
      team_(options.threads),
      traverse_(team_, grid_, window_, kernel, scalars_.data(), options.tiling, options.levels_max),
      store_(store) {
  for (std::size_t parity = 0; parity < 2; ++parity)
    slots_[parity].resize(static_cast<std::size_t>(options.ring_planes[parity]));
  team_.touch(window_.data(), window_.size());  // no page fault and no refusal comes later
  const long planes = std::min(grid.nz, options.slab_max);
  if (options.checksum && store_ != nullptr && is_worth_parts(grid, planes)) {
    traverse_.sum_into(&source_sums_.emplace(grid, planes), &target_sums_.emplace(grid, planes));
  }
  if (store_ != nullptr) {
    PumpOptions pump_options;
    pump_options.capacity = slots_[0].size() + slots_[1].size() + 2;  // at most one transfer a slot waits
    pump_ = std::make_unique<Pump>(*store_, pump_options);
  }
}

void Executor::run(const Actions &actions, const PlaneFiles &source, const PlaneFiles &target) {
  source_ = source;
  target_ = target;
  admitted_ = 0;
  long levels = 0;
  for (const Action &action : actions)
    if (const auto *update = std::get_if<UpdateAction>(&action)) levels = std::max(levels, update->levels);
  if (levels > 0) traverse_.set_levels(levels);
  for (const Action &action : actions) {
    if (cancelled_) throw Cancelled("the run was cancelled");
    std::visit([this](const auto &one) { perform(one); }, action);
  }
}

void Executor::cancel() {
  cancelled_ = true;
  if (pump_) pump_->cancel();
}

void Executor::perform(const ReadAction &action) {
  for (long z = action.z0; z < action.z1; ++z) {
    Slot &entry = slot(0, z);
    Request read = request(false, source_, z, window_.ring(0).plane(z));
    read.after = entry.writing;
    entry.reading = pump_->submit(read);
    entry.writing = no_ticket;
  }
}

void Executor::perform(const CopyAction &action) {
  admit(action.z1);
  for (long z = action.z0; z < action.z1; ++z) {
    Slot &entry = slot(1, z);
    if (entry.writing == no_ticket) continue;
    const Timer timer(counters_.seconds_write_wait);
    pump_->wait(entry.writing);
    entry.writing = no_ticket;
  }
  const Timer timer(counters_.seconds_copy);
  team_.for_each(action.z1 - action.z0, [&](long i) { copy_rim(action.z0 + i); });
}

void Executor::perform(const UpdateAction &action) {
  admit(std::min(grid_.nz, action.zeta1 + grid_.radius_z));
  {
    const Timer timer(counters_.seconds_update);
    traverse_.update(Slab{action.zeta0, action.zeta1, action.levels}, cancelled_);
  }
  if (cancelled_) throw Cancelled("the run was cancelled");
  if (source_sums_)
    check_planes(std::max(action.zeta0, grid_.first_plane()), std::min(action.zeta1, grid_.end_plane()));
}

void Executor::perform(const WriteAction &action) {
  admit(action.z1);  // planes of the rim may be written without ever having been used
  if (options_.checksum) {
    const Timer timer(counters_.seconds_checksum);
    team_.for_each(action.z1 - action.z0, [&](long i) {
      std::byte *plane = window_.ring(action.level).plane(action.z0 + i);
      const std::uint32_t crc = sum(target_sums_, action.z0 + i, plane);
      std::memcpy(plane + grid_.plane_bytes, &crc, sizeof crc);
    });
  }
  for (long z = action.z0; z < action.z1; ++z)
    slot(action.level, z).writing = pump_->submit(request(true, target_, z, window_.ring(action.level).plane(z)));
}

void Executor::perform(const CommitAction &) {
  {
    const Timer timer(counters_.seconds_write_wait);
    pump_->drain();
  }
  const Timer timer(counters_.seconds_commit);
  store_->flush();
}

// Waits until planes below z_end have arrived, and checks those whose rows no update will sum up.
void Executor::admit(long z_end) {
  if (pump_ == nullptr || z_end <= admitted_) return;
  const long z_begin = std::exchange(admitted_, z_end);
  {
    const Timer timer(counters_.seconds_read_wait);
    for (long z = z_begin; z < z_end; ++z) pump_->wait(slot(0, z).reading);
  }
  if (!options_.checksum) return;
  if (!source_sums_) {
    check_planes(z_begin, z_end);
    return;
  }
  check_planes(z_begin, std::min(z_end, grid_.first_plane()));
  check_planes(std::max({z_begin, grid_.first_plane(), grid_.end_plane()}), z_end);
}

void Executor::check_planes(long z0, long z1) {
  if (z0 >= z1) return;
  const Timer timer(counters_.seconds_checksum);
  std::atomic<long> bad{z1};
  team_.for_each(z1 - z0, [&](long i) {
    const std::byte *plane = window_.ring(0).plane(z0 + i);
    std::uint32_t expected = 0;
    std::memcpy(&expected, plane + grid_.plane_bytes, sizeof expected);
    if (sum(source_sums_, z0 + i, plane) == expected) return;
    long lowest = bad.load();
    while (z0 + i < lowest && !bad.compare_exchange_weak(lowest, z0 + i)) {
    }
  });
  if (bad < z1) report_corruption(bad);
}

std::uint32_t Executor::sum(const std::optional<PlaneSums> &parts, long z, const std::byte *plane) const {
  return parts && is_updated(z) ? parts->join(z, plane) : PlaneSums::sum(grid_, plane);
}

// Kernels carry the rim in x along; rows of the rim in y and planes of the rim in z are never updated, so the odd ring
// gets them once.
void Executor::copy_rim(long z) const {
  const std::byte *source = window_.ring(0).plane(z);
  std::byte *target = window_.ring(1).plane(z);
  const std::size_t rim_bytes = static_cast<std::size_t>(std::min(grid_.ny, grid_.radius_y)) * grid_.pitch_bytes;
  if (z < grid_.first_plane() || z >= grid_.end_plane() || 2 * rim_bytes >= grid_.plane_bytes) {
    std::memcpy(target, source, grid_.plane_bytes);
    return;
  }
  std::memcpy(target, source, rim_bytes);
  const std::size_t last = grid_.plane_bytes - rim_bytes;
  std::memcpy(target + last, source + last, rim_bytes);
}

Executor::Slot &Executor::slot(long level, long z) {
  return slots_[static_cast<std::size_t>(level & 1)][static_cast<std::size_t>(window_.ring(level).slot(z))];
}

Request Executor::request(bool write, const PlaneFiles &files, long z, std::byte *data) const {
  Request result;
  result.write = write;
  result.file = files.first_file + static_cast<std::uint32_t>(z / files.planes_per_file);
  result.offset = static_cast<std::uint64_t>(z % files.planes_per_file) * grid_.record_bytes;
  result.data = data;
  result.length = grid_.record_bytes;
  return result;
}

void Executor::report_corruption(long z) const {
  const Request read = request(false, source_, z, nullptr);
  throw CorruptionError("checksum of plane " + std::to_string(z) + " does not match: " + store_->path(read.file) +
                        ", offset " + std::to_string(read.offset) + ", length " + std::to_string(grid_.plane_bytes));
}

}  // namespace outcrop
