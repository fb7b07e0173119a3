// These tests check the means of groups of cells. Parts of rows arrive in any order and from several threads. The bits
// of the means must be the bits that their definition gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "outcrop/exec/snapshots.hpp"

namespace outcrop {
namespace {

using Means = std::map<std::pair<long, long>, std::vector<double>>;

// A part of a row in the box of a coarse snapshot.
struct Part {
  long z, y, x0, x1;
};

template <typename Item>
struct Box {
  Extents box, group;
  std::vector<Item> cells;

  Box(Extents b, Extents g, unsigned seed) : box(b), group(g), cells(b.cells()) {
    std::mt19937 random(seed);
    std::normal_distribution<double> numbers;
    for (Item &cell : cells) cell = static_cast<Item>(numbers(random));
  }

  const Item &at(long z, long y, long x) const { return cells[static_cast<std::size_t>((z * box.y + y) * box.x + x)]; }

  // Adds the cells of a group along x, then along z, and then along y. Along each axis, the order is from the first to
  // the last cell.
  double mean(long gz, long gy, long gx) const {
    const auto ends = [](long g, long size, long n) { return std::pair{g * size, std::min(n, (g + 1) * size)}; };
    const auto [z0, z1] = ends(gz, group.z, box.z);
    const auto [y0, y1] = ends(gy, group.y, box.y);
    const auto [x0, x1] = ends(gx, group.x, box.x);
    double sum = 0;
    for (long y = y0; y < y1; ++y) {
      double total = 0;
      for (long z = z0; z < z1; ++z) {
        double row = static_cast<double>(at(z, y, x0));
        for (long x = x0 + 1; x < x1; ++x) row += static_cast<double>(at(z, y, x));
        total = z == z0 ? row : total + row;
      }
      sum = y == y0 ? total : sum + total;
    }
    return sum / static_cast<double>((z1 - z0) * (y1 - y0) * (x1 - x0));
  }

  Means by_definition() const {
    Means result;
    const Extents groups = groups_of(box, group);
    for (long z = 0; z < groups.z; ++z)
      for (long y = 0; y < groups.y; ++y)
        for (long x = 0; x < groups.x; ++x) result[{z, y}].push_back(mean(z, y, x));
    return result;
  }

  // Returns the rows of the box in random order. Each row is divided at `cut`. If `cut` is 0, rows are not divided.
  std::vector<Part> parts(long cut, unsigned seed) const {
    std::vector<Part> result;
    for (long z = 0; z < box.z; ++z)
      for (long y = 0; y < box.y; ++y) {
        if (cut > 0) result.push_back({z, y, 0, cut});
        result.push_back({z, y, cut, box.x});
      }
    std::ranges::shuffle(result, std::mt19937(seed));
    return result;
  }

  Means add(const std::vector<Part> &all, std::size_t threads) const {
    CoarseBox coarse(box, group, sizeof(Item));
    Means result;
    std::mutex mutex;
    {
      std::vector<std::jthread> team;
      for (std::size_t member = 0; member < threads; ++member)
        team.emplace_back([&, member] {
          CoarseBox::CoarseRow row;
          for (std::size_t i = member; i < all.size(); i += threads) {
            const auto [z, y, x0, x1] = all[i];
            if (!coarse.add(z, y, x0, x1, reinterpret_cast<const std::byte *>(&at(z, y, x0)), row)) continue;
            const std::lock_guard lock(mutex);
            EXPECT_TRUE(result.emplace(std::pair{row.z, row.y}, row.means).second) << "each row of groups once";
          }
        });
    }
    EXPECT_TRUE(coarse.has_no_open_rows());
    return result;
  }
};

TEST(Coarse, MeansHaveTheBitsOfTheDefinition) {
  for (const Extents group :
       {Extents{4, 4, 4}, Extents{1, 3, 2}, Extents{8, 1, 8}, Extents{5, 7, 3}, Extents{9, 9, 99}})
    for (const long cut : {0L, 7L})
      for (const std::size_t threads : {1u, 4u}) {
        const Box<float> narrow({9, 14, 37}, group, 1);
        EXPECT_EQ(narrow.add(narrow.parts(cut, 2), threads), narrow.by_definition());
        const Box<double> wide({10, 13, 32}, group, 3);
        EXPECT_EQ(wide.add(wide.parts(cut, 4), threads), wide.by_definition());
      }
}

TEST(Coarse, RowsBeyondTheReservedMemoryGetMore) {
  // There are many groups. In each group, the first plane arrives after all other planes of the group.
  const Box<float> box({64, 8, 8}, {4, 4, 4}, 5);
  std::vector<Part> parts = box.parts(0, 6);
  std::ranges::stable_sort(parts, {}, [](const Part &one) { return one.z % 4 == 0; });
  EXPECT_EQ(box.add(parts, 1), box.by_definition());
}

}  // namespace
}  // namespace outcrop
