// These tests check the simulated faults of storage that tests of durability use. The faults must occur. A second run
// with the same seed must give the same faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {
namespace {

constexpr std::size_t page = 4096, pages = 64;

std::unique_ptr<Store> store_with(const Faults &faults) {
  return open_store("memory", {{"nowhere", true}}, {.direct = true, .depth = 16, .faults = faults});
}

// Writes `pages` blocks of 4 pages, one after another. After the writes, reads the blocks. Returns the results of all
// transfers, in the order of the transfers.
std::vector<std::int64_t> results_of(Store &store, std::byte *data) {
  std::vector<std::int64_t> results;
  for (const bool write : {true, false})
    for (std::size_t i = 0; i < pages; ++i) {
      const Transfer transfer{write, 0, i * 4 * page, data + i * 4 * page, 4 * page, i};
      store.submit({&transfer, 1});
      Completion completion{};
      while (store.reap({&completion, 1}, true) == 0) {
      }
      results.push_back(completion.result);
    }
  return results;
}

std::vector<std::int64_t> results_with(const Faults &faults) {
  const AlignedMemory memory(pages * 4 * page);
  return results_of(*store_with(faults), memory.data());
}

TEST(Faulty, HappensAgainWithTheSameSeed) {
  const Faults faults{.seed = 1, .error_rate = 0.1, .again_rate = 0.1, .short_rate = 0.2};
  Faults other = faults;
  other.seed = 2;
  const std::vector<std::int64_t> results = results_with(faults);
  EXPECT_EQ(results, results_with(faults));
  EXPECT_NE(results, results_with(other));
  EXPECT_GT(std::ranges::count(results, -EIO), 0);
  EXPECT_GT(std::ranges::count(results, -EAGAIN), 0);
  EXPECT_GT(std::ranges::count_if(results, [](auto result) { return result > 0 && result < 4 * 4096; }), 0);
}

TEST(Faulty, FailsTheTransferItWasToldTo) {
  const std::vector<std::int64_t> results = results_with({.error_at = 70});
  for (std::size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i], i == 70 ? -EIO : static_cast<std::int64_t>(4 * page)) << i;
}

TEST(Faulty, IsFullAfterSoManyBytes) {
  const std::vector<std::int64_t> results = results_with({.full_after_bytes = 10 * 4 * page});
  for (std::size_t i = 0; i < pages; ++i)
    EXPECT_EQ(results[i], i < 10 ? static_cast<std::int64_t>(4 * page) : -ENOSPC) << i;
}

TEST(Faulty, FlipsExactlyOneBit) {
  const AlignedMemory memory(pages * 4 * page);
  for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = static_cast<std::byte>(i * 13);
  const std::vector<std::byte> before(memory.data(), memory.data() + memory.size());
  results_of(*store_with({.flip_at = 5}), memory.data());
  int bits = 0;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    bits += std::popcount(std::to_integer<unsigned>(before[i] ^ memory.data()[i]));
    if (before[i] != memory.data()[i]) {
      EXPECT_EQ(i / (4 * page), 5u);
    }
  }
  EXPECT_EQ(bits, 1);
}

TEST(Faulty, APumpPutsShortAndLaterRight) {
  const AlignedMemory memory(2 * pages * page);
  for (std::size_t i = 0; i < pages * page; ++i) memory.data()[i] = static_cast<std::byte>(i * 17);
  const auto store = store_with({.seed = 3, .again_rate = 0.2, .short_rate = 0.5, .latency_microseconds = 50});
  Pump pump(*store, {.chunk_bytes = 4 * page, .in_flight_bytes = 16 * page, .capacity = 4});
  const Ticket written = pump.submit({true, 0, 0, memory.data(), pages * page, no_ticket});
  pump.wait(pump.submit({false, 0, 0, memory.data() + pages * page, pages * page, written}));
  EXPECT_TRUE(std::equal(memory.data(), memory.data() + pages * page, memory.data() + pages * page));
  EXPECT_EQ(pump.bytes_read(), pages * page);
}

TEST(Faulty, APumpReportsTheFullDisk) {
  const AlignedMemory memory(pages * page);
  const auto store = store_with({.full_after_bytes = 5 * page});
  Pump pump(*store, {.chunk_bytes = page, .in_flight_bytes = page, .capacity = 4});
  try {
    pump.wait(pump.submit({true, 0, 0, memory.data(), pages * page, no_ticket}));
    FAIL() << "the error was lost";
  } catch (const StorageError &error) {
    EXPECT_EQ(error.error, ENOSPC);
    EXPECT_EQ(error.offset, 5 * page);
    EXPECT_EQ(error.path, "nowhere");
  }
}

TEST(Faulty, FlushMayFail) {
  const auto store = store_with({.flush_error_at = 1});
  store->flush();
  EXPECT_THROW(store->flush(), StorageError);
  store->flush();
}

}  // namespace
}  // namespace outcrop
