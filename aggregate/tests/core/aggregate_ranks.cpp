#include "aggregate_ranks.hpp"

#include <algorithm>

namespace outcrop::aggregate {

// Adds ranges of random lengths. Each of these ranges belongs to one rank or to no rank. In the declarations, the
// ranges are in random order.
std::uint64_t RandomPattern::add_pieces(Random &random, std::uint64_t begin) {
  const std::uint64_t longest = std::uint64_t{1} << below(random, 17), count = 1 + below(random, 60);
  std::vector<std::vector<Extent>> lists(ranks.size());
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t length = 1 + below(random, longest);
    if (below(random, 5) > 0) lists[below(random, lists.size())].push_back(contiguous(begin, length));
    begin += length;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::ranges::shuffle(lists[rank], random);
    std::uint64_t memory = below(random, 3);
    for (Extent &extent : lists[rank]) {
      extent.memory_offset = memory;
      memory += extent.block_bytes + below(random, 3);
    }
    ranks[rank].variables.push_back(lists[rank]);
  }
  return begin;
}

// Adds an array of structures. Each field of the structures belongs to one rank or to no rank.
std::uint64_t RandomPattern::add_records(Random &random, std::uint64_t begin) {
  const std::uint64_t count = 1 + below(random, 3000), fields = 1 + below(random, 9);
  std::vector<std::uint64_t> lengths;
  std::uint64_t record = below(random, 4);
  for (std::uint64_t i = 0; i < fields; ++i) {
    lengths.push_back(std::uint64_t{1} << below(random, 5));
    record += lengths.back();
  }
  std::uint64_t at = begin;
  for (const std::uint64_t length : lengths) {
    if (below(random, 6) > 0) {
      const std::uint64_t stride = length + (below(random, 2) > 0 ? below(random, 9) : 0);
      someone(random).variables.push_back({strided(at, count, length, record, stride)});
    }
    at += length;
  }
  return begin + count * record;
}

// Adds an array with one to three axes. The array is cut into blocks. Each block belongs to a random rank.
std::uint64_t RandomPattern::add_grid(Random &random, std::uint64_t begin) {
  const std::size_t axes = 1 + below(random, 3);
  const std::uint64_t item = 1 + below(random, 12);
  std::vector<std::uint64_t> sizes, cuts, index(axes, 0);
  std::uint64_t bytes = item;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    sizes.push_back(1 + below(random, 40));
    cuts.push_back(1 + below(random, std::min<std::uint64_t>(sizes.back(), 4)));
    bytes *= sizes.back();
  }
  for (bool more = true; more;) {
    std::vector<std::uint64_t> subsizes, starts;
    for (std::size_t axis = 0; axis < axes; ++axis) {
      starts.push_back(sizes[axis] * index[axis] / cuts[axis]);
      subsizes.push_back(sizes[axis] * (index[axis] + 1) / cuts[axis] - starts.back());
    }
    if (below(random, 12) > 0) someone(random).variables.push_back({subarray(sizes, subsizes, starts, item, begin)});
    more = false;
    for (std::size_t axis = 0; axis < axes && !more; ++axis) {
      more = ++index[axis] < cuts[axis];
      if (!more) index[axis] = 0;
    }
  }
  return begin + bytes;
}

RandomPattern::RandomPattern(Random &random, int size) : ranks(static_cast<std::size_t>(size)) {
  std::uint64_t begin = below(random, 5000);
  for (std::uint64_t part = 0, parts = 1 + below(random, 4); part < parts; ++part) {
    if (below(random, 6) == 0) begin += (std::uint64_t{1} << 32) + below(random, 10000);
    const std::uint64_t kind = below(random, 3);
    const std::uint64_t end = kind == 0   ? add_pieces(random, begin)
                              : kind == 1 ? add_records(random, begin)
                                          : add_grid(random, begin);
    windows.push_back({begin, end});
    begin = end + below(random, 200000);
  }
}

}  // namespace outcrop::aggregate
