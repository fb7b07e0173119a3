// Checksums of the arrays of a pass: what came with each plane of the sources, what their cells add up to, and what goes out
// with each plane of the targets.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "outcrop/exec/plane_sums.hpp"
#include "outcrop/exec/transfers.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

class Checks {
 public:
  Checks(const Grid &grid, const Window &window, const Fields &fields);

  /// Begins a pass of `steps` steps, which reads the arrays that never change or has them in memory.
  void begin_pass(long steps, bool reads_statics);

  /// What the traversal is to take checksums of.
  std::vector<RingSums> source_sums();
  std::vector<RingSums> target_sums();

  /// Keeps the checksum that has come with plane z into a ring.
  void keep(std::size_t ring, long z);

  /// Adds cells that no update will touch, before and after they are brought to their last level.
  void add_to_sources(long z, const Cut &cut) { add(sources_, reading_, z, cut); }
  void add_to_targets(long z, const Cut &cut) { add(targets_, targets_.size(), z, cut); }

  /// Compares the checksums of plane z, once, in those arrays all of whose cells have been added; null when all is well.
  const Lane *wrong(long z);

  /// Puts the checksum behind plane z in a slot, once it is known.
  void finish_record(const Lane &target, long z) const;

 private:
  struct Sums {
    Lane lane;
    PlaneSums sums;
    std::vector<std::uint32_t> expected;
    std::vector<bool> checked;
  };

  void add(std::deque<Sums> &arrays, std::size_t count, long z, const Cut &cut);
  std::vector<RingSums> pointers(std::deque<Sums> &arrays, std::size_t count) const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::deque<Sums> sources_;  // the state's arrays, then those that never change
  std::deque<Sums> targets_;
  std::size_t reading_ = 0;  // sources that are read in this pass
};

}  // namespace outcrop
