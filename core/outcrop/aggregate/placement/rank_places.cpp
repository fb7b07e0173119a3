#include "outcrop/aggregate/placement/rank_places.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "outcrop/aggregate/text/listing.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

using Place = std::array<std::string, 3>;
constexpr std::string_view blanks = " \t\r";
constexpr std::array<double, 4> LINKS = {5, 3, 2, 0};  // between places that share none, one, two, all parts

std::string_view next_line(std::string_view &text) {
  const std::size_t length = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  line = line.substr(0, line.find('#'));
  while (!line.empty() && blanks.find(line.back()) != std::string_view::npos) line.remove_suffix(1);
  return line;
}

void skip_blanks(std::string_view &line) { line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size())); }

bool take_place(std::string_view line, std::uint64_t &rank, Place &place) {
  skip_blanks(line);
  if (!take_number(line, rank)) return false;
  skip_blanks(line);
  if (!take(line, ":")) return false;
  for (std::string &part : place) {
    skip_blanks(line);
    part = line.substr(0, line.find_first_of(blanks));
    line.remove_prefix(part.size());
    if (part.empty()) return false;
  }
  return line.empty();
}

}  // namespace

Distances distances_by_places(std::string_view text, const std::string &file,
                              std::span<const std::uint32_t> node_of_rank) {
  std::vector<std::optional<Place>> of_node(node_of_rank.empty() ? 0 : std::size_t{std::ranges::max(node_of_rank)} + 1);
  std::vector<char> is_named(node_of_rank.size());
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = next_line(text);
    if (line.empty()) continue;
    const std::string where = file + ":" + std::to_string(number) + ": ";
    std::uint64_t rank = 0;
    Place place{};
    if (!take_place(line, rank, place)) throw InputError(where + "must be `rank: group switch port`");
    if (rank >= is_named.size())
      throw InputError(where + "rank " + std::to_string(rank) + " of " + std::to_string(is_named.size()) + " ranks");
    if (is_named[rank]++) throw InputError(where + "rank " + std::to_string(rank) + " is there twice");
    std::optional<Place> &known = of_node[node_of_rank[rank]];
    if (known && *known != place)
      throw InputError(where + "rank " + std::to_string(rank) + " is on a node with others, not apart");
    known = place;
  }
  const auto missing = std::ranges::find(is_named, char{0});
  if (missing != is_named.end())
    throw InputError(file + ": rank " + std::to_string(missing - is_named.begin()) + " has no line");
  return [of_node](std::size_t node, std::span<double> row) {
    for (std::size_t other = 0; other < row.size(); ++other) {
      const auto [end, ignored] = std::ranges::mismatch(*of_node[node], *of_node[other]);
      row[other] = LINKS[static_cast<std::size_t>(end - of_node[node]->begin())];
    }
  };
}

Distances distances_by_node() {
  return [](std::size_t node, std::span<double> row) {
    for (std::size_t other = 0; other < row.size(); ++other) row[other] = other == node ? 0 : 1;
  };
}

}  // namespace outcrop::aggregate
