#include "outcrop/exec/acquisition.hpp"

#include <cassert>
#include <tuple>
#include <utility>

namespace outcrop {
namespace {

bool writes(const StageCall &call, std::size_t ring) {
  return std::ranges::find(call.targets, ring) != call.targets.end();
}

bool updates(const StageCall &call, const Fields &fields, std::size_t field) {
  return writes(call, fields.ring(field, 0)) || writes(call, fields.ring(field, 1));
}

std::size_t last_stage(const Stages &stages, const Fields &fields, std::size_t field) {
  auto stage = static_cast<std::size_t>(stages.per_step());
  const auto lead = static_cast<std::size_t>(stages.lead.levels);
  while (stage > 0 && !updates(stages.calls[lead + stage - 1], fields, field)) --stage;
  assert(stage > 0);  // a field that no stage updates cannot have sources
  return stage - 1;
}

template <typename Value>
void add_value(std::byte *cell, const std::byte *values, std::size_t index) {
  *reinterpret_cast<Value *>(cell) += reinterpret_cast<const Value *>(values)[index];
}

void add_value(const Grid &grid, std::byte *cell, const std::byte *values, std::size_t index) {
  if (grid.item_bytes == sizeof(float))
    add_value<float>(cell, values, index);
  else
    add_value<double>(cell, values, index);
}

}  // namespace

void PointTable::add(const Grid &grid, std::size_t list, const std::vector<Cell> &cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell &cell = cells[i];
    assert(cell.x >= 0 && cell.x < grid.nx);
    assert((cell.z >= 0 || grid.has_below()) && (cell.z < grid.nz || grid.has_above()));
    // a negative rim means that a neighbouring rank owns the rows beyond this side
    assert((cell.y >= 0 || grid.rim_y_low < 0) && (cell.y < grid.ny || grid.rim_y_high < 0));
    points_.push_back({grid.position(cell.z), cell.y, cell.x, list, i});
  }
}

void PointTable::sort() {
  if (points_.empty()) return;
  std::ranges::stable_sort(points_, {}, [](const Point &one) { return std::tuple(one.position, one.y, one.x); });
  lowest_ = points_.front().position;
  first_.assign(static_cast<std::size_t>(points_.back().position - lowest_) + 2, 0);
  for (const Point &point : points_) ++first_[static_cast<std::size_t>(point.position - lowest_) + 1];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

Injections::Injections(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
                       const std::vector<PointInjection> &lists)
    : grid_(grid), window_(window), tables_(static_cast<std::size_t>(stages.per_step())) {
  for (const PointInjection &list : lists) {
    std::vector<std::size_t> rings;
    for (auto call = stages.calls.begin() + stages.lead.levels; call != stages.calls.end(); ++call)
      rings.push_back(fields.ring(list.field, writes(*call, fields.ring(list.field, 1)) ? 1 : 0));
    add_list(last_stage(stages, fields, list.field), list.cells, list.values, std::move(rings));
  }
  for (PointTable &table : tables_) table.sort();
}

Injections::Injections(const Grid &grid, const Window &window, const Lead &lead,
                       const std::vector<LeadInjection> &lists)
    : grid_(grid), window_(window), tables_(static_cast<std::size_t>(lead.per_step)) {
  for (const LeadInjection &list : lists) {
    std::vector<std::size_t> rings;
    for (const std::size_t field : list.fields) rings.insert(rings.end(), tables_.size(), field);
    add_list(static_cast<std::size_t>(list.stage), list.cells, list.values, std::move(rings));
  }
  for (PointTable &table : tables_) table.sort();
}

void Injections::add_list(std::size_t stage, const std::vector<Cell> &cells, const std::byte *values,
                          std::vector<std::size_t> rings) {
  tables_[stage].add(grid_, lists_.size(), cells);
  lists_.push_back({cells.size(), values, std::move(rings)});
}

void Injections::add(long level, long position, const Rectangle &cells) const {
  const auto own = static_cast<std::size_t>(level - 1), step = own / tables_.size();
  tables_[own % tables_.size()].for_each(position, cells, [&](const PointTable::Point &point) {
    const List &list = lists_[point.list];
    std::byte *cell = window_.cell(list.rings[own % list.rings.size()], position, point.y, point.x);
    add_value(grid_, cell, list.values, step * list.cells + point.index);
  });
}

Samples::Samples(const Grid &grid, const Window &window, const Fields &fields, std::vector<PointSamples> lists)
    : grid_(grid), window_(window), fields_(fields), lists_(std::move(lists)) {
  for (std::size_t i = 0; i < lists_.size(); ++i) (lists_[i].before ? before_ : after_).add(grid, i, lists_[i].cells);
  before_.sort();
  after_.sort();
}

// Takes samples for two kinds of receivers. Some receivers read the values after a step, and other receivers read the
// values before a step. The values after step `done` are also the values before the next step.
void Samples::take(long done, long steps, long position, const Rectangle &cells) const {
  if (done > 0) write(after_, done, done - 1, position, cells);
  if (done < steps) write(before_, done, done, position, cells);
}

void Samples::take_rim(long steps, long position, const Rectangle &cells) const {
  for (long step = 0; step < steps; ++step) {
    write(after_, 0, step, position, cells);
    write(before_, 0, step, position, cells);
  }
}

void Samples::write(const PointTable &table, long done, long row, long position, const Rectangle &cells) const {
  table.for_each(position, cells, [&](const PointTable::Point &point) {
    const PointSamples &list = lists_[point.list];
    const std::byte *cell = window_.cell(fields_.ring(FieldValue{list.field, 0}, done), position, point.y, point.x);
    const double value = grid_.item_bytes == sizeof(float) ? static_cast<double>(*reinterpret_cast<const float *>(cell))
                                                           : *reinterpret_cast<const double *>(cell);
    list.values[static_cast<std::size_t>(row) * list.cells.size() + point.index] = value;
  });
}

Acquisition::Acquisition(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
                         AcquisitionRequests requests, long steps, std::atomic<std::uint64_t> &bytes_snapshots)
    : grid_(grid),
      lead_(stages.lead.levels),
      stages_(stages.per_step()),
      steps_(steps),
      only_own_(requests.only_own),
      only_own_rows_(requests.only_own_rows),
      injections_(grid, window, fields, stages, requests.injections),
      lead_injections_(grid, window, stages.lead, requests.lead_injections),
      samples_(grid, window, fields, std::move(requests.samples)),
      sums_(grid, window, fields, std::move(requests.sums)),
      snapshots_(grid, window, fields, std::move(requests.snapshots), requests.backend, requests.staging,
                 bytes_snapshots) {}

void Acquisition::after(long level, long z0, long z1, const Rectangle &cells) {
  const long own_level = level - lead_;
  const Injections &injections = own_level > 0 ? injections_ : lead_injections_;
  if (!injections.empty())
    for (const Rectangle &part : unfolded(grid_, cells))
      for (long z = z0; z < z1; ++z) injections.add(own_level > 0 ? own_level : level, z, part);
  if (own_level > 0 && own_level % stages_ == 0) take(own_level / stages_, z0, z1, cells);
}

void Acquisition::take(long done, long z0, long z1, const Rectangle &cells) {
  const OwnedCells own = only_own_ ? own_ : OwnedCells{};
  long begin = std::max(z0, own.z0), end = std::min(z1, own.z1);
  Rectangle inside = intersection(cells, own.cells);
  if (only_own_rows_) inside = intersection(inside, whole_plane(grid_));
  if (only_own_rows_) begin = std::max(0L, begin), end = std::min(grid_.nz, end);
  for (const Rectangle &part : unfolded(grid_, inside)) {
    if (begin >= end || part.empty()) continue;
    if (!samples_.empty())
      for (long z = begin; z < end; ++z) samples_.take(done, steps_, z, part);
    if (!sums_.empty()) sums_.add(done, begin, end, part);
    if (!snapshots_.empty()) snapshots_.write(done, begin, end, part);
  }
}

void Acquisition::rim(long position, const Rectangle &cells) {
  if (position < 0 || position >= grid_.nz) return;          // a neighbouring rank processes the rim of its planes
  Rectangle part = intersection(cells, whole_plane(grid_));  // a neighbouring rank processes the rim of its rows
  if (only_own_) {
    if (position < own_.z0 || position >= own_.z1) return;
    part = intersection(part, own_.cells);
  }
  if (part.empty()) return;
  samples_.take_rim(steps_, position, part);
  sums_.add_rim(position, part);
  snapshots_.write_rim(position, part);
}

}  // namespace outcrop
