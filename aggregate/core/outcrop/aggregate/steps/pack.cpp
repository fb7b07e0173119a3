#include "outcrop/aggregate/steps/pack.hpp"

#include <cstring>

namespace outcrop::aggregate {
namespace {

// Ranges are copied in pieces of this size, one variable after the other in each. So the buffer stays in the cache if variables
// interleave (an array of structures). Both ends of a message use the same pieces, so they define its order, too.
constexpr std::uint64_t piece_bytes = std::uint64_t{256} << 10;

template <std::size_t block>
void copy_small(std::byte *target, std::uint64_t target_stride, const std::byte *source, std::uint64_t source_stride,
                std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(target + i * target_stride, source + i * source_stride, block);
}

void copy_rows(std::byte *target, std::uint64_t target_stride, const std::byte *source, std::uint64_t source_stride,
               std::uint64_t count, std::uint64_t block) {
  switch (block) {  // blocks of known length are single moves
    case 1:
      return copy_small<1>(target, target_stride, source, source_stride, count);
    case 2:
      return copy_small<2>(target, target_stride, source, source_stride, count);
    case 4:
      return copy_small<4>(target, target_stride, source, source_stride, count);
    case 8:
      return copy_small<8>(target, target_stride, source, source_stride, count);
    case 16:
      return copy_small<16>(target, target_stride, source, source_stride, count);
    default:
      for (std::uint64_t i = 0; i < count; ++i)
        std::memcpy(target + i * target_stride, source + i * source_stride, block);
  }
}

template <typename Copy>
void by_pieces(const Pattern &pattern, const Range &range, Copy &&copy) {
  for (Range piece{range.begin, 0}; piece.begin < range.end; piece.begin = piece.end) {
    piece.end = range.end - piece.begin > piece_bytes ? piece.begin + piece_bytes : range.end;
    pattern.visit_extents(piece, [&](const DeclaredExtent &declared) {
      visit_batches(declared.extent, piece, [&](const Batch &batch) { copy(declared, batch); });
    });
  }
}

// The same, with the position of each batch in the message. Returns the length of the message.
template <typename Copy>
std::uint64_t in_order(const Pattern &pattern, const Range &range, Copy &&copy) {
  std::uint64_t position = 0;
  by_pieces(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch) {
    copy(declared, batch, position);
    position += batch.count * batch.block;
  });
  return position;
}

}  // namespace

void fill(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, std::byte *places) {
  by_pieces(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch) {
    copy_rows(places + (batch.file - range.begin), batch.file_stride, memory[declared.variable] + batch.memory,
              batch.memory_stride, batch.count, batch.block);
  });
}

void empty(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, const std::byte *places) {
  by_pieces(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch) {
    copy_rows(memory[declared.variable] + batch.memory, batch.memory_stride, places + (batch.file - range.begin),
              batch.file_stride, batch.count, batch.block);
  });
}

std::uint64_t pack(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, std::byte *message) {
  return in_order(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch, std::uint64_t position) {
    copy_rows(message + position, batch.block, memory[declared.variable] + batch.memory, batch.memory_stride,
              batch.count, batch.block);
  });
}

std::uint64_t unpack(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory,
                     const std::byte *message) {
  return in_order(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch, std::uint64_t position) {
    copy_rows(memory[declared.variable] + batch.memory, batch.memory_stride, message + position, batch.block,
              batch.count, batch.block);
  });
}

std::uint64_t lay(const Pattern &pattern, const Range &range, const std::byte *message, std::byte *places) {
  return in_order(pattern, range, [&](const DeclaredExtent &, const Batch &batch, std::uint64_t position) {
    copy_rows(places + (batch.file - range.begin), batch.file_stride, message + position, batch.block, batch.count,
              batch.block);
  });
}

std::uint64_t lift(const Pattern &pattern, const Range &range, const std::byte *places, std::byte *message) {
  return in_order(pattern, range, [&](const DeclaredExtent &, const Batch &batch, std::uint64_t position) {
    copy_rows(message + position, batch.block, places + (batch.file - range.begin), batch.file_stride, batch.count,
              batch.block);
  });
}

}  // namespace outcrop::aggregate
