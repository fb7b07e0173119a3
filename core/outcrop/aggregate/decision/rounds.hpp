// A domain cut into what fits into one buffer at a time.
//
//     ranges of the domain   [──────────────]        [────]      [──────────────────────]
//     rounds                 [   0   ][  1  .........  1  ][    2 ....  2  ][     3     ]
//
// A piece lies in the buffer as far beyond a page as it does in the file, so that whole pages can go around the page cache.
// Cuts are at pages, too: no page belongs to two rounds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"

namespace outcrop::aggregate {

struct Piece {
  Range file;
  std::uint64_t position = 0;  ///< in the buffer
};

struct Rounds {
  std::vector<Piece> pieces;
  std::vector<std::uint32_t> ends;  ///< of each round: its last piece + 1

  std::size_t count() const { return ends.size(); }
  std::span<const Piece> of(std::size_t round) const {
    const std::uint32_t first = round == 0 ? 0 : ends[round - 1];
    return {pieces.data() + first, ends[round] - first};
  }
};

/// `buffer_bytes` is a multiple of the page. Ranges are sorted.
Rounds cut_rounds(std::span<const Range> ranges, std::uint64_t buffer_bytes);

}  // namespace outcrop::aggregate
