// These tests check that assign() finds the minimum of the costs over all assignments.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <vector>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {
namespace {

struct Instance {
  std::size_t rows;
  Columns columns;
  std::vector<double> costs;
};

// Returns random costs and rooms. The costs are small whole numbers, so that many costs are equal. The columns have
// little room, and some groups have no columns.
Instance random_instance(std::mt19937 &random) {
  const auto below = [&](unsigned limit) { return static_cast<std::uint32_t>(random() % limit); };
  while (true) {
    Instance one;
    const std::uint32_t groups = 1 + below(4);
    for (std::uint32_t group = 0; group < groups; ++group) {
      one.columns.group_room.push_back(below(4));
      for (std::uint32_t column = below(4); column > 0; --column) {
        one.columns.group.push_back(group);
        one.columns.room.push_back(below(3));
      }
    }
    const std::uint64_t most = places(one.columns);
    one.rows = std::min<std::uint64_t>(most, 1 + below(5));
    if (one.rows == 0) continue;
    for (std::size_t i = 0; i < one.rows * one.columns.group.size(); ++i) one.costs.push_back(below(12));
    return one;
  }
}

bool fits(const Instance &one, const std::vector<std::uint32_t> &taken) {
  std::vector<std::uint32_t> in_column(one.columns.room.size()), in_group(one.columns.group_room.size());
  for (const std::uint32_t column : taken)
    if (++in_column[column] > one.columns.room[column] ||
        ++in_group[one.columns.group[column]] > one.columns.group_room[one.columns.group[column]])
      return false;
  return true;
}

double sum_of(const Instance &one, const std::vector<std::uint32_t> &taken) {
  double sum = 0;
  for (std::size_t row = 0; row < taken.size(); ++row) sum += one.costs[row * one.columns.group.size() + taken[row]];
  return sum;
}

void try_everything(const Instance &one, std::vector<std::uint32_t> &taken, double &least) {
  if (!fits(one, taken)) return;
  if (taken.size() == one.rows) {
    least = std::min(least, sum_of(one, taken));
    return;
  }
  for (std::uint32_t column = 0; column < one.columns.group.size(); ++column) {
    taken.push_back(column);
    try_everything(one, taken, least);
    taken.pop_back();
  }
}

TEST(AggregateAssignment, IsTheLeastThatTryingEverythingFinds) {
  std::mt19937 random(7);
  int dearer_in_turn = 0;
  for (int i = 0; i < 2000; ++i) {
    const Instance one = random_instance(random);
    std::vector<std::uint32_t> taken;
    double least = std::numeric_limits<double>::infinity();
    try_everything(one, taken, least);
    const std::vector<std::uint32_t> found = assign(one.rows, one.columns, one.costs);
    ASSERT_TRUE(fits(one, found)) << i;
    ASSERT_EQ(sum_of(one, found), least) << i;
    const std::vector<std::uint32_t> in_turn = assign_in_turn(one.rows, one.columns, one.costs);
    ASSERT_TRUE(fits(one, in_turn)) << i;
    ASSERT_GE(sum_of(one, in_turn), least) << i;
    dearer_in_turn += sum_of(one, in_turn) > least;
  }
  EXPECT_GT(dearer_in_turn, 100);  // the test is useful only if assign_in_turn() often finds a higher sum
}

TEST(AggregateAssignment, EqualCostsGoToTheLowestColumns) {
  const Columns columns{{0, 1, 2, 3}, {1, 1, 1, 1}, {1, 1, 1, 1}};
  const std::vector<std::uint32_t> found = assign(3, columns, std::vector<double>(12, 1.0));
  EXPECT_EQ(std::set<std::uint32_t>(found.begin(), found.end()), (std::set<std::uint32_t>{0, 1, 2}));
}

}  // namespace
}  // namespace outcrop::aggregate
