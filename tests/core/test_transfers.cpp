// These tests check checksums that are computed in parts. For every division of a plane into parts, the joined
// checksums of the parts must equal the checksum of the whole plane.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "outcrop/exec/transfers.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

Grid grid_of(long ny, long nx) {
  Grid grid;
  grid.nz = 100;
  grid.ny = ny;
  grid.nx = nx;
  grid.item_bytes = 4;
  grid.pitch_bytes = static_cast<std::size_t>(nx) * 4;
  grid.plane_bytes = static_cast<std::size_t>(ny) * grid.pitch_bytes;
  grid.record_bytes = (grid.plane_bytes + 4 + 4095) / 4096 * 4096;
  return grid;
}

std::vector<std::byte> noise(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte &byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Crc32cJoin, EqualsTheSumOfBothParts) {
  for (std::size_t length : {1u, 63u, 64u, 1000u, 4096u}) {
    const std::vector<std::byte> bytes = noise(length + 77, 1);
    const std::span<const std::byte> all(bytes);
    const auto joined = crc32c_join(crc32c(all.first(77)), crc32c(all.subspan(77)), crc32c_factor(length));
    EXPECT_EQ(joined, crc32c(all)) << length;
  }
}

// Returns a random division of the plane into disjoint rectangles. The width of each rectangle is a multiple of the
// width of a vector.
std::vector<Rectangle> random_cover(const Grid &grid, std::mt19937 &random) {
  std::vector<Rectangle> cover;
  for (long y = 0; y < grid.ny;) {
    const long y_end = std::min(grid.ny, y + 1 + static_cast<long>(random() % 5));
    for (long x = 0; x < grid.pitch_cells();) {
      const long x_end = std::min(grid.pitch_cells(), x + 16 * (1 + static_cast<long>(random() % 4)));
      cover.push_back({y, y_end, x, x_end});
      x = x_end;
    }
    y = y_end;
  }
  std::shuffle(cover.begin(), cover.end(), random);  // the order is random, because tiles may finish in any order
  return cover;
}

TEST(PlaneSums, EqualTheSumOfTheWholePlaneForEveryPartition) {
  std::mt19937 random(2);
  for (long ny : {1L, 2L, 3L, 7L, 40L})
    for (long nx : {16L, 48L}) {
      const Grid grid = grid_of(ny, nx);
      PlaneSums sums(grid);
      for (long z = 0; z < 9; ++z) {
        const std::vector<std::byte> plane = noise(grid.plane_bytes, static_cast<unsigned>(z));
        for (const Rectangle &cells : random_cover(grid, random)) {
          EXPECT_FALSE(sums.whole(z));
          sums.add(z, plane.data(), grid.pitch_bytes, cells);
        }
        EXPECT_TRUE(sums.whole(z));
        EXPECT_EQ(sums.value(z), crc32c(plane)) << ny << " rows of " << nx;
      }
    }
}

// A plane on disk has rows of zeros behind its last row. The checksum of a plane includes the zeros on disk, although
// no call adds the zeros to the checksum.
TEST(PlaneSums, IncludeRowsOfZerosBehindTheLastRow) {
  for (std::size_t zero_rows : {1u, 5u}) {
    Grid grid = grid_of(6, 48);
    std::vector<std::byte> plane = noise(grid.plane_bytes, 3);
    grid.plane_bytes += zero_rows * grid.pitch_bytes;
    PlaneSums sums(grid);
    sums.add(0, plane.data(), grid.pitch_bytes, {2, 6, 0, 48});
    EXPECT_FALSE(sums.whole(0));
    sums.add(0, plane.data(), grid.pitch_bytes, {0, 2, 0, 48});
    EXPECT_TRUE(sums.whole(0));
    plane.resize(grid.plane_bytes);
    EXPECT_EQ(sums.value(0), crc32c(plane));
  }
}

// In a small grid, NaN and infinity are searched in all cells, but not in the padding. In a large grid, only every 64th
// row is searched for NaN and infinity.
TEST(PlaneSums, FindNanAndInfinityInSearchedRows) {
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    for (long ny : {6L, 1000L}) {
      Grid grid = grid_of(ny, 48);
      grid.nx = 45;
      const long between = ny == 6 ? 1 : PlaneSums::max_rows_between;
      PlaneSums sums(grid);
      for (long y = 0; y < std::min(ny, 70L); ++y)
        for (long x : {0L, 20L, 44L, 45L}) {
          std::vector<float> plane(static_cast<std::size_t>(ny * 48), std::numeric_limits<float>::max());
          plane[static_cast<std::size_t>(y * 48 + x)] = wrong;
          const auto *bytes = reinterpret_cast<const std::byte *>(plane.data());
          sums.clear();
          EXPECT_TRUE(sums.is_finite());
          sums.search(5, bytes, grid.pitch_bytes, {0, ny / 2, 0, 16});
          sums.search(5, bytes, grid.pitch_bytes, {0, ny / 2, 16, 48});
          sums.search(5, bytes, grid.pitch_bytes, {ny / 2, ny, 0, 48});
          EXPECT_EQ(sums.is_finite(), x == 45 || (5 + y) % between != 0) << ny << " rows, cell " << y << ", " << x;
        }
    }
}

// Rows of a block in memory are shorter than rows of the grid. The checksum depends on the places of cells in the
// plane, and not on their places in memory.
TEST(PlaneSums, TakeRowsThatLieCloserInMemory) {
  const Grid grid = grid_of(6, 48);
  const std::vector<std::byte> plane = noise(grid.plane_bytes, 3);
  PlaneSums sums(grid);
  for (const Rectangle cells : {Rectangle{0, 6, 0, 16}, Rectangle{0, 6, 16, 48}}) {
    const std::size_t pitch = static_cast<std::size_t>(cells.columns()) * 4;
    std::vector<std::byte> narrow;
    for (std::size_t y = 0; y < 6; ++y) {
      const auto first = plane.begin() + static_cast<std::ptrdiff_t>(y * grid.pitch_bytes) + cells.x0 * 4;
      narrow.insert(narrow.end(), first, first + static_cast<std::ptrdiff_t>(pitch));
    }
    sums.add(0, narrow.data() - cells.x0 * 4, pitch, cells);
  }
  EXPECT_EQ(sums.value(0), crc32c(plane));
}

TEST(PlaneSums, NoticeAByteThatChangedBetweenTheParts) {
  const Grid grid = grid_of(20, 16);
  PlaneSums sums(grid);
  std::vector<std::byte> plane = noise(grid.plane_bytes, 4);
  const std::uint32_t right = crc32c(plane);
  sums.add(5, plane.data(), grid.pitch_bytes, {0, 10, 0, 16});
  plane[700] ^= std::byte{1};
  sums.add(5, plane.data(), grid.pitch_bytes, {10, 20, 0, 16});
  EXPECT_NE(sums.value(5), right);
}

TEST(PlaneSums, BeginAnewWhenCleared) {
  const Grid grid = grid_of(4, 16);
  PlaneSums sums(grid);
  const std::vector<std::byte> plane = noise(grid.plane_bytes, 5);
  sums.add(2, plane.data(), grid.pitch_bytes, {0, 3, 0, 16});
  sums.clear();
  sums.add(2, plane.data(), grid.pitch_bytes, {0, 4, 0, 16});
  EXPECT_TRUE(sums.whole(2));
  EXPECT_EQ(sums.value(2), crc32c(plane));
}

}  // namespace
}  // namespace outcrop
