// These tests check that the executor reads planes in advance. An update must wait for all planes that it reads, but
// must not wait for planes of the next slab.
//
// Planes arrive in the order of their requests. The static planes of a slab arrive after the whole state of the slab.
// Suppose that an update waits for one static plane that it does not need. Then the update also waits for all planes
// that are read in advance:
//
//     requests      state of slab 1 | statics of slab 1 | update of slab 0
//                                     ^ an update that waits for this plane also waits for all planes before it
//
// In this test, a store delays all planes that the current update does not read. The delay ends when the kernel of the
// update is called. An update that waits for a delayed plane never calls its kernel. To end such a test, the store
// delivers all planes after some time, and records that it had to do so. The store delivers the planes of the current
// update in a random order.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "outcrop/exec/executor.hpp"
#include "scripted_store.hpp"

namespace outcrop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr long nz = 12, slab = 2, levels = 2;
constexpr std::chrono::seconds patience{20};
constexpr unsigned seeds = 10;
constexpr std::size_t depth = 64;
static_assert(5 * nz <= depth, "transfers that are held back keep others from the store");
static_assert(nz <= 16, "number_of() tells no more planes apart");
enum Number : std::uint32_t { newest, previous, newest_target, previous_target, statics };  // numbers of files

// Returns a grid for a field with its previous value, and for a static field that updates read up to `statics_z` planes
// away.
Grid grid_of(long statics_z) {
  Grid grid;
  grid.nz = nz, grid.ny = 4, grid.nx = 16;
  grid.radius_z = grid.radius_y = 1;
  grid.rim_z_low = grid.rim_z_high = grid.rim_y_low = grid.rim_y_high = 1;
  grid.statics_z = statics_z;
  grid.item_bytes = 4, grid.pitch_bytes = 64, grid.plane_bytes = 256, grid.record_bytes = 4096;
  return grid;
}

// Controls the completion of reads. If only a later slab needs a plane, the plane arrives after the update of the
// current slab has begun. If the current slab needs a plane, its read can take several tries.
struct Gate {
  const Grid grid;
  std::mt19937 random;
  const Clock::time_point end = Clock::now() + patience;
  std::atomic<long> slabs_begun{0}, planes_missing{0}, slab_given_up{-1};
  std::atomic<bool> has_held{false};

  bool is_needed(const Transfer &transfer) const {
    const long z = static_cast<long>(transfer.offset / grid.record_bytes);
    const long zeta1 = grid.first_plane() + (slabs_begun + 1) * slab;
    return z < zeta1 + (transfer.file == statics ? grid.statics_z : grid.skew_z);
  }

  // Returns the number of bytes that the transfer moves, or -EAGAIN. After -EAGAIN, the pump repeats the transfer.
  std::int64_t script(const Transfer &transfer) {
    const auto all = static_cast<std::int64_t>(transfer.length);
    if (transfer.write || slab_given_up >= 0) return all;
    if (is_needed(transfer)) return random() % 4 == 0 ? all : -EAGAIN;
    has_held = true;
    if (Clock::now() >= end) slab_given_up = slabs_begun.load();
    return -EAGAIN;
  }
};

// Returns the number of a plane. In every array, the first byte of a plane is 16 times the number of the plane
// (scripted_store.hpp). The kernel of this test does not change the planes.
long number_of(const void *plane) { return *static_cast<const unsigned char *>(plane) / 16; }

void looking_kernel(const outcrop_block *block) {
  Gate &gate = **static_cast<Gate *const *>(block->scalars);
  const long reach[] = {gate.grid.radius_z, 0, gate.grid.statics_z};
  for (long k = 0; k < block->planes; ++k)
    for (std::size_t operand = 0; operand < 3; ++operand)
      for (long dz = -reach[operand]; dz <= reach[operand]; ++dz)
        if (number_of(block->source[operand][k + dz]) != number_of(block->source[0][k]) + dz) ++gate.planes_missing;
  const long last = number_of(block->source[0][block->planes - 1]);
  gate.slabs_begun = std::max(gate.slabs_begun.load(), (last - gate.grid.first_plane()) / slab + 1);
}

// Returns one pass. The actions of the pass have the same order as in plan/schemes/wavefront.py.
Pass pass_of(const Grid &grid) {
  std::vector<Action> actions;
  const Rectangle whole = whole_plane(grid);
  const long end = grid.end_plane() + grid.skew_z * (levels - 1);
  long read = 0, read_statics = 0, copied = 0, written = 0;
  const auto up_to = [](long &done, long z) { return std::exchange(done, std::min(z, nz)); };
  for (long zeta = grid.first_plane(); zeta < end; zeta += slab) {
    const long zeta1 = std::min(zeta + slab, end), ahead = zeta1 + slab;
    const long z = up_to(read, ahead + grid.skew_z), z_statics = up_to(read_statics, ahead + grid.statics_z);
    actions.push_back(ReadAction{z, read, whole, Array::source, 0});
    actions.push_back(ReadAction{z_statics, read_statics, whole, Array::statics, 0});
    const long z_copy = up_to(copied, zeta1);
    actions.push_back(CopyAction{z_copy, copied, whole, whole});
    actions.push_back(UpdateAction{zeta, zeta1, levels, {}});
    const long z_write = up_to(written, std::min(grid.end_plane(), zeta1 - grid.skew_z * (levels - 1)));
    actions.push_back(WriteAction{z_write, written, whole, Array::target, levels});
  }
  actions.push_back(WriteAction{written, nz, whole, Array::target, levels});
  actions.push_back(CommitAction{});
  return {actions, levels};
}

void run_case(long statics_z, unsigned seed) {
  const Grid grid = grid_of(statics_z);
  Gate gate{grid, std::mt19937(seed)};
  ScriptedStore store(nz * grid.record_bytes, depth,
                      [&](const Transfer &transfer, std::size_t) { return gate.script(transfer); });
  const Fields fields({Field{.two_copies = true, .has_previous = true, .flips = true}, Field{.read_only = true}});
  const Stages stages{{{looking_kernel, {0, 2, 1}, {2}}, {looking_kernel, {2, 0, 1}, {0}}}, {}};
  ExecutorOptions options;
  options.placement = unbound(2);
  options.rings.assign(fields.rings(), {nz, grid.record_bytes, false});
  options.max_levels = levels;
  options.checksum = false;
  Executor executor(grid, options, fields, stages, &store);
  PassFiles files;
  files.source = {{newest, nz}, {previous, nz}};
  files.target = {{newest_target, nz}, {previous_target, nz}};
  files.statics = {{statics, nz}};
  Gate *const scalars = &gate;
  const auto *first = reinterpret_cast<const std::byte *>(&scalars);
  executor.run(pass_of(grid), files, {first, first + sizeof scalars});
  EXPECT_EQ(gate.slab_given_up, -1) << "the update of this slab waits for planes it does not read";
  EXPECT_EQ(gate.planes_missing, 0) << "updates do not wait for planes they read";
  EXPECT_TRUE(gate.has_held) << "nothing was read ahead";
  EXPECT_EQ(executor.bytes_read(), 3 * nz * grid.record_bytes);
}

TEST(Executor, UpdatesWaitForWhatTheyReadAndNoMore) {
  for (long statics_z : {0, 1})
    for (unsigned seed = 0; seed < seeds && !HasFailure(); ++seed) {
      SCOPED_TRACE("fields that are only read are read " + std::to_string(statics_z) + " planes away, seed " +
                   std::to_string(seed));
      run_case(statics_z, seed);
    }
}

}  // namespace
}  // namespace outcrop
