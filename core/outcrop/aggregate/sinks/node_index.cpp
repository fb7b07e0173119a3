#include "outcrop/aggregate/sinks/node_index.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "outcrop/aggregate/text/listing.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::string_view head = "outcrop node files 1\n";

bool take_range(std::string_view &text, NodeRange &range) {
  return take_number(text, range.range.begin) && take(text, " ") && take_number(text, range.range.end) &&
         take(text, " ") && take_number(text, range.file) && take(text, "\n");
}

constexpr std::uint64_t end_most = std::uint64_t{1} << 62;

// A name of a file in the index's folder, and no way out of it.
bool is_plain(const std::string &name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// What everything that reads node files relies on.
bool is_sound(const NodeIndex &index) {
  std::uint64_t end = 0;
  for (const NodeRange &each : index.ranges) {
    if (each.range.begin < end || each.range.end <= each.range.begin || each.range.end > end_most) return false;
    if (each.file >= index.files.size()) return false;
    end = each.range.end;
  }
  const auto fits = [&](std::uint64_t base) { return base <= end_most - end; };
  std::vector<std::uint64_t> bases = index.bases;
  std::ranges::sort(bases);
  return index.size_bytes <= end_most && std::ranges::all_of(index.files, is_plain) &&
         std::ranges::all_of(bases, fits) && std::ranges::adjacent_find(bases) == bases.end();
}

// Lines in the order in which to_text writes them.
bool take_index(std::string_view text, NodeIndex &index) {
  if (!take(text, head) || !take(text, "size ") || !take_number(text, index.size_bytes) || !take(text, "\n"))
    return false;
  while (take(text, "file "))
    if (!take_rest(text, index.files.emplace_back())) return false;
  while (take(text, "range "))
    if (!take_range(text, index.ranges.emplace_back())) return false;
  while (take(text, "step "))
    if (!take_number(text, index.bases.emplace_back()) || !take(text, "\n")) return false;
  return text.empty() && is_sound(index);
}

}  // namespace

void NodeIndex::add_step(std::uint64_t base) {
  std::erase(bases, base);
  bases.push_back(base);
}

std::uint64_t NodeIndex::end() const {
  if (ranges.empty() || bases.empty()) return size_bytes;
  return std::max(size_bytes, *std::ranges::max_element(bases) + ranges.back().range.end);
}

std::string to_text(const NodeIndex &index) {
  std::ostringstream text;
  text << head << "size " << index.size_bytes << '\n';
  for (const std::string &name : index.files) text << "file " << name << '\n';
  for (const NodeRange &each : index.ranges)
    text << "range " << each.range.begin << ' ' << each.range.end << ' ' << each.file << '\n';
  for (const std::uint64_t base : index.bases) text << "step " << base << '\n';
  return with_checksum(text.str());
}

NodeIndex node_index_of(const std::string &text, const std::string &path) {
  NodeIndex index;
  if (!take_index(checked_lines(text, path), index))
    throw CorruptionError(path + " is not an index of node files that this version reads");
  return index;
}

std::vector<NodeRange> joined(std::vector<NodeRange> ranges) {
  std::ranges::sort(ranges, {}, [](const NodeRange &each) { return each.range.begin; });
  std::vector<NodeRange> result;
  for (const NodeRange &each : ranges)
    if (!result.empty() && result.back().range.end == each.range.begin && result.back().file == each.file)
      result.back().range.end = each.range.end;
    else
      result.push_back(each);
  return result;
}

std::string index_of(const std::string &path) { return path + ".index"; }
std::string node_file_of(const std::string &path, int node) { return path + ".node-" + std::to_string(node); }

}  // namespace outcrop::aggregate
