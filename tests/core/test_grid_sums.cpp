// These tests check exact sums. The bits of a sum must not depend on the order of its terms.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "outcrop/exec/acquisition.hpp"

namespace outcrop {
namespace {

ExactSum sum_of(const std::vector<double> &values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

// Returns very large and very small numbers of both signs, including subnormal numbers.
std::vector<double> wild_numbers(std::size_t count) {
  std::mt19937_64 random(3);
  std::vector<double> values;
  while (values.size() < count) {
    const double value = std::bit_cast<double>(random());
    if (std::isfinite(value)) values.push_back(value);
  }
  for (const double value : {0.0, -0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max(),
                             -std::numeric_limits<double>::max(), std::numeric_limits<double>::min()})
    values.push_back(value);
  return values;
}

TEST(ExactSum, CountsInUnitsOfTheSmallestDouble) {
  const std::vector<std::byte> three = sum_of({1.5e-323, -5e-324, 5e-324}).integer();  // 3 - 1 + 1 units
  EXPECT_EQ(three[0], std::byte{3});
  EXPECT_TRUE(std::all_of(three.begin() + 1, three.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  const std::vector<std::byte> minus = sum_of({-5e-324}).integer();
  EXPECT_TRUE(std::all_of(minus.begin(), minus.end(), [](std::byte byte) { return byte == std::byte{255}; }));
  const std::vector<std::byte> one = sum_of({1}).integer();
  EXPECT_EQ(one[1074 / 8], std::byte{1 << 1074 % 8});
}

TEST(ExactSum, OrderAndPartsDoNotMatter) {
  std::vector<double> values = wild_numbers(3000);
  const std::vector<std::byte> once = sum_of(values).integer();
  std::mt19937 random(5);
  for (int i = 0; i < 5; ++i) {
    std::shuffle(values.begin(), values.end(), random);
    ExactSum parts;
    for (std::size_t first = 0; first < values.size(); first += 500) {
      const std::size_t end = std::min(values.size(), first + 500);
      parts.add(sum_of({values.begin() + static_cast<long>(first), values.begin() + static_cast<long>(end)}));
    }
    EXPECT_EQ(parts.integer(), once);
  }
}

// Returns the sum of the values. The values are added in groups of at most `at_once` values.
ExactSum sum_at_once(std::vector<double> values, std::size_t at_once) {
  ExactSum sum;
  for (std::size_t first = 0; first < values.size(); first += at_once)
    sum.add(values.data() + first, std::min(at_once, values.size() - first));
  return sum;
}

TEST(ExactSum, ManyAtOnceAreTheSameAsOneByOne) {
  std::vector<double> near = wild_numbers(0), wild = wild_numbers(3000);
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 5000; ++i) near.push_back(normal(random) * std::exp(-i / 100.0));
  std::vector<double> tiny = {3 * std::numeric_limits<double>::denorm_min(), -0.0, 0.0};
  std::vector<double> ends(ExactSum::at_once,
                           1 + std::numeric_limits<double>::epsilon());  // the largest possible sum of high parts
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{7}, std::size_t{64}, ExactSum::at_once})
    for (const auto &values : {near, wild, tiny, ends, std::vector<double>(100, -2.0)})
      EXPECT_EQ(sum_at_once(values, at_once).integer(), sum_of(values).integer());
}

TEST(ExactSum, ManyAtOnceKeepWhatIsNotFiniteApart) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {1, -infinity, 2, 1e300, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(sum_at_once(values, values.size()).special(), -infinity);
  EXPECT_EQ(sum_at_once(values, values.size()).integer(), sum_of(values).integer());
  const std::vector<double> odd = {1, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(sum_at_once(odd, odd.size()).special()));
  EXPECT_EQ(sum_at_once(odd, odd.size()).integer(), sum_of({1}).integer());
}

TEST(ExactSum, EverythingAndItsOppositeCancel) {
  ExactSum sum = sum_of(wild_numbers(1000));
  for (const double value : wild_numbers(1000)) sum.add(-value);
  EXPECT_EQ(sum.integer(), ExactSum().integer());
}

TEST(ExactSum, WhatIsNotFiniteIsKeptApart) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sum_of({1, 2}).special(), 0);
  EXPECT_EQ(sum_of({1, infinity, 2}).special(), infinity);
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity}).special()));
  ExactSum sum = sum_of({1});
  sum.add(sum_of({-infinity}));
  EXPECT_EQ(sum.special(), -infinity);
  EXPECT_EQ(sum.integer(), sum_of({1}).integer());
}

}  // namespace
}  // namespace outcrop
