// Sums over all cells of a field after a step, taken in parts while rows are in a cache.
//
// Parts come in any order, from any thread, and cut by any plan, and the result must not depend on that. So neighbours are added
// up in groups of 64 bytes, which no plan cuts (cells beyond nx count as 0), in a fixed order. The groups are then added
// exactly:
//
//     |0 1 2 3 4 5 6 7|8 9 ...     0+4, 1+5, 2+6, 3+7, then the first two sums plus the last two, then both, in float64
//
// ExactSum adds doubles without rounding, so that their order does not matter. The sum is an integer in units of the smallest
// double:
//
//     limb         66 ... 34 33 32 ... 0            a limb holds 32 bits of the sum, and 31 more for carries, which are
//     exponent     large     1.0     tiny           passed on from time to time; a number touches three limbs
//
// This is Kulisch's long accumulator. Numbers that are not finite are added separately, where order does not matter either.
//
// Many numbers at once are cut at the same bit, so far up that their high parts have a sum without rounding. The rest of the
// numbers is cut again, lower down, until nothing is left:
//
//     largest     1.01100|101                            a cut leaves 53 bits less 10 for the carries of 1024 numbers;
//     others      0.00110|011          sum of high parts ──► limbs          most fields need two or three cuts
//                 0.00000|1101011
//
// After Rump, Ogita and Oishi, "Accurate floating-point summation", SIAM J. Sci. Comput. 31 (2008).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// An exact sum of doubles.
class ExactSum {
 public:
  static constexpr std::size_t at_once = 1024;

  void add(double value);

  /// Adds `count` <= `at_once` numbers, and sets them to zero.
  void add(double *values, std::size_t count);
  void add(const ExactSum &other);

  /// The sum of all finite numbers in units of 2^-1074: little-endian, two's complement.
  std::vector<std::byte> integer() const;

  /// The sum of the numbers that are not finite; 0 if there are none.
  double special() const { return special_; }

 private:
  static constexpr std::size_t limbs = 68;  // 2^1024 and room for 2^60 such numbers
  static constexpr std::uint32_t max_adds = 1u << 29;

  void carry();

  std::array<std::int64_t, limbs> limbs_{};
  std::uint32_t adds_ = 0;  // since the last carry
  double special_ = 0;
};

/// A request for the sums of a field after `done` steps of the pass; 0: of the values before the first step.
struct SumRequest {
  std::size_t field = 0;
  long done = 1;
};

/// Sums over the values and their squares, and the extremes of those that are numbers.
struct FieldSum {
  ExactSum sum, squares;
  double minimum = std::numeric_limits<double>::infinity(), maximum = -std::numeric_limits<double>::infinity();

  void add(const FieldSum &other);
};

/// The sums of a pass. All arguments must outlive this.
class GridSums {
 public:
  GridSums(const Grid &grid, const Window &window, const Fields &fields, std::vector<SumRequest> requests);

  /// Adds a part of the planes z0 <= position < z1 as it is after `done` steps. Every cell must be added exactly once.
  void add(long done, long z0, long z1, const Rectangle &cells);

  /// Adds cells that no step changes.
  void add_rim(long position, const Rectangle &cells);

  /// In the order of the requests; between passes only.
  const std::vector<FieldSum> &results() const { return results_; }
  bool empty() const { return requests_.empty(); }

 private:
  FieldSum sum(std::size_t ring, long z0, long z1, const Rectangle &cells) const;
  void add(std::size_t request, const FieldSum &part);

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  const std::vector<SumRequest> requests_;
  std::multimap<long, std::size_t> by_step_;
  std::mutex mutex_;
  std::vector<FieldSum> results_;
};

}  // namespace outcrop
