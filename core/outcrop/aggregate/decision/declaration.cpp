#include "outcrop/aggregate/decision/declaration.hpp"

#include <algorithm>

namespace outcrop::aggregate {

Pattern::Pattern(const Declaration &declaration) : memory_bytes_(declaration.variables.size()) {
  for (std::uint32_t variable = 0; variable < declaration.variables.size(); ++variable)
    for (const Extent &given : declaration.variables[variable]) {
      const Extent extent = nested(given);
      if (extent.block_bytes == 0) continue;
      memory_bytes_[variable] = std::max(memory_bytes_[variable], extent.memory_bytes());
      entries_.push_back({extent, variable, extent.hull()});
    }
  arrange();
}

Pattern::Pattern(std::vector<Entry> entries) : entries_(std::move(entries)) { arrange(); }

void Pattern::arrange() {
  std::ranges::stable_sort(entries_, {}, [](const Entry &entry) { return entry.hull.begin; });
  std::uint64_t end = 0;
  for (const Entry &entry : entries_) {
    ends_.push_back(end = std::max(end, entry.hull.end));
    bytes_ += entry.extent.bytes();
    blocks_ += entry.extent.blocks();
  }
}

std::size_t Pattern::first_in(const Range &range) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(ends_, range.begin) - ends_.begin());
}

std::uint64_t Pattern::bytes_in(const Range &range) const {
  std::uint64_t bytes = 0;
  visit_entries(range, [&](const Entry &entry) { bytes += entry.extent.bytes_in(range); });
  return bytes;
}

std::vector<std::uint64_t> Pattern::serialised(std::span<const Range> ranges) const {
  std::vector<std::uint64_t> words;
  for (const Entry &entry : entries_) {
    const auto inside = [&](const Range &range) { return entry.extent.bytes_in(range) > 0; };
    // Ranges are sorted: only those that meet the hull are asked.
    auto from = std::ranges::upper_bound(ranges, entry.hull.begin, {}, &Range::end);
    bool found = false;
    for (; from != ranges.end() && from->begin < entry.hull.end && !found; ++from) found = inside(*from);
    if (!found) continue;
    words.insert(words.end(), {entry.extent.file_offset, entry.extent.block_bytes, entry.extent.dims.size()});
    for (const Dimension &dim : entry.extent.dims) words.insert(words.end(), {dim.count, dim.file_stride_bytes});
  }
  return words;
}

Pattern Pattern::parsed(std::span<const std::uint64_t> words) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < words.size();) {
    Extent extent{words[i], 0, words[i + 1], std::vector<Dimension>(words[i + 2])};
    i += 3;
    for (Dimension &dim : extent.dims) {
      dim = {words[i], words[i + 1], 0};
      i += 2;
    }
    const Range hull = extent.hull();
    entries.push_back({std::move(extent), 0, hull});
  }
  return Pattern(std::move(entries));
}

}  // namespace outcrop::aggregate
