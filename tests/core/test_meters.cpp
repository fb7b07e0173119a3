// These tests check the loops of STREAM. Each loop must compute the same values as McCalpin's program STREAM, for every
// number of threads and every kind of flush. Flushed bytes of a mapped file must be in the file. `MemoryMeter` must be
// able to run each loop.
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/meters.hpp"
#include "outcrop/storage/file.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {
namespace {

constexpr std::size_t page_doubles = 4096 / sizeof(double);

TEST(StreamLoops, ComputeWhatTheirNamesSay) {
  const std::vector<double> one(13, 2.0), other(13, 5.0);
  std::vector<double> result(13, -1.0);
  for (const auto &[name, expected] : std::initializer_list<std::pair<const char *, double>>{
           {"copy", 2.0}, {"scale", 6.0}, {"add", 7.0}, {"triad", 17.0}}) {
    find_stream_loop(name)(one, other, result);
    EXPECT_EQ(result, std::vector<double>(13, expected)) << name;
  }
  EXPECT_THROW(find_stream_loop("sum"), InputError);
}

TEST(Stream, EveryElementIsWrittenByEveryNumberOfThreads) {
  for (const unsigned threads : {1u, 2u, 3u, 7u})
    for (const std::size_t count : {std::size_t{1}, page_doubles, 2 * page_doubles + 5, 9 * page_doubles}) {
      Stream stream(unbound(threads));
      std::vector<double> a(count), c(count, -1.0);
      stream.fill(a, 2.0);
      EXPECT_TRUE(stream.holds(a, 2.0));
      stream.run(find_stream_loop("copy"), a, a, c, StreamFlush::none, nullptr);
      EXPECT_EQ(c, a) << threads << " threads, " << count;
      c.back() = 0.0;
      EXPECT_FALSE(stream.holds(c, 2.0));
    }
}

TEST(Stream, FlushesLeaveTheSameValues) {
  const Mapping mapping(File::unnamed(std::filesystem::current_path().string(), 3 * 5 * 4096), true);
  const std::span<double> all(reinterpret_cast<double *>(mapping.data()), 3 * 5 * page_doubles);
  const auto a = all.subspan(0, 5 * page_doubles), b = all.subspan(5 * page_doubles, 5 * page_doubles),
             c = all.subspan(10 * page_doubles);
  for (const StreamFlush flush : {StreamFlush::individual, StreamFlush::collective}) {
    Stream stream(unbound(2));
    stream.fill(a, 0.0);
    stream.fill(b, 2.0);
    stream.fill(c, 1.0);
    const StreamSeconds seconds = stream.run(find_stream_loop("triad"), b, c, a, flush, &mapping);
    EXPECT_TRUE(stream.holds(a, 5.0) && stream.holds(b, 2.0) && stream.holds(c, 1.0));
    EXPECT_EQ(seconds.flush > 0, flush == StreamFlush::collective);
  }
}

TEST(MemoryMeterTest, KnowsItsLoops) {
  MemoryMeter meter(unbound(3), std::size_t{3} << 20, {});
  for (const char *loop : {"read", "write", "copy", "scale", "add", "triad"})
    EXPECT_GT(meter.bandwidth(loop, 1), 0) << loop;
  EXPECT_THROW(meter.bandwidth("fill", 1), InputError);
  EXPECT_GT(meter.random_bandwidth(false), 0);
  EXPECT_GT(meter.random_bandwidth(true), 0);
  EXPECT_GT(meter.latency(), 0);
}

}  // namespace
}  // namespace outcrop
