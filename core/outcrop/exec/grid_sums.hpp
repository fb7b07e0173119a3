// Sums over all cells of a field after a step, taken in parts while rows are in a cache.
//
// The parts come in any order, from any thread, and depend on the plan, but the result must not. So the cells of each
// group of 64 bytes, which no plan divides, are added in a fixed order (cells beyond nx count as 0). The groups are
// then added exactly:
//
//     |0 1 2 3 4 5 6 7|8 9 ...     0+4, 1+5, 2+6, 3+7, then the first two sums plus the last two, then both, in float64
//
// ExactSum adds doubles without rounding, so their order does not matter. The sum is an integer in units of the
// smallest double:
//
//     limb         66 ... 34 33 32 ... 0         a limb holds 32 bits of the sum, and 31 more for carries, which go to
//     exponent     large     1.0     tiny        the next limb from time to time; a number changes three limbs
//
// This is Kulisch's long accumulator. Infinities and NaNs are added separately; their order does not matter either.
//
// Many numbers at once are split at the same bit. The bit is so high that the sum of their high parts needs no
// rounding. The low parts are split again, at a lower bit, until all are zero:
//
//     largest     1.01100|101                      a high part has 53 bits less 10 for the carries of 1024 numbers;
//     others      0.00110|011          sum of high parts ──► limbs       most fields need two or three splits
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

  /// The sum of the infinities and NaNs; 0 if there are none.
  double special() const { return special_; }

 private:
  static constexpr std::size_t limbs = 68;  // enough for 2^60 numbers of 2^1024
  static constexpr std::uint32_t max_adds = 1u << 29;

  void carry();

  std::array<std::int64_t, limbs> limbs_{};
  std::uint32_t adds_ = 0;  // number of additions since the last carry
  double special_ = 0;
};

/// A request for the sums of a field after `done` steps of the pass; 0: of the values before the first step.
struct SumRequest {
  std::size_t field = 0;
  long done = 1;
};

/// The sums of the values and of their squares, and the minimum and maximum without NaNs.
struct FieldSum {
  ExactSum sum, squares;
  double minimum = std::numeric_limits<double>::infinity(), maximum = -std::numeric_limits<double>::infinity();

  void add(const FieldSum &other);
};

/// The sums of a pass. All arguments must outlive this.
class GridSums {
 public:
  GridSums(const Grid &grid, const Window &window, const Fields &fields, std::vector<SumRequest> requests);

  /// Adds a part of the planes z0 <= position < z1 with its values after `done` steps. Every cell must be added exactly
  /// once.
  void add(long done, long z0, long z1, const Rectangle &cells);

  /// Adds cells that no step changes.
  void add_rim(long position, const Rectangle &cells);

  /// The sums in the order of the requests; only between passes.
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
