// Adds doubles without rounding, so that their order does not matter: the sum is an integer, in units of the smallest double.
//
//     lane         66 ... 34 33 32 ... 0            a lane holds 32 bits of the sum, and 31 more for carries that are
//     exponent     large     1.0     tiny           passed on once in a while; a number touches three lanes
//
// After Kulisch's long accumulator. What is not finite is added apart, where order does not matter either.
//
// Many numbers at once are cut at the same bit, far enough up that their high parts have a sum without rounding; what is left
// of them is cut again, lower down, until nothing is:
//
//     largest     1.01100|101                            a cut leaves 53 bits less 10 for the carries of 1024 numbers;
//     others      0.00110|011          sum of high parts ──► lanes          most fields need two or three
//                 0.00000|1101011
//
// After Rump, Ogita and Oishi, "Accurate floating-point summation", SIAM J. Sci. Comput. 31 (2008).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace outcrop {

class ExactSum {
 public:
  static constexpr std::size_t at_once = 1024;

  void add(double value);

  /// The same for at most `at_once` of them, of which nothing is left afterwards.
  void add(double *values, std::size_t count);
  void add(const ExactSum &other);

  /// The sum of all finite numbers in units of 2^-1074: little-endian, two's complement.
  std::vector<std::byte> integer() const;

  /// The sum of the others; 0 where there is none.
  double special() const { return special_; }

 private:
  static constexpr std::size_t lanes = 68;  // 2^1024 and room for 2^60 such numbers
  static constexpr std::uint32_t adds_most = 1u << 29;

  void carry();

  std::array<std::int64_t, lanes> lanes_{};
  std::uint32_t adds_ = 0;  // since the last carry
  double special_ = 0;
};

}  // namespace outcrop
