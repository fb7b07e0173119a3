// Checksums and seals of the arrays of a pass: what came with each plane of the sources, what their cells add up to, and what goes
// out with each plane of the targets.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "outcrop/exec/plane_sums.hpp"
#include "outcrop/exec/transfers.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

class Checks {
 public:
  Checks(const Grid &grid, const Window &window, const Fields &fields);

  /// Begins a pass of `steps` steps, which reads the arrays that never change or has them in memory. `files` have the seeds.
  void begin_pass(long steps, bool reads_statics, const PassFiles &files);

  /// What the traversal is to take checksums of.
  std::vector<RingSums> source_sums();
  std::vector<RingSums> target_sums();

  /// Keeps the checksum and the seal that have come with plane z into a ring.
  void keep(std::size_t ring, long z);

  /// Adds cells that no update will touch, before and after they are brought to their last level.
  void add_to_sources(long z, const Cut &cut) { add(sources_, reading_, z, cut); }
  void add_to_targets(long z, const Cut &cut) { add(targets_, targets_.size(), z, cut); }

  /// A plane whose checksum is not that of its bytes, or whose seal is that of another plane when it `is_whole`.
  struct Wrong {
    Lane lane;
    bool is_whole = false;
  };

  /// Compares checksums and seals of plane z, once, in those arrays all of whose cells have been added.
  std::optional<Wrong> wrong(long z);

  /// Puts checksum and seal behind plane z in a slot, once they are known.
  void finish_record(const Lane &target, long z) const;

 private:
  /// What follows the bytes of a plane.
  struct Tail {
    std::uint32_t crc = 0, seal = 0;
  };
  struct Sums {
    Lane lane;
    PlaneSums sums;
    std::vector<Tail> expected;
    std::vector<bool> checked;
    std::uint32_t seed = 0;
  };

  void add(std::deque<Sums> &arrays, std::size_t count, long z, const Cut &cut);
  std::vector<RingSums> pointers(std::deque<Sums> &arrays, std::size_t count) const;
  std::uint32_t seal(const Sums &array, long z) const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::deque<Sums> sources_;  // the state's arrays, then those that never change
  std::deque<Sums> targets_;
  std::size_t reading_ = 0;  // sources that are read in this pass
};

}  // namespace outcrop
