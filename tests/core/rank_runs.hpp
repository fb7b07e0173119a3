// Runs a small problem on several ranks for tests. Each rank is a thread with its own executor, and with its own files
// in memory for the rows of its part.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/exec/executor.hpp"
#include "outcrop/storage/checksums.hpp"
#include "rank_plans.hpp"
#include "rank_problems.hpp"

namespace outcrop::ranks {

/// Returns the initial value of a cell of an array, between -1 and 1. `y` is a row of the whole grid.
inline float initial_value(std::size_t array, long z, long y, long x) {
  auto bits = static_cast<std::uint64_t>(((static_cast<long>(array) * 1009 + z) * 1013 + y) * 1019 + x + 1);
  bits *= 0x9E3779B97F4A7C15;
  bits ^= bits >> 29;
  bits *= 0xBF58476D1CE4E5B9;
  return static_cast<float>(bits >> 40) / static_cast<float>(1 << 23) - 1;
}

/// Functions that a rank calls with the number of a pass. The rank calls `before_write` before the first write of the
/// pass, and `after_pass` after the pass.
struct Hooks {
  std::function<void(std::size_t)> before_write, after_pass;
};

/// A rank: its part, its files and its executor. The files of copy 0 of the state come first, the files of copy 1 come
/// second, and the files of static arrays come last.
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
  void run(const Hooks &hooks = {}) {
    KernelData *const pointer = &data_;
    const auto *first = reinterpret_cast<const std::byte *>(&pointer);
    for (std::size_t pass = 0; pass < problem_.passes.size(); ++pass) {
      PassFiles files;
      for (std::size_t i = 0; i < states_; ++i) {
        files.source.push_back(files_of(newest_ * states_ + i));
        files.target.push_back(files_of((1 - newest_) * states_ + i));
      }
      for (std::size_t i = 2 * states_; i < arrays_; ++i) files.statics.push_back(files_of(i));
      std::function<void()> wait;
      if (hooks.before_write) wait = [&] { hooks.before_write(pass); };
      executor_->run(make_pass(problem_, part_, problem_.passes[pass]), files, {first, first + sizeof pointer}, {}, {},
                     wait);
      newest_ = 1 - newest_;
      if (hooks.after_pass) hooks.after_pass(pass);
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

  /// Changes one byte of a row on disk. The row is in an array that the first pass reads.
  void damage(std::size_t array, long z, long y) {
    std::vector<std::byte> record(grid_.record_bytes);
    const auto file = static_cast<std::uint32_t>(array);
    const std::uint64_t offset = static_cast<std::uint64_t>(z) * grid_.record_bytes;
    store_->read(file, offset, record.data(), record.size());
    record[static_cast<std::size_t>(y) * grid_.pitch_bytes + 2] ^= std::byte{1};
    store_->write(file, offset, record.data(), record.size());
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
