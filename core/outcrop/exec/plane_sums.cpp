#include "outcrop/exec/plane_sums.hpp"

#include "outcrop/storage/crc32c.hpp"

namespace outcrop {
namespace {

std::uint32_t sum_rows(const Grid &grid, const std::byte *plane, long y0, long y1) {
  const auto rows = static_cast<std::size_t>(y1 - y0);
  return crc32c({plane + static_cast<std::size_t>(y0) * grid.pitch_bytes, rows * grid.pitch_bytes});
}

}  // namespace

PlaneSums::PlaneSums(const Grid &grid, long planes)
    : grid_(grid),
      planes_(planes),
      parts_(static_cast<std::size_t>(planes * grid.ny)),
      factors_(static_cast<std::size_t>(grid.ny + 1)) {
  for (std::size_t rows = 0; rows < factors_.size(); ++rows) factors_[rows] = crc32c_factor(rows * grid.pitch_bytes);
}

std::uint32_t PlaneSums::sum(const Grid &grid, const std::byte *plane) { return crc32c({plane, grid.plane_bytes}); }

void PlaneSums::add(long z, const std::byte *plane, long y0, long y1) {
  parts_[place(z, y0)] = {sum_rows(grid_, plane, y0, y1), static_cast<std::int32_t>(y1 - y0), z};
}

std::uint32_t PlaneSums::join(long z, const std::byte *plane) const {
  const bool has_inner = grid_.first_row() < grid_.end_row();
  const long inner = has_inner ? grid_.first_row() : grid_.ny, inner_end = has_inner ? grid_.end_row() : grid_.ny;
  std::uint32_t crc = sum_rows(grid_, plane, 0, inner);
  for (long y = inner; y < inner_end;) {
    const Part &part = parts_[place(z, y)];
    if (part.z != z) return sum(grid_, plane);
    crc = crc32c_join(crc, part.crc, factors_[static_cast<std::size_t>(part.rows)]);
    y += part.rows;
  }
  if (inner_end == grid_.ny) return crc;
  const auto rest = static_cast<std::size_t>(grid_.ny - inner_end);
  return crc32c_join(crc, sum_rows(grid_, plane, inner_end, grid_.ny), factors_[rest]);
}

}  // namespace outcrop
