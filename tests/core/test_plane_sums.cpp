// Protects checksums taken in parts: joined in any partition of the rows they must equal the checksum of the whole plane.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "outcrop/exec/plane_sums.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop {
namespace {

Grid grid_of(long ny, long radius) {
  Grid grid;
  grid.nz = 100;
  grid.ny = ny;
  grid.nx = 16;
  grid.radius_z = grid.radius_y = radius;
  grid.item_bytes = 4;
  grid.pitch_bytes = 64;
  grid.plane_bytes = static_cast<std::size_t>(ny) * grid.pitch_bytes;
  grid.record_bytes = 4096;
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

TEST(PlaneSums, EqualTheSumOfTheWholePlaneForEveryPartition) {
  std::mt19937 random(2);
  for (long ny : {1L, 2L, 3L, 7L, 40L})
    for (long radius : {0L, 1L, 3L}) {
      const Grid grid = grid_of(ny, radius);
      PlaneSums sums(grid, 3);
      for (long z = 0; z < 9; ++z) {
        const std::vector<std::byte> plane = noise(grid.plane_bytes, static_cast<unsigned>(z));
        std::vector<std::pair<long, long>> parts;
        for (long y = grid.first_row(); y < grid.end_row();) {
          const long end = std::min(grid.end_row(), y + 1 + static_cast<long>(random() % 5));
          parts.emplace_back(y, end);
          y = end;
        }
        std::shuffle(parts.begin(), parts.end(), random);  // tiles finish in any order
        for (const auto &[y0, y1] : parts) sums.add(z, plane.data(), y0, y1);
        EXPECT_EQ(sums.join(z, plane.data()), crc32c(plane)) << ny << " rows, radius " << radius;
      }
    }
}

TEST(PlaneSums, NoticeAByteThatChangedBetweenTheParts) {
  const Grid grid = grid_of(20, 1);
  PlaneSums sums(grid, 2);
  std::vector<std::byte> plane = noise(grid.plane_bytes, 4);
  const std::uint32_t right = crc32c(plane);
  plane[700] ^= std::byte{1};
  for (long y = 1; y < 19; y += 6) sums.add(5, plane.data(), y, y + 6);
  EXPECT_NE(sums.join(5, plane.data()), right);
}

TEST(PlaneSums, FallBackToTheBytesWhenPartsHaveGivenWay) {
  const Grid grid = grid_of(20, 1);
  PlaneSums sums(grid, 2);
  const std::vector<std::byte> plane = noise(grid.plane_bytes, 5), other = noise(grid.plane_bytes, 6);
  sums.add(4, plane.data(), 1, 19);
  sums.add(6, other.data(), 1, 19);  // the same place
  EXPECT_EQ(sums.join(4, plane.data()), crc32c(plane));
}

}  // namespace
}  // namespace outcrop
