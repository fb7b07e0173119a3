// These tests check the measurements of storage. A measurement must perform the requested number of transfers, must
// stay within the span, and must report errors. The tests do not check the measured speed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/meters.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {
namespace {

constexpr std::size_t kib = 1024;
constexpr double for_ever = std::numeric_limits<double>::infinity();

class Meters : public testing::Test {
 protected:
  Meters() : path_(testing::TempDir() + "outcrop-meters-" + std::to_string(getpid())) { File::create(path_, size); }
  ~Meters() override { std::filesystem::remove(path_); }

  std::vector<char> content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Returns true if all bytes of the file before `end` were written, and no byte from `end` on was written. If eight
  // successive bytes are zero, the function treats them as bytes that were not written.
  bool is_written_up_to(std::size_t end) const {
    const std::vector<char> bytes = content();
    const auto is_zero = [](char byte) { return byte == 0; };
    for (std::size_t i = 0; i < end; i += 8)
      if (std::all_of(bytes.begin() + static_cast<long>(i), bytes.begin() + static_cast<long>(i + 8), is_zero))
        return false;
    return std::all_of(bytes.begin() + static_cast<long>(end), bytes.end(), is_zero);
  }

  static constexpr std::size_t size = 256 * kib;
  const std::string path_;
};

TEST_F(Meters, WriteTheSpanAndNothingElse) {
  for (const char *backend : {"threads", "mmap"}) {
    File::create(path_, size);
    const auto store = open_store(backend, {{path_, true}});
    const Moved moved = measure_transfers(*store, {true, false, true, 4 * kib, 8, 128 * kib, 128 * kib, for_ever});
    EXPECT_EQ(moved.bytes, 128 * kib) << backend;
    EXPECT_EQ(moved.requests, 32u) << backend;
    EXPECT_GT(moved.seconds, 0) << backend;
    EXPECT_TRUE(is_written_up_to(128 * kib)) << backend;
  }
}

TEST_F(Meters, BeginAgainAtTheEndOfTheSpan) {
  const auto store = open_store("threads", {{path_, true}});
  EXPECT_EQ(measure_transfers(*store, {true, false, false, 4 * kib, 4, 16 * kib, 64 * kib, for_ever}).requests, 16u);
  EXPECT_TRUE(is_written_up_to(16 * kib));
}

TEST_F(Meters, ReachAllOfTheSpanAtRandom) {
  const auto store = open_store("threads", {{path_, true}});
  const Moved moved = measure_transfers(*store, {true, true, false, 4 * kib, 4, 32 * kib, 1024 * kib, for_ever});
  EXPECT_EQ(moved.bytes, 1024 * kib);
  EXPECT_TRUE(is_written_up_to(32 * kib));
}

TEST_F(Meters, StopWhenTheTimeIsOver) {
  const auto store = open_store("threads", {{path_, false}});
  EXPECT_EQ(measure_transfers(*store, {false, false, false, 4 * kib, 2, size, size, 0}).requests, 2u);
  EXPECT_LE(measure_threads(path_, true, {false, false, false, 64 * kib, 2, size, 1024 * size, 0}).requests, 2u);
}

TEST_F(Meters, ShareTheSpanAmongThreads) {
  for (const bool mapped : {false, true}) {
    File::create(path_, size);
    const Moved moved = measure_threads(path_, mapped, {true, false, true, 256, 3, 96 * kib, 96 * kib, for_ever});
    EXPECT_EQ(moved.bytes, 96 * kib);
    EXPECT_TRUE(is_written_up_to(96 * kib)) << mapped;
    const Moved read = measure_threads(path_, mapped, {false, true, false, 256, 1, size, 8 * kib, for_ever});
    EXPECT_EQ(read.requests, 32u);
  }
}

TEST_F(Meters, SayWhatGoesWrong) {
  const auto store = open_store("threads", {{path_, false}}, {true, 4, {}});
  EXPECT_THROW(measure_transfers(*store, {false, false, false, 4 * kib, 5, size, size, 1}), InputError);
  EXPECT_THROW(measure_transfers(*store, {false, false, false, 4 * kib, 0, size, size, 1}), InputError);
  EXPECT_THROW(measure_transfers(*store, {false, false, false, size, 2, size, size, 1}), InputError);
  try {
    measure_transfers(*store, {false, false, false, 4 * kib, 4, 2 * size, 2 * size, for_ever});
    FAIL() << "the file ends before the span";
  } catch (const StorageError &error) {
    EXPECT_EQ(error.error, ENODATA);
    EXPECT_EQ(error.path, path_);
  }
  EXPECT_THROW(measure_transfers(*store, {true, false, false, 4 * kib, 1, size, size, 1}), StorageError);
  EXPECT_THROW(measure_threads(path_, true, {false, false, false, 4 * kib, 1, 2 * size, size, 1}), StorageError);
  EXPECT_THROW(measure_threads(path_ + "-none", false, {false, false, false, 4 * kib, 1, size, size, 1}), StorageError);
}

TEST_F(Meters, TryAgainWhatTheSystemPutsOff) {
  Faults faults;
  faults.again_rate = 0.3;
  const auto store = open_store("threads", {{path_, true}}, {true, 8, faults});
  EXPECT_EQ(measure_transfers(*store, {true, false, false, 4 * kib, 8, size, size, for_ever}).bytes, size);
  EXPECT_TRUE(is_written_up_to(size));
}

}  // namespace
}  // namespace outcrop
