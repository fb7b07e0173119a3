#include "outcrop/aggregate/placement/measured.hpp"

#include <algorithm>
#include <optional>

#include "outcrop/aggregate/text/format.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t steps_most = 1024;

double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median_of(const std::deque<Timing> &steps, double Timing::*part) {
  std::vector<double> values;
  for (const Timing &each : steps) values.push_back(each.*part);
  return median(std::move(values));
}

// Of the shorter of copying and storage, the part that went on beside the other; nothing where one is missing.
std::optional<double> overlap(const Timing &timing) {
  const double shorter = std::min(timing.seconds_copying, timing.seconds_storage);
  if (shorter <= 0) return std::nullopt;
  return std::clamp((timing.seconds_copying + timing.seconds_storage - timing.seconds) / shorter, 0.0, 1.0);
}

}  // namespace

void Measured::add(const std::string &what, const Timing &timing) {
  std::deque<Timing> &kept = steps_[what];
  kept.push_back(timing);
  if (kept.size() > steps_most) kept.pop_front();
}

std::vector<std::string> Measured::lines(int rank, const std::map<std::string, double> &predicted) const {
  std::vector<std::string> lines;
  for (const auto &[what, steps] : steps_) {
    std::string line = "measured at rank " + std::to_string(rank) + ", " + std::to_string(steps.size()) + " " + what +
                       (steps.size() == 1 ? "" : "s") + ": " + format_seconds(median_of(steps, &Timing::seconds));
    if (const auto found = predicted.find(what); found != predicted.end())
      line += ", predicted " + format_seconds(found->second);
    line += "; copying " + format_seconds(median_of(steps, &Timing::seconds_copying));
    if (const double storage = median_of(steps, &Timing::seconds_storage); storage > 0)
      line += ", storage " + format_seconds(storage);
    std::vector<double> overlaps;
    for (const Timing &each : steps)
      if (const auto part = overlap(each)) overlaps.push_back(100 * *part);
    if (!overlaps.empty())
      line += ", " + format_number(median(std::move(overlaps))) + "% of the shorter beside the other";
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace outcrop::aggregate
