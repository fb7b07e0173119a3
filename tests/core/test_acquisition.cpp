// These tests check sources, samples, sums and snapshots. The values that several threads compute must equal the values
// of plain loops over whole arrays. If a thread does not wait for another thread, the thread sanitizer reports a data
// race.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "outcrop/exec/acquisition.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

constexpr long nz = 22, ny = 50, nx = 21, pitch = 32, levels = 9;

Grid make_grid() {
  Grid grid;
  grid.nz = nz, grid.ny = ny, grid.nx = nx;
  grid.radius_z = grid.radius_y = 1;
  grid.rim_z_low = grid.rim_z_high = grid.rim_y_low = grid.rim_y_high = 1;
  grid.item_bytes = sizeof(float), grid.pitch_bytes = pitch * sizeof(float);
  grid.plane_bytes = ny * grid.pitch_bytes;
  grid.record_bytes = (grid.plane_bytes + 4 + 4095) / 4096 * 4096;
  return grid;
}

void mean_kernel(const outcrop_block *block) {
  for (long k = 0; k < block->planes; ++k)
    for (long y = block->y0; y < block->y1; ++y)
      for (long x = block->x0; x < block->x1; ++x) {
        const auto at = [&](long dz, long dy) {
          return static_cast<const float *>(block->source[0][k + dz])[(y + dy) * pitch + x];
        };
        static_cast<float *>(block->target[0][k])[y * pitch + x] = (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) / 4;
      }
}

using Array = std::vector<float>;  // [z][y][x], without padding

std::size_t place(const Cell &cell) { return static_cast<std::size_t>((cell.z * ny + cell.y) * nx + cell.x); }

Array initial() {
  Array array(static_cast<std::size_t>(nz * ny * nx));
  for (std::size_t i = 0; i < array.size(); ++i) array[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  return array;
}

std::vector<Cell> points() {
  std::vector<Cell> cells;
  for (long z = 1; z < nz - 1; z += 3)
    for (long y = 1; y < ny - 1; y += 5) cells.push_back({z, y, (3 * z + y) % nx});
  cells.push_back(cells.front());  // these two sources are in the same cell
  return cells;
}

Array step(const Array &before, const std::vector<Cell> &cells, const float *values) {
  Array after = before;
  for (long z = 1; z < nz - 1; ++z)
    for (long y = 1; y < ny - 1; ++y)
      for (long x = 0; x < nx; ++x) {
        const auto at = [&](long dz, long dy) { return before[place({z + dz, y + dy, x})]; };
        after[place({z, y, x})] = (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) / 4;
      }
  for (std::size_t i = 0; i < cells.size(); ++i) after[place(cells[i])] += values[i];
  return after;
}

// A file of zeros. The destructor deletes the file.
struct Scratch {
  std::string path = "/tmp/outcrop-acquisition-XXXXXX";
  explicit Scratch(std::size_t size) {
    const int file = mkstemp(path.data());
    EXPECT_EQ(ftruncate(file, static_cast<off_t>(size)), 0);
    close(file);
  }
  ~Scratch() { unlink(path.c_str()); }
  Array read(std::size_t offset, std::size_t count) const {
    Array array(count);
    const File file = File::open(path, false, false);
    EXPECT_EQ(pread(file.buffered_descriptor(), array.data(), count * sizeof(float), static_cast<off_t>(offset)),
              static_cast<ssize_t>(count * sizeof(float)));
    return array;
  }
};

void run_case(unsigned threads, const Tiling &tiling, long slab) {
  const Grid grid = make_grid();
  const Window window(grid, std::vector<RingSpec>(2, {nz, grid.record_bytes, false}));
  const Fields fields({Field{false, true, false, true}});
  const Stages stages{{{mean_kernel, {0}, {1}}, {mean_kernel, {1}, {0}}}, {}};
  const std::vector<Cell> cells = points();
  const std::vector<float> added(cells.size() * levels, 0.125f);
  std::vector<double> after(cells.size() * levels), before(cells.size() * levels);
  const Scratch scratch(16 + nz * ny * nx * sizeof(float));
  AcquisitionRequests requests;
  requests.injections = {{0, cells, reinterpret_cast<const std::byte *>(added.data())}};
  requests.samples = {{0, cells, false, after.data()}, {0, cells, true, before.data()}};
  requests.sums = {{0, 4}};
  requests.snapshots = {{0, 5, 2, nz, 0, ny, 3, nx, scratch.path, 16}};
  std::atomic<std::uint64_t> bytes{0};
  Team team(threads);
  Traverse traverse(team, grid, window, stages, tiling, levels);
  Acquisition acquisition(grid, window, fields, stages, requests, levels, bytes);
  traverse.set_acquisition(&acquisition);
  Array array = initial();
  for (std::size_t ring : {0, 1})
    for (long z = 0; z < nz; ++z)
      for (long y = 0; y < ny; ++y)
        std::memcpy(window.cell(ring, z, y, 0), &array[place({z, y, 0})], nx * sizeof(float));
  for (long z = 0; z < nz; ++z) {
    const bool is_rim = z == 0 || z == nz - 1;
    acquisition.rim(z, {0, is_rim ? ny : 1, 0, pitch});
    if (!is_rim) acquisition.rim(z, {ny - 1, ny, 0, pitch});
  }
  const std::atomic<bool> cancelled{false};
  for (long zeta = 1; zeta < nz - 1 + levels - 1; zeta += slab) {
    traverse.update({zeta, std::min(zeta + slab, nz - 1 + levels - 1), levels}, cancelled);
    acquisition.end_slab();
  }
  acquisition.flush();

  for (std::size_t t = 0; t < levels; ++t) {
    const std::size_t row = t * cells.size();
    for (std::size_t i = 0; i < cells.size(); ++i) ASSERT_EQ(before[row + i], array[place(cells[i])]) << t << " " << i;
    array = step(array, cells, &added[row]);
    for (std::size_t i = 0; i < cells.size(); ++i) ASSERT_EQ(after[row + i], array[place(cells[i])]) << t << " " << i;
    if (t + 1 == 4) {
      EXPECT_EQ(acquisition.results().sums[0].minimum, *std::min_element(array.begin(), array.end()));
      EXPECT_EQ(acquisition.results().sums[0].maximum, *std::max_element(array.begin(), array.end()));
    }
    if (t + 1 == 5) {
      const Array box = scratch.read(16, (nz - 2) * ny * (nx - 3));
      EXPECT_EQ(bytes.load(), box.size() * sizeof(float));
      EXPECT_EQ(acquisition.results().snapshot_sums, std::vector<std::uint32_t>{crc32c(std::as_bytes(std::span(box)))});
      for (long z = 2, i = 0; z < nz; ++z)
        for (long y = 0; y < ny; ++y)
          for (long x = 3; x < nx; ++x, ++i) ASSERT_EQ(box[static_cast<std::size_t>(i)], array[place({z, y, x})]);
    }
  }
}

TEST(Acquisition, ShowWhatPlainSweepsShow) {
  for (const unsigned threads : {1u, 4u})
    for (const long slab : {1, 6, 100})
      for (const Tiling &tiling : {Tiling{0, 7, 2}, Tiling{2, 16, 2}, Tiling{4, 16, 3}})
        run_case(threads, tiling, slab);
}

TEST(PointTable, FindsPointsByPlaneRowsAndColumns) {
  const Grid grid = make_grid();
  PointTable table;
  table.add(grid, 7, {{3, 5, 20}, {3, 4, 0}, {0, 0, 0}, {nz - 1, ny - 1, nx - 1}, {3, 5, 20}});
  table.sort();
  const auto found = [&](long z, const Rectangle &cells) {
    std::vector<std::size_t> indices;
    table.for_each(z, cells, [&](const PointTable::Point &point) { indices.push_back(point.index); });
    return indices;
  };
  const Rectangle all = whole_plane(grid);
  EXPECT_EQ(found(3, all), (std::vector<std::size_t>{1, 0, 4}));
  EXPECT_EQ(found(3, {5, 6, 16, 32}), (std::vector<std::size_t>{0, 4}));
  EXPECT_TRUE(found(3, {5, 6, 0, 16}).empty());
  EXPECT_TRUE(found(3, {6, ny, 0, 32}).empty());
  EXPECT_TRUE(found(4, all).empty());
  EXPECT_EQ(found(0, all), (std::vector<std::size_t>{2}));
  EXPECT_EQ(found(nz - 1, all), (std::vector<std::size_t>{3}));
}

TEST(PointTable, FindsPointsInPlanesOfNeighbouringRanks) {
  Grid grid = make_grid();
  grid.rim_z_low = grid.rim_z_high = -UpdateRegion::far;
  PointTable table;
  table.add(grid, 7, {{nz + 2, 1, 1}, {-3, 2, 2}, {0, 3, 3}});
  table.sort();
  const auto count = [&](long z) {
    int points = 0;
    table.for_each(z, whole_plane(grid), [&](const PointTable::Point &) { ++points; });
    return points;
  };
  for (long z = -6; z < nz + 6; ++z) EXPECT_EQ(count(z), z == -3 || z == 0 || z == nz + 2) << z;
}

}  // namespace
}  // namespace outcrop
