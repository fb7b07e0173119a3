// Runs a small problem on several ranks for tests. Each rank is a thread with its own executor and its own files in
// memory, and has the rows of its part. The passes have the actions of plan/schemes/wavefront.py with neighbours.
//
// The kernels have no radius in x. Their weights differ for each neighbour, so that a wrong row gives wrong bits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/exec/executor.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop::ranks {

enum class Side { fixed, mirror, periodic, neighbour };

/// The equation determines the fields. heat: one field with two copies. wave: a field with its previous value, and a
/// static field that updates read at neighbouring cells. pair: two fields that are updated in place, one after the
/// other, in two stages of a step.
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
  long group = 1;  // the frame begins at a multiple of this number of rows
  std::string backend = "memory", folder = "";

  long max_levels() const { return *std::ranges::max_element(passes); }
};

/// The rows of a rank, and the sides of these rows.
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

/// What the kernels need, in addition to the arguments of a call.
struct KernelData {
  long radius_z = 1, radius_y = 1;
  Side low = Side::fixed, high = Side::fixed;
  std::atomic<long> faults{0}, calls{0};
  long event_at = -1;  // the number of the call that begins the event
  std::function<void()> event;
};

inline KernelData &data_of(const outcrop_block *block) { return **static_cast<KernelData *const *>(block->scalars); }

/// Returns the row that holds the values of row y. A row beyond a fixed boundary or a neighbour must not be needed.
inline long row_of(KernelData &data, const outcrop_block *block, long y) {
  if (y >= 0 && y < block->ny) return y;
  const Side side = y < 0 ? data.low : data.high;
  if (side == Side::periodic) return y < 0 ? y + block->ny : y - block->ny;
  if (side == Side::mirror) return y < 0 ? -1 - y : 2 * block->ny - 1 - y;
  ++data.faults;
  return std::clamp(y, 0L, block->ny - 1);
}

/// Returns the weighted sum over all neighbours of a cell. If `factor` is not negative, each value is multiplied by the
/// value of this operand.
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
  grid.plane_bytes = static_cast<std::size_t>(part.rows) * grid.pitch_bytes;
  grid.record_bytes = round_up(grid.plane_bytes + 8, AlignedMemory::page_bytes);
  return grid;
}

/// Returns the frame of a pass of `levels` levels.
inline Rectangle frame_of(const Problem &problem, const Part &part, long levels) {
  const long halo = problem.radius_y * levels, group = problem.group;
  const long low = part.low == Side::neighbour ? (halo + group - 1) / group * group : 0;
  const long high = part.high == Side::neighbour ? halo : 0;
  return {-low, part.rows + high, 0, problem.pitch_bytes / 4};
}

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

/// Makes the actions of a pass.
inline Pass make_pass(const Problem &problem, const Part &part, long levels) {
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
  const auto advance = [&](long &done, long end) {
    const long first = done;
    done = std::max(done, std::min(end, grid.nz));
    return std::pair(first, done);
  };
  const auto read_to = [&](long zeta) {
    if (const auto [z0, z1] = advance(read, zeta + skew); z1 > z0) {
      actions.push_back(ReadAction{z0, z1, own, Array::source, 0});
      exchange(z0, z1, Array::faces);
    }
    if (problem.equation != Equation::wave) return;
    if (const auto [z0, z1] = advance(read_statics, zeta + grid.statics_z); z1 > z0) {
      actions.push_back(ReadAction{z0, z1, own, Array::statics, 0});
      exchange(z0, z1, Array::static_faces);
    }
  };
  const auto copy_to = [&](long end) {
    if (const auto [z0, z1] = advance(copied, end); z1 > z0) actions.push_back(CopyAction{z0, z1, frame, frame});
  };
  const auto write_to = [&](long end) {
    if (const auto [z0, z1] = advance(written, end); z1 > z0)
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

/// Returns the initial value of a cell of an array, between -1 and 1. `y` is a row of the whole grid.
inline float initial_value(std::size_t array, long z, long y, long x) {
  auto bits = static_cast<std::uint64_t>(((static_cast<long>(array) * 1009 + z) * 1013 + y) * 1019 + x + 1);
  bits *= 0x9E3779B97F4A7C15;
  bits ^= bits >> 29;
  bits *= 0xBF58476D1CE4E5B9;
  return static_cast<float>(bits >> 40) / static_cast<float>(1 << 23) - 1;
}

/// A rank: its part, its files and its executor. The files are copy 0 of the arrays of the state, copy 1, and the static
/// arrays.
class Rank {
 public:
  Rank(const Problem &problem, const Part &part, const Links &links, const Faults &faults = {}, unsigned number = 0)
      : problem_(problem), part_(part), grid_(grid_of(problem, part)), fields_(fields_of(problem.equation)) {
    data_.radius_z = problem.radius_z, data_.radius_y = problem.radius_y;
    data_.low = part.low, data_.high = part.high;
    states_ = fields_.state().size();
    arrays_ = 2 * states_ + fields_.statics().size();
    open_files(faults, number);
    ExecutorOptions options;
    options.placement = ThreadPlacement{{}, problem.node_threads, {}, false};
    for (unsigned node = 0; node < problem.node_threads.size(); ++node) {
      options.placement.threads.insert(options.placement.threads.end(), problem.node_threads[node],
                                       ThreadPlace{node, 0});
      options.placement.node_indices.push_back(0);
    }
    options.rings = rings_of(problem, part);
    options.max_levels = problem.max_levels();
    options.tiling = problem.tiling;
    options.links = links;
    executor_ = std::make_unique<Executor>(grid_, options, fields_, stages_of(problem.equation), store_.get());
  }

  /// Runs all passes.
  void run() {
    KernelData *const pointer = &data_;
    const auto *first = reinterpret_cast<const std::byte *>(&pointer);
    for (const long levels : problem_.passes) {
      PassFiles files;
      for (std::size_t i = 0; i < states_; ++i) {
        files.source.push_back(files_of(newest_ * states_ + i));
        files.target.push_back(files_of((1 - newest_) * states_ + i));
      }
      for (std::size_t i = 2 * states_; i < arrays_; ++i) files.statics.push_back(files_of(i));
      executor_->run(make_pass(problem_, part_, levels), files, {first, first + sizeof pointer});
      newest_ = 1 - newest_;
    }
  }

  /// Returns the rows of plane z of array `index` of the state. The result is empty if the checksum or the seal behind
  /// the plane is wrong.
  std::vector<std::byte> plane(std::size_t index, long z) const {
    std::vector<std::byte> record(grid_.record_bytes);
    const auto file = static_cast<std::uint32_t>(newest_ * states_ + index);
    store_->read(file, static_cast<std::uint64_t>(z) * grid_.record_bytes, record.data(), record.size());
    std::uint32_t tail[2];
    std::memcpy(tail, record.data() + grid_.plane_bytes, sizeof tail);
    record.resize(grid_.plane_bytes);
    const std::uint32_t crc = crc32c(record);
    const bool right = tail[0] == crc && tail[1] == plane_seal(static_cast<std::uint64_t>(z), crc, 0);
    return right ? record : std::vector<std::byte>();
  }

  std::size_t states() const { return states_; }
  KernelData &data() { return data_; }
  const Part &part() const { return part_; }
  const Grid &grid() const { return grid_; }
  Executor &executor() { return *executor_; }

 private:
  PlaneFiles files_of(std::size_t array) const { return {static_cast<std::uint32_t>(array), grid_.nz}; }

  void open_files(const Faults &faults, unsigned number) {
    std::vector<FileSpec> specs;
    for (std::size_t array = 0; array < arrays_; ++array) {
      const std::string name = problem_.folder + "/rank" + std::to_string(number) + "-" + std::to_string(array);
      const auto bytes = static_cast<std::uint64_t>(grid_.nz) * grid_.record_bytes;
      if (problem_.backend != "memory") File::create(name, bytes);
      specs.push_back({.path = name, .writable = true, .size = bytes});
    }
    store_ = open_store(problem_.backend, specs, {.faults = faults});
    const AlignedMemory record(grid_.record_bytes);
    for (std::size_t array = 0; array < arrays_; ++array) {
      if (array >= states_ && array < 2 * states_) continue;
      for (long z = 0; z < grid_.nz; ++z) {
        for (long y = 0; y < grid_.ny; ++y)
          for (long x = 0; x < grid_.nx; ++x)
            reinterpret_cast<float *>(record.data())[y * grid_.pitch_cells() + x] =
                initial_value(array, z, part_.first + y, x);
        const std::uint32_t crc = crc32c({record.data(), grid_.plane_bytes});
        const std::uint32_t tail[] = {crc, plane_seal(static_cast<std::uint64_t>(z), crc, 0)};
        std::memcpy(record.data() + grid_.plane_bytes, tail, sizeof tail);
        store_->write(static_cast<std::uint32_t>(array), static_cast<std::uint64_t>(z) * grid_.record_bytes,
                      record.data(), grid_.record_bytes);
      }
    }
  }

  const Problem problem_;
  const Part part_;
  const Grid grid_;
  const Fields fields_;
  KernelData data_;
  std::size_t states_ = 0, arrays_ = 0, newest_ = 0;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Executor> executor_;  // the last member, because it uses the store
};

}  // namespace outcrop::ranks
