// These tests check the bytes of files and memory for many patterns of access. The file must be equal to a file that
// was written without aggregation. Reads must return the bytes that were written.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

using Memory = std::vector<std::vector<std::byte>>;  // memory of each variable

std::byte content(std::uint64_t offset, std::uint64_t step) {
  const std::uint64_t word = (offset + step * 7919) * 0x9E3779B97F4A7C15;
  return static_cast<std::byte>((word >> 40) | 1);  // the value is never zero, so that it differs from bytes in holes
}

// Returns the memory of a rank. If `filled` is true, the bytes of extents have the values of the file. All other bytes
// are 0xEE.
Memory memory_of(const Declaration &declaration, std::uint64_t base, std::uint64_t step, bool filled) {
  Memory memory;
  for (const std::vector<Extent> &extents : declaration.variables) {
    std::uint64_t size = 0;
    for (const Extent &extent : extents) size = std::max(size, extent.memory_bytes());
    std::vector<std::byte> &variable = memory.emplace_back(size + 3, std::byte{0xEE});
    if (!filled) continue;
    for (const Extent &extent : extents)
      expand(extent, [&](std::uint64_t file, std::uint64_t at, std::uint64_t length) {
        for (std::uint64_t i = 0; i < length; ++i) variable[at + i] = content(base + file + i, step);
      });
  }
  return memory;
}

std::vector<std::span<const std::byte>> to_write(const Memory &memory) { return {memory.begin(), memory.end()}; }
std::vector<std::span<std::byte>> to_read(Memory &memory) { return {memory.begin(), memory.end()}; }

// Writes the bytes of all ranks without aggregation: pwrite() writes one block after the other.
void write_plainly(const std::string &path, const RandomPattern &pattern, std::uint64_t base, std::uint64_t step) {
  const Descriptor file(::open(path.c_str(), O_RDWR));
  for (const Declaration &declaration : pattern.ranks) {
    const Memory memory = memory_of(declaration, base, step, true);
    for (std::size_t variable = 0; variable < memory.size(); ++variable)
      for (const Extent &extent : declaration.variables[variable])
        expand(extent, [&](std::uint64_t at, std::uint64_t from, std::uint64_t length) {
          ASSERT_EQ(pwrite(file.get(), memory[variable].data() + from, length, static_cast<off_t>(base + at)),
                    static_cast<ssize_t>(length));
        });
  }
}

void make_file(const std::string &path, std::uint64_t size, bool filled) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600));
  if (filled) {
    const std::vector<std::byte> before(size, std::byte{0xAB});
    ASSERT_EQ(pwrite(file.get(), before.data(), size, 0), static_cast<ssize_t>(size));
  }
}

std::vector<std::byte> read_window(const std::string &path, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> found(end - begin);
  const Descriptor file(::open(path.c_str(), O_RDONLY));
  const ssize_t got = pread(file.get(), found.data(), found.size(), static_cast<off_t>(begin));
  found.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return found;
}

struct Setting {
  int size = 1, per_node = 0;
  PlanOptions plan;
  FileOptions file;
  std::uint64_t base = 0, steps = 1, stride = 0;
  bool beside = false, existing = false, merged = false;

  Setting(Random &random, std::uint64_t end, const std::string &stage) {
    plan.aggregators = static_cast<std::uint32_t>(below(random, 6));
    plan.buffer_bytes = 4096 * (std::uint64_t{1} << below(random, 6)) * below(random, 5);
    plan.buffers = below(random, 2) == 0 ? 0 : static_cast<std::uint32_t>(2 + below(random, 4));
    plan.own_run_bytes = below(random, 3) == 0 ? std::uint64_t{1} << below(random, 13) : 0;
    file.cache_mode = static_cast<CacheMode>(below(random, 3));
    file.durable = below(random, 4) == 0;
    base = below(random, 3) == 0 ? below(random, 100000) : 4096 * below(random, 4);
    steps = 1 + below(random, 6);
    stride = end + below(random, 5000);
    beside = below(random, 2) == 0;
    existing = end < (1 << 24) && below(random, 2) == 0;
    const std::uint64_t sink = below(random, 4);
    if (sink == 0) file.stage_folder = stage;
    file.node_files = sink == 1;
    if (file.node_files) existing = false;
    merged = below(random, 2) == 0;
    if (merged)
      plan.elect = [](const ElectionInputs &inputs) {
        Election election = elect_by_bytes(inputs);
        election.merged = true;
        return election;
      };
  }
  std::string text() const {
    return std::to_string(size) + " ranks, " + std::to_string(per_node) + " per node, " +
           std::to_string(plan.aggregators) + " aggregators, buffers " + std::to_string(plan.buffer_bytes) + " x " +
           std::to_string(plan.buffers) + ", own " + std::to_string(plan.own_run_bytes) + ", path " +
           std::to_string(static_cast<int>(file.cache_mode)) + ", base " + std::to_string(base) + ", steps " +
           std::to_string(steps) + (beside ? ", beside" : "") + (existing ? ", existing" : "") +
           (merged ? ", merged" : "") + (file.stage_folder.empty() ? "" : ", staged") +
           (file.node_files ? ", node files" : "");
  }
};

void write_steps(File &file, const Declaration &own, const Setting &setting) {
  std::vector<Memory> memories;
  for (std::uint64_t step = 0; step < setting.steps; ++step)
    memories.push_back(memory_of(own, setting.base + step * setting.stride, step, true));
  std::vector<Operation> operations;
  for (std::uint64_t step = 0; step < setting.steps; ++step) {
    const std::uint64_t base = setting.base + step * setting.stride;
    if (setting.beside)
      operations.push_back(file.begin_write(to_write(memories[step]), base));
    else
      file.write(to_write(memories[step]), base);
  }
  for (std::size_t i = 0; i < operations.size(); ++i)  // waits for the steps in their order, or in the opposite order
    operations[setting.steps % 2 == 0 ? i : operations.size() - 1 - i].wait();
}

void read_steps(File &file, const Declaration &own, const Setting &setting) {
  std::vector<Memory> memories;
  std::vector<Operation> operations;
  for (std::uint64_t step = 0; step < setting.steps; ++step)
    memories.push_back(memory_of(own, setting.base + step * setting.stride, step, false));
  for (std::uint64_t step = 0; step < setting.steps; ++step) {
    const std::uint64_t base = setting.base + step * setting.stride;
    if (setting.beside)
      operations.push_back(file.begin_read(to_read(memories[step]), base));
    else
      file.read(to_read(memories[step]), base);
  }
  for (Operation &operation : operations)
    while (!operation.test()) std::this_thread::yield();
  for (std::uint64_t step = 0; step < setting.steps; ++step)
    EXPECT_EQ(memories[step], memory_of(own, setting.base + step * setting.stride, step, true)) << "step " << step;
}

void try_pattern(const RandomPattern &pattern, const Setting &setting, const std::string &path,
                 const std::string &plain) {
  const std::uint64_t end = setting.base + (setting.steps - 1) * setting.stride + pattern.end();
  make_file(plain, end, setting.existing);
  if (setting.existing) make_file(path, end, true);
  for (std::uint64_t step = 0; step < setting.steps; ++step)
    write_plainly(plain, pattern, setting.base + step * setting.stride, step);
  ThreadRanks ranks(setting.size, setting.per_node);
  on_ranks(ranks, setting.size, [&](int rank, outcrop_transport &transport) {
    const Declaration &own = pattern.ranks[static_cast<std::size_t>(rank)];
    const Plan plan = Plan::make(transport, own, setting.plan);
    File file = setting.existing ? File::open(plan, path, true, setting.file) : File::create(plan, path, setting.file);
    write_steps(file, own, setting);
    read_steps(file, own, setting);
    file.flush();
    file.close();
  });
  if (setting.file.node_files) merge(path + ".index", path);
  EXPECT_EQ(std::filesystem::file_size(path), std::filesystem::file_size(plain));
  for (std::uint64_t step = 0; step < setting.steps; ++step)
    for (const Range &window : pattern.windows) {
      const std::uint64_t base = setting.base + step * setting.stride;
      const std::uint64_t begin = base + window.begin - std::min<std::uint64_t>(base + window.begin, 100);
      ASSERT_TRUE(read_window(path, begin, base + window.end + 100) ==
                  read_window(plain, begin, base + window.end + 100))
          << "step " << step << ", bytes from " << begin;
    }
}

// Each random seed is a separate test, so that one can run a failing seed alone.
class AggregatePatterns : public ::testing::TestWithParam<int> {};

TEST_P(AggregatePatterns, AreWrittenAsPlainlyAndReadBack) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  const Folder folder;
  for (int turn = 0; turn < 10; ++turn) {
    const int size = static_cast<int>(1 + below(random, 16));
    const RandomPattern pattern(random, size);
    Setting setting(random, pattern.end(), folder.file("stage"));
    setting.size = size;
    setting.per_node = below(random, 2) == 0 ? 0 : static_cast<int>(1 + below(random, 5));
    SCOPED_TRACE(setting.text());
    try_pattern(pattern, setting, folder.file("aggregated"), folder.file("plain"));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Random, AggregatePatterns, ::testing::Range(0, 18));

TEST(AggregatePlan, IsMadeOfNothing) {
  const Folder folder;
  ThreadRanks ranks(3, 2);
  on_ranks(ranks, 3, [&](int, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, {});
    EXPECT_EQ(plan.summary().bytes, 0u);
    File file = File::create(plan, folder.file("nothing"), {.size_bytes = 5000});
    file.write({});
    file.read({});
    file.close();
  });
  EXPECT_EQ(std::filesystem::file_size(folder.file("nothing")), 5000u);
}

TEST(AggregatePlan, LetsLongRunsStayWithTheirRanks) {
  ThreadRanks ranks(4, 2);
  on_ranks(ranks, 4, [&](int rank, outcrop_transport &transport) {
    const auto number = static_cast<std::uint64_t>(rank);
    Declaration own;
    for (std::uint64_t variable = 0; variable < 3; ++variable)
      own.variables.push_back({contiguous((variable * 4 + number) * 10000, 10000)});
    const Plan plan = Plan::make(transport, own, {.own_run_bytes = 8192});
    EXPECT_TRUE(plan.summary().own);
    EXPECT_EQ(plan.summary().aggregators, (std::vector<int>{0, 1, 2, 3}));
    EXPECT_FALSE(Plan::make(transport, own, {.own_run_bytes = 16384}).summary().own);
  });
}

// In this test, ranks have long contiguous runs of bytes. The test checks that these ranks perform their own I/O only
// if all ranks are on one node. On one node, aggregation needs an additional copy and saves nothing. On several nodes,
// aggregation reduces the number of ranks that write to a shared file.
TEST(AggregatePlan, LetsLongRunsStayWhereThatPays) {
  for (const int on_node : {4, 2}) {
    ThreadRanks ranks(4, on_node);
    on_ranks(ranks, 4, [&](int rank, outcrop_transport &transport) {
      const auto made = [&](std::uint64_t run_bytes, std::uint32_t aggregators) {
        Declaration own;
        own.variables.push_back({contiguous(static_cast<std::uint64_t>(rank) * run_bytes, run_bytes)});
        return Plan::make(transport, own, {.aggregators = aggregators, .own_run_bytes = own_run_automatic}).summary();
      };
      EXPECT_EQ(made(64 << 10, 0).own, on_node == 4);
      EXPECT_FALSE(made((64 << 10) - 1, 0).own);
      EXPECT_FALSE(made(64 << 10, 2).own);
    });
  }
}

// This test checks how ranks agree on the mode in which they open a file. In the common mode, `ample_room` is true only
// if it is true on all ranks. All other differences between the modes of the ranks are errors.
TEST(AggregateOpenMode, IsThatOfAllRanks) {
  for (const int unlike : {-1, 0, 2}) {
    ThreadRanks ranks(3, 2);
    on_ranks(ranks, 3, [&](int rank, outcrop_transport &transport) {
      const Link link(transport);
      const bool alike = rank != unlike;
      EXPECT_EQ(agree_on_open_mode(link, {.node_files = true, .ample_room = alike}).ample_room, unlike < 0);
      EXPECT_TRUE(agree_on_open_mode(link, {.node_files = true}).node_files);
      if (unlike < 0) return;
      EXPECT_THROW(agree_on_open_mode(link, {.staged = alike}), InputError);
      EXPECT_THROW(agree_on_open_mode(link, {.node_files = alike}), InputError);
    });
  }
  EXPECT_TRUE(has_ample_room(1));
  EXPECT_FALSE(has_ample_room(~std::uint64_t{0}));
}

// This test checks that reads use the page cache if the cache has ample room.
TEST(AggregateSharedFile, ReadsThroughThePageCacheWhatHasRoomThere) {
  constexpr std::uint64_t bytes = 1 << 16;
  const Folder folder;
  const std::string path = folder.file("file");
  std::ofstream(path) << std::string(bytes, 'x');
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(fsync(file.get()), 0);
  ASSERT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  const auto reads_buffered = [&](CacheMode mode, bool ample_room) {
    return SharedFile(path, false, mode, false, {.ample_room = ample_room}, {}).reads_buffered(0, bytes);
  };
  EXPECT_TRUE(reads_buffered(CacheMode::automatic, true));
  // If the page cache has no ample room, the file is read directly, as with CacheMode::direct. If the file system
  // supports only buffered transfers, both calls below return true.
  EXPECT_EQ(reads_buffered(CacheMode::automatic, false), reads_buffered(CacheMode::direct, true));
}

// If each rank performs its own I/O and the page cache has ample room, writes must use the page cache. This test checks
// this rule.
TEST(AggregateSharedFile, WritesOwnBytesThroughThePageCacheWhereTheyHaveRoom) {
  const Folder folder;
  const std::string path = folder.file("file");
  std::ofstream(path) << "x";
  const auto writes_buffered = [&](bool durable, const Traffic &traffic) {
    return SharedFile(path, true, CacheMode::automatic, durable, traffic, {}).writes_buffered();
  };
  const bool only_way = SharedFile(path, true, CacheMode::direct, false, {}, {}).writes_buffered();
  EXPECT_TRUE(writes_buffered(false, {.ample_room = true, .own = true}));
  EXPECT_TRUE(writes_buffered(true, {.ample_room = true, .own = true}));
  EXPECT_EQ(writes_buffered(true, {.ample_room = false, .own = true}), only_way);
  EXPECT_EQ(writes_buffered(true, {.ample_room = true, .own = false}), only_way);
}

// This test writes bytes through the page cache, and makes the bytes durable. Then it checks that the file has all
// bytes. The device begins to write the first bytes while the library is still copying later bytes.
TEST(AggregateSharedFile, WritesOwnBytesBackThatMustLast) {
  constexpr std::size_t bytes = (std::size_t{5} << 20) + 77;
  const Folder folder;
  const std::string path = folder.file("file");
  std::ofstream(path) << "x";
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
  SharedFile shared(path, true, CacheMode::automatic, true, {.ample_room = true, .own = true}, {});
  shared.write(1, data.data(), bytes);
  shared.flush();
  std::vector<std::byte> found(bytes);
  SharedFile(path, false, CacheMode::automatic, false, {.ample_room = true}, {}).read(1, found.data(), bytes);
  EXPECT_EQ(found, data);
}

}  // namespace
}  // namespace outcrop::aggregate
