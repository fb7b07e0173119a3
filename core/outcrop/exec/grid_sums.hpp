// Sums over all cells of a field after a step, taken in parts while rows are in a cache.
//
// Parts come in any order, from any thread, and cut by any plan; their sums must not tell. So neighbours are added up in groups of
// 64 bytes, which no plan cuts (the cells beyond nx counting as 0), in an order that is always the same; and groups are
// added exactly (exact_sum.hpp):
//
//     |0 1 2 3 4 5 6 7|8 9 ...     0+4, 1+5, 2+6, 3+7, then the first two sums plus the last two, then both, in float64
//
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "outcrop/exec/exact_sum.hpp"
#include "outcrop/exec/fields.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// Asks for the sums of a field after so many steps of the pass; 0: of what it finds.
struct SumRequest {
  std::size_t field = 0;
  long done = 1;
};

/// Sums over the values and their squares, and the extremes of those that are numbers.
struct FieldSum {
  ExactSum sum, squares;
  double minimum = std::numeric_limits<double>::infinity(), maximum = -std::numeric_limits<double>::infinity();

  void add(const FieldSum &other);
};

/// The sums of a pass. All arguments must outlive this.
class GridSums {
 public:
  GridSums(const Grid &grid, const Window &window, const Fields &fields, std::vector<SumRequest> requests);

  /// Adds a part of the planes z0 <= position < z1 as it is after so many steps. Every cell must be added exactly once.
  void add(long done, long z0, long z1, const Cut &cut);

  /// Adds cells that no step changes.
  void add_rim(long position, const Cut &cut);

  /// In the order of the requests; between passes only.
  const std::vector<FieldSum> &results() const { return results_; }
  bool empty() const { return requests_.empty(); }

 private:
  FieldSum sum(std::size_t ring, long z0, long z1, const Cut &cut) const;
  void add(std::size_t request, const FieldSum &part);

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  const std::vector<SumRequest> requests_;
  std::multimap<long, std::size_t> by_step_;
  std::mutex mutex_;
  std::vector<FieldSum> results_;
};

}  // namespace outcrop
