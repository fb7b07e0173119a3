#include <algorithm>
#include <cassert>
#include <limits>
#include <queue>
#include <utility>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {
namespace {

constexpr double FAR = std::numeric_limits<double>::infinity();
constexpr std::uint32_t NONE = std::numeric_limits<std::uint32_t>::max();

// Finds the assignment with the minimum cost by the method of Jonker and Volgenant (shortest augmenting paths with
// potentials). The method adds one row after the other. For each new row, the method finds the cheapest path from the
// new row to a group with room. Each row on the cheapest path moves to the next column of the path. Each row, column
// and group has a potential p. The paths consist of two kinds of arcs. For an arc from a row to a column with cost c,
// the value c + p(row) - p(column) is at least 0. For an arc from a column with room to the column's group, the value
// p(column) - p(group) is at least 0. For the arcs of the current assignment, these two values are 0.
class Search {
 public:
  Search(std::size_t rows, const Columns &columns, std::span<const double> costs)
      : columns_(columns),
        costs_(costs),
        count_(columns.group.size()),
        column_of_(rows, NONE),
        row_potential_(rows),
        potential_(count_),
        group_potential_(columns.group_room.size()),
        rows_on_(count_),
        group_rows_(columns.group_room.size()),
        distance_(count_),
        from_row_(count_),
        from_group_(count_),
        is_done_(count_),
        group_distance_(columns.group_room.size()),
        from_column_(columns.group_room.size()),
        group_is_done_(columns.group_room.size()),
        first_of_(columns.group_room.size() + 1) {
    for (const std::uint32_t group : columns.group) ++first_of_[group + 1];
    for (std::size_t group = 0; group + 1 < first_of_.size(); ++group) first_of_[group + 1] += first_of_[group];
  }

  void add(std::uint32_t row) {
    begin(row);
    const std::uint32_t group = find();
    settle(group_distance_[group]);
    take_path(row, group);
  }

  std::vector<std::uint32_t> result() { return std::move(column_of_); }

 private:
  double at(std::uint32_t row, std::size_t column) const { return costs_[row * count_ + column]; }
  bool is_full(std::size_t column) const { return rows_on_[column].size() == columns_.room[column]; }

  void begin(std::uint32_t row) {
    double least = FAR;
    for (std::size_t column = 0; column < count_; ++column)
      least = std::min(least, at(row, column) - potential_[column]);
    row_potential_[row] = -least;
    std::fill(distance_.begin(), distance_.end(), FAR);
    std::fill(is_done_.begin(), is_done_.end(), false);
    std::fill(group_distance_.begin(), group_distance_.end(), FAR);
    std::fill(group_is_done_.begin(), group_is_done_.end(), false);
    groups_ = {};
    rows_seen_.clear();
    scan_row(row, 0);
  }

  // Runs Dijkstra's algorithm until the algorithm reaches a group that has room. Returns this group. A linear search
  // finds the next column, because each row reaches all columns. A queue gives the next group.
  std::uint32_t find() {
    while (true) {
      const auto nearest = nearest_column();
      const double limit = nearest == count_ ? FAR : distance_[nearest];
      if (!groups_.empty() && groups_.top().first <= limit) {
        const std::uint32_t group = groups_.top().second;
        groups_.pop();
        if (group_is_done_[group]) continue;
        if (group_rows_[group] < columns_.group_room[group]) return group;
        scan_group(group);
      } else {
        assert(nearest < count_);  // the columns have room for all rows, so a column is always left
        scan_column(nearest);
      }
    }
  }

  std::size_t nearest_column() const {
    std::size_t nearest = count_;
    double least = FAR;
    for (std::size_t column = 0; column < count_; ++column) {
      if (is_done_[column] || distance_[column] >= least) continue;
      least = distance_[column];
      nearest = column;
    }
    return nearest;
  }

  void scan_row(std::uint32_t row, double begin) {
    rows_seen_.emplace_back(row, begin);
    const double base = begin + row_potential_[row];
    const double *row_costs = &costs_[row * count_];
    for (std::size_t column = 0; column < count_; ++column) {
      const double reached = base + row_costs[column] - potential_[column];
      if (reached < distance_[column] && !is_done_[column]) reach(column, reached, row, NONE);
    }
  }

  void reach(std::size_t column, double distance, std::uint32_t row, std::uint32_t group) {
    distance_[column] = distance;
    from_row_[column] = row;
    from_group_[column] = group;
  }

  void scan_column(std::size_t column) {
    is_done_[column] = true;
    const std::uint32_t group = columns_.group[column];
    if (!is_full(column)) {
      const double reached = distance_[column] + potential_[column] - group_potential_[group];
      if (reached < group_distance_[group] && !group_is_done_[group]) {
        group_distance_[group] = reached;
        from_column_[group] = static_cast<std::uint32_t>(column);
        groups_.emplace(reached, group);
      }
    }
    for (const std::uint32_t row : rows_on_[column]) scan_row(row, distance_[column]);
  }

  void scan_group(std::uint32_t group) {
    group_is_done_[group] = true;
    for (std::size_t column = first_of_[group]; column < first_of_[group + 1]; ++column) {
      if (rows_on_[column].empty() || is_done_[column]) continue;
      const double reached = group_distance_[group] + group_potential_[group] - potential_[column];
      if (reached < distance_[column]) reach(column, reached, NONE, group);
    }
  }

  void settle(double end) {
    for (std::size_t column = 0; column < count_; ++column)
      if (is_done_[column] && distance_[column] < end) potential_[column] += distance_[column] - end;
    for (std::size_t group = 0; group < group_distance_.size(); ++group)
      if (group_is_done_[group] && group_distance_[group] < end)
        group_potential_[group] += group_distance_[group] - end;
    for (const auto &[row, distance] : rows_seen_)
      if (distance < end) row_potential_[row] += distance - end;
  }

  // Follows the path from the group back to the new row, and moves each row on the path. The search has reached a
  // column from each row on the path. The row moves to this column.
  void take_path(std::uint32_t first_row, std::uint32_t group) {
    ++group_rows_[group];
    std::uint32_t column = from_column_[group];
    while (true) {
      while (from_group_[column] != NONE) column = from_column_[from_group_[column]];
      const std::uint32_t row = from_row_[column];
      const std::uint32_t left = column_of_[row];
      column_of_[row] = column;
      rows_on_[column].push_back(row);
      if (row == first_row) return;
      std::erase(rows_on_[left], row);
      column = left;
    }
  }

  const Columns &columns_;
  std::span<const double> costs_;
  std::size_t count_;
  std::vector<std::uint32_t> column_of_;
  std::vector<double> row_potential_, potential_, group_potential_;
  std::vector<std::vector<std::uint32_t>> rows_on_;
  std::vector<std::uint32_t> group_rows_;
  std::vector<double> distance_;
  // element i is the row or group from which the search reached column i
  std::vector<std::uint32_t> from_row_, from_group_;
  std::vector<char> is_done_;
  std::vector<double> group_distance_;
  std::vector<std::uint32_t> from_column_;
  std::vector<char> group_is_done_;
  std::vector<std::size_t> first_of_;
  std::vector<std::pair<std::uint32_t, double>> rows_seen_;
  using Reached = std::pair<double, std::uint32_t>;
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> groups_;
};

}  // namespace

std::uint64_t places(const Columns &columns) {
  std::vector<std::uint64_t> rooms(columns.group_room.size());
  for (std::size_t column = 0; column < columns.group.size(); ++column)
    rooms[columns.group[column]] += columns.room[column];
  std::uint64_t all = 0;
  for (std::size_t group = 0; group < rooms.size(); ++group)
    all += std::min<std::uint64_t>(rooms[group], columns.group_room[group]);
  return all;
}

std::vector<std::uint32_t> assign(std::size_t rows, const Columns &columns, std::span<const double> costs) {
  assert(costs.size() == rows * columns.group.size() && places(columns) >= rows);
  Search search(rows, columns, costs);
  for (std::uint32_t row = 0; row < rows; ++row) search.add(row);
  return search.result();
}

std::vector<std::uint32_t> assign_in_turn(std::size_t rows, const Columns &columns, std::span<const double> costs) {
  const std::size_t count = columns.group.size();
  assert(costs.size() == rows * count && places(columns) >= rows);
  std::vector<std::uint32_t> room = columns.room, group_room = columns.group_room, result(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    std::size_t best = count;
    for (std::size_t column = 0; column < count; ++column) {
      if (room[column] == 0 || group_room[columns.group[column]] == 0) continue;
      if (best == count || costs[row * count + column] < costs[row * count + best]) best = column;
    }
    --room[best];
    --group_room[columns.group[best]];
    result[row] = static_cast<std::uint32_t>(best);
  }
  return result;
}

}  // namespace outcrop::aggregate
