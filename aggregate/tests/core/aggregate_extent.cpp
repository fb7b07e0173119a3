// These tests compare the arithmetic of extents with loops over all repetitions. Both methods must find the same bytes.
// The tests also check that invalid extents are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/decision/decision.hpp"
#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

// the offsets of each byte of an extent: in the file and in memory
using Bytes = std::map<std::uint64_t, std::uint64_t>;

Bytes bytes_of(const Extent &extent, const Range &range) {
  Bytes bytes;
  expand(extent, [&](std::uint64_t file, std::uint64_t memory, std::uint64_t length) {
    for (std::uint64_t i = 0; i < length; ++i)
      if (file + i >= range.begin && file + i < range.end) bytes[file + i] = memory + i;
  });
  return bytes;
}

Extent random_extent(Random &random) {
  Extent extent{below(random, 50), below(random, 9), 1 + below(random, 6), {}};
  std::uint64_t span = extent.block_bytes;
  for (std::uint64_t i = 0, dims = below(random, 4); i < dims; ++i) {
    const std::uint64_t stride = span + (below(random, 2) > 0 ? below(random, 7) : 0), count = 1 + below(random, 5);
    extent.dims.push_back({count, stride, 1000 / (i * i * i + 1)});
    span += (count - 1) * stride;
  }
  std::ranges::shuffle(extent.dims, random);
  return extent;
}

TEST(AggregateExtent, RangesAreCutOutByArithmetic) {
  Random random(1);
  for (int turn = 0; turn < 2000; ++turn) {
    const Extent given = random_extent(random), extent = nested(given);
    const Range all{0, ~std::uint64_t{0}};
    EXPECT_EQ(bytes_of(given, all).size(), extent.bytes());
    EXPECT_EQ(bytes_of(given, all), bytes_of(extent, all));
    EXPECT_EQ(bytes_of(given, all).begin()->first, extent.hull().begin);
    EXPECT_EQ(bytes_of(given, all).rbegin()->first + 1, extent.hull().end);
    const std::uint64_t begin = below(random, 300), end = begin + below(random, 300);
    const Bytes expected = bytes_of(given, {begin, end});
    EXPECT_EQ(extent.bytes_in({begin, end}), expected.size());
    Bytes found;
    std::uint64_t last = 0;
    visit_batches(extent, {begin, end}, [&](const Batch &batch) {
      for (std::uint64_t i = 0; i < batch.count; ++i)
        for (std::uint64_t j = 0; j < batch.block; ++j) {
          const std::uint64_t file = batch.file + i * batch.file_stride + j;
          EXPECT_GE(file, last);
          last = file;
          found[file] = batch.memory + i * batch.memory_stride + j;
        }
    });
    EXPECT_EQ(found, expected);
  }
}

TEST(AggregateExtent, SubarraysAreInCOrder) {
  const std::vector<std::uint64_t> sizes{4, 5, 6}, subsizes{2, 3, 2}, starts{1, 2, 3};
  const Extent extent = subarray(sizes, subsizes, starts, 8, 100);
  Bytes expected;
  std::uint64_t memory = 0;
  for (std::uint64_t z = 1; z < 3; ++z)
    for (std::uint64_t y = 2; y < 5; ++y)
      for (std::uint64_t x = 3; x < 5; ++x)
        for (std::uint64_t i = 0; i < 8; ++i) expected[100 + ((z * 5 + y) * 6 + x) * 8 + i] = memory++;
  EXPECT_EQ(bytes_of(extent, {0, 10000}), expected);
}

TEST(AggregateExtent, WholeAxesAreJoined) {
  const std::vector<std::uint64_t> sizes{4, 5, 6}, rows{4, 2, 6}, zero{0, 0, 0};
  EXPECT_EQ(subarray(sizes, sizes, zero, 8), contiguous(0, 4 * 5 * 6 * 8));
  EXPECT_EQ(subarray(sizes, rows, zero, 8).dims.size(), 1u);
  EXPECT_EQ(strided(7, 10, 4, 4), contiguous(7, 40));
}

TEST(AggregateExtent, NothingIsNothing) {
  EXPECT_EQ(contiguous(5, 0).bytes(), 0u);
  EXPECT_EQ(strided(5, 0, 4, 8).bytes(), 0u);
  const std::vector<std::uint64_t> sizes{4}, none{0}, end{4};
  EXPECT_EQ(subarray(sizes, none, end, 8).bytes(), 0u);
}

TEST(AggregateExtent, WhatCannotBeIsRefused) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  EXPECT_THROW(contiguous(huge, 1), InputError);
  EXPECT_THROW(contiguous(0, huge + 1), InputError);
  EXPECT_THROW(strided(0, huge, 1, 8), InputError);
  EXPECT_THROW(strided(0, 3, 8, 4), InputError);
  const std::vector<std::uint64_t> sizes{4, 5}, more{4, 6}, two{0, 2}, zero{0, 0}, one{1};
  EXPECT_THROW(subarray(sizes, more, zero, 8), InputError);
  EXPECT_THROW(subarray(sizes, sizes, two, 8), InputError);
  EXPECT_THROW(subarray(sizes, sizes, one, 8), InputError);
  EXPECT_THROW(subarray(sizes, sizes, zero, 0), InputError);
  const std::vector<std::uint64_t> large{huge, huge};
  EXPECT_THROW(subarray(large, one, one, 8), InputError);
  EXPECT_THROW(subarray(large, sizes, zero, 8), InputError);
}

TEST(AggregateOverlap, IsFoundWhereAndOnlyWhereBytesMeet) {
  Random random(2);
  int overlapping = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    Extent a = nested(random_extent(random)), b = nested(random_extent(random));
    if (turn % 2 == 0) {  // usually all ranks have extents of the same shape
      b = a;
      b.file_offset = below(random, 80);
    }
    const Bytes of_a = bytes_of(a, {0, ~std::uint64_t{0}}), of_b = bytes_of(b, {0, ~std::uint64_t{0}});
    const bool expected = std::ranges::any_of(of_a, [&](const auto &each) { return of_b.contains(each.first); });
    const auto found = common_byte(a, b);
    ASSERT_EQ(found.has_value(), expected);
    if (found) {
      EXPECT_TRUE(of_a.contains(*found) && of_b.contains(*found));
      ++overlapping;
    }
  }
  EXPECT_GT(overlapping, 400);
  EXPECT_LT(overlapping, 3600);
}

TEST(AggregateDomains, HoldAllRegionsOnceAndShareBytes) {
  Random random(3);
  for (int turn = 0; turn < 500; ++turn) {
    const RandomPattern pattern(random, 4);
    std::vector<Region> regions;
    std::uint64_t bytes = 0;
    for (const Declaration &declaration : pattern.ranks) {
      const Pattern own(declaration);
      const std::size_t most = 1 + below(random, 20);
      const std::vector<Region> found = regions_of(own, 1 + below(random, 5000), most);
      EXPECT_LE(found.size(), most);
      std::uint64_t inside = 0;
      for (const Region &region : found) {
        EXPECT_EQ(own.bytes_in(region.range), region.bytes);
        inside += region.bytes;
      }
      EXPECT_EQ(inside, own.bytes());
      bytes += inside;
      regions.insert(regions.end(), found.begin(), found.end());
    }
    const std::size_t count = 1 + below(random, 6);
    const std::uint64_t alignment = std::uint64_t{1} << below(random, 13);
    std::vector<Range> all;
    const auto domains = cut_domains(regions, count, alignment);
    EXPECT_LE(domains.size(), count);
    for (const std::vector<Range> &ranges : domains) {
      EXPECT_TRUE(!ranges.empty() || bytes == 0);
      all.insert(all.end(), ranges.begin(), ranges.end());
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_FALSE(all[i].empty());
      EXPECT_GE(all[i].begin, i > 0 ? all[i - 1].end : 0);
    }
    std::uint64_t held = 0;
    for (const Declaration &declaration : pattern.ranks)
      for (const Range &range : all) held += Pattern(declaration).bytes_in(range);
    EXPECT_EQ(held, bytes);
  }
}

TEST(AggregateDomains, OfEqualDensityAreEqual) {
  const std::vector<Region> regions{{{0, 1 << 20}, 1 << 20}, {{3 << 20, 4 << 20}, 1 << 20}};
  const auto domains = cut_domains(regions, 4, 4096);
  ASSERT_EQ(domains.size(), 4u);
  for (const std::vector<Range> &ranges : domains) {
    ASSERT_EQ(ranges.size(), 1u);
    EXPECT_EQ(ranges[0].bytes(), 1u << 19);
  }
}

TEST(AggregateRounds, HoldEveryByteOnceInPlacesLikeThoseOfTheFile) {
  Random random(4);
  for (int turn = 0; turn < 500; ++turn) {
    std::vector<Range> ranges;
    std::uint64_t begin = below(random, 10000), bytes = 0;
    for (std::uint64_t i = 0, count = 1 + below(random, 8); i < count; ++i) {
      ranges.push_back({begin, begin + 1 + below(random, 40000)});
      bytes += ranges.back().bytes();
      begin = ranges.back().end + 1 + below(random, 9000);
    }
    const std::uint64_t buffer = 4096 * (1 + below(random, 6));
    const Rounds rounds = cut_rounds(ranges, buffer);
    std::uint64_t last = 0;
    for (std::size_t round = 0; round < rounds.count(); ++round) {
      std::uint64_t position = 0;
      EXPECT_FALSE(rounds.of(round).empty());
      for (const BufferedRange &piece : rounds.of(round)) {
        EXPECT_GE(piece.file.begin, last);
        EXPECT_GE(piece.position, position);
        EXPECT_EQ(piece.position % 4096, piece.file.begin % 4096);
        EXPECT_LE(piece.position + piece.file.bytes(), buffer);
        last = piece.file.end;
        position = piece.position + piece.file.bytes();
        bytes -= piece.file.bytes();
      }
    }
    EXPECT_EQ(bytes, 0u);
  }
}

}  // namespace
}  // namespace outcrop::aggregate
