// Computes sums over all cells of a field after a step, part by part, while rows are in a cache.
//
// The plan and the threads determine the parts and their order, but the result must not depend on the parts or their
// order. So the cells are divided into groups of 64 bytes. A part always consists of whole groups. The cells of a group
// are added in a fixed order (cells after nx count as 0), and the sums of the groups are then added exactly:
//
//     |0 1 2 3 4 5 6 7|8 9 ...
//
// In float64, a group has 8 cells. The sums 0+4, 1+5, 2+6 and 3+7 are computed first. Then the first half of these four
// sums is added to the second half. The result is two sums, which are added last.
//
// ExactSum adds doubles without rounding, so the order of the doubles does not matter. The sum is an integer in units
// of the smallest double:
//
//     limb         66 ... 34 33 32 ... 0
//     exponent     large     1.0     tiny
//
// A limb holds 32 bits of the sum and 31 bits for carries. From time to time, the carries are moved to the next limb.
// The addition of a number changes three limbs. This representation is Kulisch's long accumulator. Infinities and NaNs
// are added separately.
//
// One call adds up to 1024 numbers. All these numbers are split at the same bit into a high part and a low part. This
// bit is so high that the sum of the high parts needs no rounding. The low parts are split again at a lower bit, until
// all low parts are zero:
//
//     largest     1.01100|101
//     others      0.00110|011          sum of high parts ──► limbs
//                 0.00000|1101011
//
// A high part has 53 - 10 bits, because the sum of 1024 numbers needs 10 bits for carries. Most fields need two or
// three splits. The method is from Rump, Ogita and Oishi, "Accurate floating-point summation", SIAM J. Sci. Comput. 31
// (2008).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// An exact sum of doubles.
class ExactSum {
 public:
  static constexpr std::size_t at_once = 1024;

  void add(double value);

  /// Adds `count` numbers, at most `at_once`. Sets the numbers in `values` to zero.
  void add(double *values, std::size_t count);
  void add(const ExactSum &other);

  /// Returns the sum of all finite numbers in units of 2^-1074, as a little-endian integer in two's complement.
  std::vector<std::byte> integer() const;

  /// Returns the sum of the infinities and NaNs that were added, or 0 if none was added.
  double special() const { return special_; }

 private:
  static constexpr std::size_t limbs = 68;  // enough limbs for a sum of 2^60 numbers, each below 2^1024
  static constexpr std::uint32_t max_adds = 1u << 29;

  void carry();

  std::array<std::int64_t, limbs> limbs_{};
  std::uint32_t adds_ = 0;  // number of additions since the carries were last moved
  double special_ = 0;
};

/// A request for the sums of a field after `done` steps of the pass. If `done` is 0, the values before the first step
/// are summed.
struct SumRequest {
  std::size_t field = 0;
  long done = 1;
};

/// The sum of the values, the sum of their squares, the minimum and the maximum. Minimum and maximum ignore NaNs.
struct FieldSum {
  ExactSum sum, squares;
  double minimum = std::numeric_limits<double>::infinity(), maximum = -std::numeric_limits<double>::infinity();

  void add(const FieldSum &other);
};

/// Computes the sums of a pass. All arguments must outlive this object.
class GridSums {
 public:
  GridSums(const Grid &grid, const Window &window, const Fields &fields, std::vector<SumRequest> requests);

  /// Adds the cells of a part of the planes z0 <= position < z1. The cells must hold their values after `done` steps.
  /// Every cell must be added exactly once.
  void add(long done, long z0, long z1, const Rectangle &cells);

  /// Adds cells to the sums of all requests. No step may change these cells.
  void add_rim(long position, const Rectangle &cells);

  /// Returns the sums in the order of the requests. Must be called only between passes.
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
