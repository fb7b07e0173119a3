// What steps took at this rank, beside what was predicted.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "outcrop/aggregate/steps/timing.hpp"

namespace outcrop::aggregate {

class Measured {
 public:
  /// A `what`: "write", "staged read". The last thousand of each are kept.
  void add(const std::string &what, const Timing &timing);

  /// A line for each `what`, of medians, with its predicted seconds where there are any.
  std::vector<std::string> lines(int rank, const std::map<std::string, double> &predicted) const;

 private:
  std::map<std::string, std::deque<Timing>> steps_;
};

}  // namespace outcrop::aggregate
