#include "outcrop/exec/plane_sums.hpp"

#include "outcrop/storage/crc32c.hpp"

namespace outcrop {

PlaneSums::PlaneSums(const Grid &grid)
    : grid_(grid),
      sums_(static_cast<std::size_t>(grid.nz)),
      bytes_(static_cast<std::size_t>(grid.nz)),
      row_factors_(static_cast<std::size_t>(grid.ny + 1)) {
  for (std::size_t rows = 0; rows < row_factors_.size(); ++rows)
    row_factors_[rows] = crc32c_factor(rows * grid.pitch_bytes);
}

void PlaneSums::clear() {
  for (auto &sum : sums_) sum.store(0, std::memory_order_relaxed);
  for (auto &bytes : bytes_) bytes.store(0, std::memory_order_relaxed);
}

void PlaneSums::add(long z, const std::byte *origin, std::size_t pitch_bytes, const Cut &cut) {
  if (cut.empty()) return;
  const bool is_one_part = pitch_bytes == grid_.pitch_bytes && cut.columns() == grid_.pitch_cells();
  const long rows_per_part = is_one_part ? cut.rows() : 1;
  const auto item = static_cast<std::ptrdiff_t>(grid_.item_bytes);
  const std::size_t part_bytes = static_cast<std::size_t>(rows_per_part * cut.columns()) * grid_.item_bytes;
  // What follows a part: the rest of its last row, then whole rows.
  const std::uint32_t rest_factor =
      crc32c_factor(static_cast<std::size_t>(grid_.pitch_cells() - cut.x1) * grid_.item_bytes);
  std::uint32_t sum = 0;
  for (long y = cut.y0; y < cut.y1; y += rows_per_part) {
    const std::byte *first = origin + y * static_cast<std::ptrdiff_t>(pitch_bytes) + cut.x0 * item;
    std::uint32_t part = crc32c({first, part_bytes});
    if (!is_one_part) part = crc32c_join(part, 0, rest_factor);
    sum ^= crc32c_join(part, 0, row_factors_[static_cast<std::size_t>(grid_.ny - y - rows_per_part)]);
  }
  sums_[index(z)].fetch_xor(sum, std::memory_order_relaxed);
  bytes_[index(z)].fetch_add(
      static_cast<std::size_t>(cut.rows()) * static_cast<std::size_t>(cut.columns()) * grid_.item_bytes,
      std::memory_order_relaxed);
}

}  // namespace outcrop
