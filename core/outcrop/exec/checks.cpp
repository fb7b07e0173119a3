#include "outcrop/exec/checks.hpp"

#include <cstddef>

#include "outcrop/storage/seal.hpp"

namespace outcrop {

Checks::Checks(const Grid &grid, const Window &window, const Fields &fields)
    : grid_(grid), window_(window), fields_(fields) {
  const auto planes = static_cast<std::size_t>(grid.nz);
  const auto add = [&](std::deque<Sums> &arrays, Array array, std::size_t index, std::size_t ring) {
    arrays.push_back(
        Sums{Lane{array, index, ring}, PlaneSums(grid), std::vector<Tail>(planes), std::vector<bool>(planes)});
  };
  for (std::size_t i = 0; i < fields.state().size(); ++i) {
    add(sources_, Array::source, i, fields.ring(fields.state()[i], 0));
    add(targets_, Array::target, i, fields.ring(fields.state()[i], 0));
  }
  for (std::size_t i = 0; i < fields.statics().size(); ++i)
    add(sources_, Array::statics, i, fields.ring(fields.statics()[i], 0));
}

void Checks::begin_pass(long steps, bool reads_statics, const PassFiles &files) {
  reading_ = reads_statics ? sources_.size() : fields_.state().size();
  for (std::size_t i = 0; i < reading_; ++i) sources_[i].seed = files_of(files, sources_[i].lane).seed;
  for (Sums &one : sources_) {
    one.sums.clear();
    one.checked.assign(one.checked.size(), false);
  }
  for (Sums &one : targets_) {
    one.sums.clear();
    one.lane.ring = fields_.ring(fields_.state()[one.lane.index], steps);
    one.seed = files_of(files, one.lane).seed;
  }
}

std::vector<RingSums> Checks::source_sums() { return pointers(sources_, reading_); }
std::vector<RingSums> Checks::target_sums() { return pointers(targets_, targets_.size()); }

std::vector<RingSums> Checks::pointers(std::deque<Sums> &arrays, std::size_t count) const {
  std::vector<RingSums> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back({arrays[i].lane.ring, &arrays[i].sums});
  return result;
}

void Checks::keep(std::size_t ring, long z) {
  for (Sums &one : sources_)
    if (one.lane.ring == ring)
      std::memcpy(&one.expected[static_cast<std::size_t>(z)], window_.tail(ring, z), sizeof(Tail));
}

std::uint32_t Checks::seal(const Sums &array, long z) const {
  return plane_seal(static_cast<std::uint64_t>(grid_.plane(z)), array.sums.value(z), array.seed);
}

void Checks::add(std::deque<Sums> &arrays, std::size_t count, long z, const Cut &cut) {
  for (std::size_t i = 0; i < count; ++i)
    arrays[i].sums.add(z, window_.origin(arrays[i].lane.ring, z), window_.pitch_bytes(), cut);
}

std::optional<Checks::Wrong> Checks::wrong(long z) {
  const auto place = static_cast<std::size_t>(z);
  for (std::size_t i = 0; i < reading_; ++i) {
    Sums &one = sources_[i];
    if (one.checked[place] || !one.sums.is_whole(z)) continue;
    one.checked[place] = true;
    if (one.sums.value(z) != one.expected[place].crc) return Wrong{one.lane, false};
    if (seal(one, z) != one.expected[place].seal) return Wrong{one.lane, true};
  }
  return std::nullopt;
}

// A record may be written before its plane is final; its checksum then comes with the last of its cells.
void Checks::finish_record(const Lane &target, long z) const {
  const Sums &array = targets_[target.index];
  if (!array.sums.is_whole(z)) return;
  const Tail known{array.sums.value(z), seal(array, z)};
  std::byte *tail = window_.tail(target.ring, z);
  std::memset(tail, 0, grid_.tail_bytes());
  std::memcpy(tail, &known, sizeof known);
}

}  // namespace outcrop
