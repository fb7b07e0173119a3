#include "outcrop/aggregate/decision/rounds.hpp"

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/round.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t page = AlignedMemory::page_bytes;

}  // namespace

Rounds cut_rounds(std::span<const Range> ranges, std::uint64_t buffer_bytes) {
  Rounds rounds;
  std::uint64_t position = 0;
  const auto end_round = [&] {
    if (position > 0) rounds.ends.push_back(static_cast<std::uint32_t>(rounds.pieces.size()));
    position = 0;
  };
  for (Range rest : ranges)
    while (!rest.empty()) {
      position = round_up(position, page) + rest.begin % page;
      if (position >= buffer_bytes) {
        end_round();
        continue;
      }
      // Position and file are alike in pages, so a full buffer ends at a page of the file.
      const std::uint64_t length = std::min(rest.bytes(), buffer_bytes - position);
      rounds.pieces.push_back({{rest.begin, rest.begin + length}, position});
      position += length;
      rest.begin += length;
      if (position == buffer_bytes) end_round();
    }
  end_round();
  return rounds;
}

}  // namespace outcrop::aggregate
