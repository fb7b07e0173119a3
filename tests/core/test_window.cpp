// These tests check the places of slots in the window.
#include "outcrop/exec/window.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace outcrop {
namespace {

constexpr std::size_t page_bytes = AlignedMemory::page_bytes, record_bytes = 129 * page_bytes;

Grid small_grid() {
  Grid grid;
  grid.nz = 40, grid.ny = 8, grid.nx = 256;
  grid.item_bytes = 4, grid.pitch_bytes = 1024, grid.plane_bytes = 8192, grid.record_bytes = record_bytes;
  return grid;
}

std::size_t place_in_page(const std::byte *address) { return reinterpret_cast<std::uintptr_t>(address) % page_bytes; }

TEST(Window, OnlyLargeSlotsAreShifted) {
  EXPECT_EQ(slot_bytes_for(1), page_bytes);
  EXPECT_EQ(slot_bytes_for(512 << 10), 512u << 10);
  EXPECT_EQ(slot_bytes_for((512 << 10) + 1), (516u << 10) + shift_bytes);
}

TEST(Window, ManyRingsOfSmallSlotsBeginAtDifferentPlacesInAPage) {
  const std::vector<RingSpec> rings(9, {8, page_bytes, false});
  const Window window(small_grid(), rings);
  std::set<std::size_t> firsts;
  for (std::size_t ring = 0; ring < 8; ++ring) firsts.insert(place_in_page(window.ring(ring).plane(0)));
  EXPECT_EQ(firsts.size(), 8u);
}

TEST(Window, NeighbouringSlotsAndRingsBeginAtDifferentPlacesInAPage) {
  for (const long planes : {7L, 8L, 9L}) {
    const std::vector<RingSpec> rings(9, {planes, slot_bytes_for(record_bytes), false});
    const Window window(small_grid(), rings);
    std::set<std::size_t> firsts, neighbours;
    for (std::size_t ring = 0; ring < 8; ++ring) firsts.insert(place_in_page(window.ring(ring).plane(0)));
    for (long plane = 0; plane < 7; ++plane) neighbours.insert(place_in_page(window.ring(0).plane(plane)));
    EXPECT_EQ(firsts.size(), 8u);
    EXPECT_EQ(neighbours.size(), 7u);
  }
}

TEST(Window, GuardsSurroundEveryRing) {
  for (const std::size_t shift : {std::size_t{0}, shift_bytes})
    for (const long planes : {1L, 5L, 8L, 13L}) {
      const std::vector<RingSpec> rings{
          {planes, record_bytes + shift, false}, {planes + 1, record_bytes + shift, true}, {3, record_bytes, false}};
      const Window window(small_grid(), rings);
      const std::byte *end = window.data();
      for (std::size_t ring = 0; ring < rings.size(); ++ring) {
        const std::byte *first = window.ring(ring).plane(0);
        EXPECT_GE(first, end + Window::guard_bytes);
        EXPECT_EQ(place_in_page(first) % shift_bytes, 0u);
        end = first + static_cast<std::size_t>(rings[ring].planes) * rings[ring].slot_bytes;
      }
      EXPECT_LE(end + Window::guard_bytes, window.data() + Window::bytes(rings));
    }
}

TEST(Window, SlotsBeginAtPagesIfDirectTransfersNeedIt) {
  const std::vector<RingSpec> rings(8, {5, record_bytes + shift_bytes, false});
  EXPECT_EQ(rings_for_direct_io(rings, 512)[0].slot_bytes, record_bytes + shift_bytes);
  EXPECT_EQ(rings_for_direct_io(rings, 1)[0].slot_bytes, record_bytes + shift_bytes);
  const Window window(small_grid(), rings_for_direct_io(rings, 4096));
  for (std::size_t ring = 0; ring < rings.size(); ++ring)
    for (long plane = 0; plane < 5; ++plane) EXPECT_EQ(place_in_page(window.ring(ring).plane(plane)), 0u);
}

}  // namespace
}  // namespace outcrop
