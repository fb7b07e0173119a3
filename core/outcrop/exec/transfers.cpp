#include "outcrop/exec/transfers.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

// number of bytes of one array that are transferred before a transfer of the next array begins
constexpr std::size_t together_bytes = std::size_t{1} << 20;

bool is_fringe(Array array) { return array == Array::fringes || array == Array::recomputed; }

// Returns the files of an array that is not an array of fringes.
const PlaneFiles &files_of(const PassFiles &files, const ArrayRing &pair) {
  switch (pair.array) {
    case Array::source:
      return files.source[pair.index];
    case Array::target:
      return files.target[pair.index];
    case Array::statics:
      return files.statics[pair.index];
    default:
      return files.other;
  }
}

}  // namespace

Transfers::Transfers(const Grid &grid, const Window &window, const Fields &fields, Store *store, const Links &links,
                     long max_levels)
    : grid_(grid), window_(window), fields_(fields), store_(store) {
  std::size_t slots = 0;
  for (std::size_t ring = 0; ring < window.rings(); ++ring) {
    slots_.emplace_back(static_cast<std::size_t>(window.ring(ring).planes()));
    slots += slots_.back().size();
  }
  if (store_ == nullptr) return;
  fringe_tickets_.resize(fields.rings() * static_cast<std::size_t>(grid.nz), no_ticket);
  PumpOptions options;
  // the pump has room for four requests for each slot; if more requests are unfinished, submit() waits
  options.capacity = 4 * slots + 2;
  pump_ = std::make_unique<Pump>(*store_, options);
  // Each queue has room for one job for each level of each slot, so the executor never waits for a place in a queue. If
  // executors could wait here, two neighbouring ranks could block each other forever, because each rank adds its sends
  // to the queues before its receives.
  const std::size_t jobs = slots * static_cast<std::size_t>(max_levels + 2);
  if (links != Links{}) faces_ = std::make_unique<Faces>(links, *pump_, jobs);
}

void Transfers::wait_for_received(std::size_t ring, long z, long y0, long y1) {
  if (SlotState &state = slot(ring, z); holds(state, ring, z)) state.faces.wait_until_received(*faces_, y0, y1);
}

void Transfers::wait_for_sent(std::size_t ring, long z, long y0, long y1) {
  if (SlotState &state = slot(ring, z); holds(state, ring, z)) state.faces.wait_until_sent(*faces_, y0, y1);
}

void Transfers::begin_plane(std::size_t ring, long z) {
  SlotState &state = slot(ring, z);
  if (!holds(state, ring, z)) state.faces.wait(*faces_);
  state.place = window_.place(ring, z);
}

void Transfers::drain_faces() {
  faces_->drain();
  for (std::vector<SlotState> &ring : slots_)
    for (SlotState &state : ring) state.faces.clear();
}

void Transfers::cancel_faces() {
  if (faces_) faces_->cancel();
}

bool Transfers::wait_for_read(std::size_t ring, long z) {
  SlotState &state = slot(ring, z);
  if (pump_ == nullptr || !holds(state, ring, z)) return false;
  pump_->wait(std::exchange(state.reading, no_ticket));
  return std::exchange(state.has_tail, false);
}

void Transfers::wait_for_write(std::size_t ring, long z) {
  if (pump_ != nullptr) pump_->wait(std::exchange(slot(ring, z).writing, no_ticket));
}

Rectangle Transfers::take_fringe(std::size_t ring, long z) {
  return has_fringe(ring, z) ? std::exchange(slot(ring, z).fringe, Rectangle{}) : Rectangle{};
}

bool Transfers::has_fringe(std::size_t ring, long z) {
  const SlotState &state = slot(ring, z);
  return holds(state, ring, z) && !state.fringe.empty();
}

std::size_t Transfers::fringe_index(std::size_t ring, long z) const {
  return static_cast<std::size_t>(z) * fields_.rings() + ring;
}

bool Transfers::has_tail(Array array, const Rectangle &cells, bool write) const {
  const bool has_records = array == Array::source || array == Array::target || array == Array::statics;
  if (write && grid_.descends) return has_records && cells.y0 == 0 && cells.x0 == 0;
  return has_records && cells.y1 == grid_.ny && cells.x1 == grid_.pitch_cells();
}

std::string Transfers::damage(const ArrayRing &pair, long z, bool whole) const {
  const bool fringe = is_fringe(pair.array);
  const Request record = request(pair, z, fringe ? Rectangle{0, 0, 0, grid_.pitch_cells()} : whole_plane(grid_));
  const std::string &path = store_->path(record.file);
  if (!fringe) return plane_damage(grid_.plane(z), whole, path, record.offset, grid_.plane_bytes);
  return text_from("rows between blocks of plane ", grid_.plane(z), " are damaged: checksum mismatch in ", path,
                   " at offset ", record.offset);
}

void Transfers::drain() { pump_->drain(); }

void Transfers::cancel() {
  if (pump_) pump_->cancel();
  cancel_faces();
}

Transfers::SlotState &Transfers::slot(std::size_t ring, long z) {
  return slots_[ring][static_cast<std::size_t>(window_.ring(ring).slot(window_.place(ring, z)))];
}

// Submits a request for a slot. A write begins only after the last write from the slot is complete. A read begins only
// after all earlier transfers of the slot are complete.
void Transfers::submit(SlotState &state, Request request) {
  request.after = request.write ? state.writing : last_use(state);
  const Ticket ticket = pump_->submit(request);
  if (!request.write) state.writing = no_ticket;
  (request.write ? state.writing : state.reading) = ticket;
}

void Transfers::transfer(bool write, const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells) {
  const long together = std::max(1L, static_cast<long>(together_bytes / grid_.record_bytes));
  for (long first = z0; first < z1; first += together)
    for (const ArrayRing &pair : pairs)
      for (long z = first; z < std::min(z1, first + together); ++z) transfer(write, pair, z, cells);
}

void Transfers::transfer(bool write, const ArrayRing &pair, long z, const Rectangle &cells) {
  SlotState &state = slot(pair.ring, z);
  if (!write && faces_) state.faces.wait(*faces_);
  state.place = window_.place(pair.ring, z);
  if (!write && is_fringe(pair.array)) {
    state.fringe = cells;
    // the previous block submitted the write of this fringe early, so the write is usually complete now
    pump_->wait(fringe_tickets_[fringe_index(pair.ring, z)]);
  }
  if (pair.array == Array::history) state.history = cells;
  const bool ends_record = has_tail(pair.array, cells, write);
  const bool is_checked = ends_record || pair.array == Array::history;
  state.has_tail = state.has_tail || (!write && pair.array != Array::target && is_checked);
  Request whole = request(pair, z, cells);
  whole.write = write;
  if (!ends_record) {
    submit(state, whole);
    if (write && is_fringe(pair.array)) fringe_tickets_[fringe_index(pair.ring, z)] = state.writing;
    return;
  }
  const bool has_whole_rows = cells.columns() == grid_.pitch_cells();
  if (has_whole_rows && cells.y1 == grid_.ny &&
      window_.tail_follows(pair.ring)) {  // the tail follows the last row, both on disk and in the slot
    whole.length += grid_.tail_bytes();
    submit(state, whole);
    return;
  }
  Request tail = whole;
  tail.offset += grid_.plane_bytes - static_cast<std::uint64_t>(cells.y0) * grid_.pitch_bytes -
                 static_cast<std::uint64_t>(cells.x0) * grid_.item_bytes;
  tail.data = window_.tail(pair.ring, z);
  tail.length = grid_.tail_bytes();
  tail.rows = 1;
  if (has_whole_rows && cells.y1 == grid_.ny) {
    // In the slot or on disk, other bytes follow the last row of the plane. If the last bytes of the plane fill only a
    // part of a page, these bytes are transferred separately. So the full pages of the plane can be transferred without
    // the page cache.
    const std::size_t after = (whole.offset + whole.length) % AlignedMemory::page_bytes;
    if (after > 0 && after < whole.length) {
      Request pages = whole;
      pages.length -= after;
      submit(state, pages);
      whole.offset += pages.length;
      whole.data += pages.length;
      whole.length = after;
    }
  }
  submit(state, whole);
  submit(state, tail);
}

void Transfers::transfer_faces(bool send, const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &rows,
                               std::size_t side) {
  if (store_ == nullptr) return;
  if (faces_ == nullptr || side >= side_count) throw InputError("the plan has faces, but the rank has no neighbours");
  assert(intersection(rows, window_.frame()) == rows && rows.columns() == window_.frame().columns());
  const std::size_t bytes = static_cast<std::size_t>(rows.rows()) * window_.pitch_bytes();
  // Several jobs are handed over to the link in one call, because each call can wake the thread of the link. A thread
  // hands over its jobs before it waits, because the neighbour can need these jobs to finish the job for which the
  // thread waits.
  std::array<Faces::Job, Link::max_batch> jobs;
  std::array<SlotFaces *, Link::max_batch> slots{};
  std::size_t count = 0;
  const auto hand_over = [&] {
    if (count == 0) return;
    const std::span together(jobs.data(), count);
    Ticket ticket = send ? faces_->send(side, together) : faces_->receive(side, together);
    for (std::size_t i = 0; i < count; ++i, ++ticket)
      send ? slots[i]->add_sent(side, rows.y0, rows.y1, ticket)
           : slots[i]->add_received(side, rows.y0, rows.y1, ticket);
    count = 0;
  };
  for (long z = z0; z < z1; ++z)
    for (const ArrayRing &pair : pairs) {
      SlotState &state = slot(pair.ring, z);
      SlotFaces &faces = state.faces;
      const bool may_wait = holds(state, pair.ring, z) ? send ? faces.may_wait_until_received(rows.y0, rows.y1)
                                                              : faces.may_wait_until_sent(rows.y0, rows.y1)
                                                       : faces.may_wait();
      if (may_wait || count == jobs.size()) hand_over();
      begin_plane(pair.ring, z);
      send ? faces.wait_until_received(*faces_, rows.y0, rows.y1) : faces.wait_until_sent(*faces_, rows.y0, rows.y1);
      jobs[count] = {{window_.cell(pair.ring, z, rows.y0, rows.x0), bytes}, send ? state.reading : last_use(state)};
      slots[count++] = &faces;
    }
  hand_over();
}

Request Transfers::request(const ArrayRing &pair, long z, const Rectangle &cells) const {
  Request result;
  result.data = window_.cell(pair.ring, z, cells.y0, cells.x0);
  result.length = static_cast<std::size_t>(cells.rows() * cells.columns()) * grid_.item_bytes;
  const auto by_rows = [&](std::size_t row_bytes, std::size_t file_stride, std::size_t data_stride) {
    result.length = row_bytes;
    result.rows = static_cast<std::size_t>(cells.rows());
    result.file_stride = file_stride;
    result.data_stride = data_stride;
  };
  if (is_fringe(pair.array)) {
    assert(cells.columns() == grid_.pitch_cells());
    assert(cells.rows() <= (pair.array == Array::fringes ? files_.fringe_rows : files_.recomputed_rows[pair.index]));
    result.file = files_.other.first_file;
    result.offset = fringe_offset(pair, z);
    return result;
  }
  const long plane = grid_.plane(z);
  if (pair.array == Array::history) {
    const std::size_t row_bytes = static_cast<std::size_t>(grid_.nx) * grid_.item_bytes;
    assert(cells.columns() == grid_.pitch_cells());
    result.file = files_.history[pair.index].file;
    result.offset = static_cast<std::uint64_t>(plane * grid_.ny + cells.y0) * row_bytes;
    if (row_bytes != grid_.pitch_bytes) by_rows(row_bytes, row_bytes, grid_.pitch_bytes);
    return result;
  }
  const PlaneFiles &files = files_of(files_, pair);
  result.file = files.first_file + static_cast<std::uint32_t>(plane / files.planes_per_file);
  result.offset = static_cast<std::uint64_t>(plane % files.planes_per_file) * grid_.record_bytes +
                  static_cast<std::uint64_t>(cells.y0) * grid_.pitch_bytes +
                  static_cast<std::uint64_t>(cells.x0) * grid_.item_bytes;
  if (cells.columns() != grid_.pitch_cells())
    by_rows(static_cast<std::size_t>(cells.columns()) * grid_.item_bytes, grid_.pitch_bytes, window_.pitch_bytes());
  return result;
}

std::uint64_t Transfers::fringe_offset(const ArrayRing &pair, long z) const {
  const std::vector<long> &rows = files_.recomputed_rows;
  const auto sum = [&](std::size_t count) {
    return std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), 0L);
  };
  const long state_rows = static_cast<long>(fields_.updated() + fields_.doubles().size()) * files_.fringe_rows;
  const long before =
      pair.array == Array::fringes ? static_cast<long>(pair.index) * files_.fringe_rows : state_rows + sum(pair.index);
  return static_cast<std::uint64_t>(z * (state_rows + sum(rows.size())) + before) * grid_.pitch_bytes;
}

namespace {

// Returns the CRC32C of `length` zeros, without a buffer of this length.
std::uint32_t crc32c_of_zeros(std::size_t length) {
  constexpr std::array<std::byte, 4096> zeros{};
  std::uint32_t sum = 0;
  for (std::size_t done = 0; done < length; done += zeros.size())
    sum = crc32c(std::span(zeros).first(std::min(zeros.size(), length - done)), sum);
  return sum;
}

// Returns true if no value is NaN or infinite. A product with 0 is NaN only if the other factor is NaN or infinity. The
// loop adds to several sums at a time, so that compilers can use vector instructions.
template <class Float>
bool all_finite(const std::byte *first, long count) {
  constexpr long at_once = 64 / sizeof(Float);
  const auto *values = reinterpret_cast<const Float *>(first);
  std::array<Float, at_once> sums{};
  long i = 0;
  for (; i + at_once <= count; i += at_once)
    for (long j = 0; j < at_once; ++j) sums[static_cast<std::size_t>(j)] += values[i + j] * Float{0};
  for (; i < count; ++i) sums[0] += values[i] * Float{0};
  return std::ranges::all_of(sums, [](Float sum) { return sum == 0; });
}

}  // namespace

PlaneSums::PlaneSums(const Grid &grid)
    : grid_(grid),
      sums_(static_cast<std::size_t>(grid.nz)),
      bytes_(static_cast<std::size_t>(grid.nz)),
      row_factors_(static_cast<std::size_t>(grid.ny + 1)),
      zeros_(crc32c_of_zeros(grid.plane_bytes - grid.rows_bytes())),
      rows_between_(std::clamp(grid.nz * grid.ny / min_rows_searched, 1L, max_rows_between)),
      not_finite_(static_cast<std::size_t>(grid.nz)) {
  for (std::size_t rows = 0; rows < row_factors_.size(); ++rows)
    row_factors_[rows] = crc32c_factor(rows * grid.pitch_bytes + grid.plane_bytes - grid.rows_bytes());
}

void PlaneSums::clear() {
  for (auto &sum : sums_) sum.store(0, std::memory_order_relaxed);
  for (auto &bytes : bytes_) bytes.store(0, std::memory_order_relaxed);
  for (auto &wrong : not_finite_) wrong.store(false, std::memory_order_relaxed);
}

void PlaneSums::search(long z, const std::byte *origin, std::size_t pitch_bytes, const Rectangle &cells) {
  const long columns = std::min(cells.x1, grid_.nx) - cells.x0, between = rows_between_;
  if (columns <= 0) return;
  for (long y = cells.y0 + (between - (grid_.plane(z) + cells.y0) % between) % between; y < cells.y1; y += between) {
    const std::byte *first = origin + y * static_cast<std::ptrdiff_t>(pitch_bytes) +
                             cells.x0 * static_cast<std::ptrdiff_t>(grid_.item_bytes);
    const bool good =
        grid_.item_bytes == sizeof(float) ? all_finite<float>(first, columns) : all_finite<double>(first, columns);
    if (!good) not_finite_[index(z)].store(true, std::memory_order_relaxed);
  }
}

bool PlaneSums::is_finite() const {
  return std::ranges::none_of(not_finite_, [](const auto &wrong) { return wrong.load(std::memory_order_relaxed); });
}

void PlaneSums::add(long z, const std::byte *origin, std::size_t pitch_bytes, const Rectangle &cells) {
  if (cells.empty()) return;
  const bool one_part = pitch_bytes == grid_.pitch_bytes && cells.columns() == grid_.pitch_cells();
  const long rows_per_part = one_part ? cells.rows() : 1;
  const auto item = static_cast<std::ptrdiff_t>(grid_.item_bytes);
  const std::size_t part_bytes = static_cast<std::size_t>(rows_per_part * cells.columns()) * grid_.item_bytes;
  // The part is followed by the rest of its last row, and then by whole rows. `rest_factor` shifts a CRC by the rest of
  // the row.
  const std::uint32_t rest_factor =
      crc32c_factor(static_cast<std::size_t>(grid_.pitch_cells() - cells.x1) * grid_.item_bytes);
  std::uint32_t sum = 0;
  for (long y = cells.y0; y < cells.y1; y += rows_per_part) {
    const std::byte *first = origin + y * static_cast<std::ptrdiff_t>(pitch_bytes) + cells.x0 * item;
    std::uint32_t part = crc32c({first, part_bytes});
    if (!one_part) part = crc32c_join(part, 0, rest_factor);
    sum ^= crc32c_join(part, 0, row_factors_[static_cast<std::size_t>(grid_.ny - y - rows_per_part)]);
  }
  sums_[index(z)].fetch_xor(sum, std::memory_order_relaxed);
  bytes_[index(z)].fetch_add(
      static_cast<std::size_t>(cells.rows()) * static_cast<std::size_t>(cells.columns()) * grid_.item_bytes,
      std::memory_order_relaxed);
}

void HistorySums::begin_pass(const std::vector<HistoryFile> &files) {
  files_ = files;
  sums_.clear();
  for (std::size_t i = 0; i < files.size(); ++i) sums_.emplace_back(0);
}

void HistorySums::add(const Grid &grid, std::size_t index, long z, long y0, long y1, const std::byte *rows,
                      std::size_t pitch_bytes) {
  const std::size_t row_bytes = static_cast<std::size_t>(grid.nx) * grid.item_bytes;
  const auto count = static_cast<std::size_t>(y1 - y0);
  std::uint32_t sum = 0;
  if (pitch_bytes == row_bytes)
    sum = crc32c({rows, count * row_bytes});
  else
    for (std::size_t y = 0; y < count; ++y) sum = crc32c({rows + y * pitch_bytes, row_bytes}, sum);
  const auto rows_left = static_cast<std::size_t>((grid.nz - 1 - grid.plane(z)) * grid.ny + grid.ny - y1);
  sums_[index].fetch_xor(crc32c_join(sum, 0, crc32c_factor(rows_left * row_bytes)), std::memory_order_relaxed);
}

std::optional<HistoryFile> HistorySums::wrong() const {
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (sums_[i] != files_[i].sum) return files_[i];
  return std::nullopt;
}

Checks::Checks(const Grid &grid, const Window &window, const Fields &fields)
    : grid_(grid), window_(window), fields_(fields) {
  const auto planes = static_cast<std::size_t>(grid.nz);
  const auto add = [&](std::deque<Sums> &arrays, Array array, std::size_t index, std::size_t ring) {
    arrays.push_back(
        Sums{ArrayRing{array, index, ring}, PlaneSums(grid), std::vector<Tail>(planes), std::vector<bool>(planes)});
  };
  for (std::size_t i = 0; i < fields.state().size(); ++i) {
    add(sources_, Array::source, i, fields.ring(fields.state()[i], 0));
    add(targets_, Array::target, i, fields.ring(fields.state()[i], 0));
  }
  for (std::size_t i = 0; i < fields.statics().size(); ++i)
    add(sources_, Array::statics, i, fields.ring(fields.statics()[i], 0));
}

void Checks::begin_pass(long steps, bool reads_statics, const PassFiles &files) {
  reading_ = reads_statics ? sources_.size() : fields_.state().size();
  for (std::size_t i = 0; i < reading_; ++i) sources_[i].seed = files_of(files, sources_[i].pair).seed;
  for (Sums &one : sources_) {
    one.sums.clear();
    one.checked.assign(one.checked.size(), false);
  }
  for (Sums &one : targets_) {
    one.sums.clear();
    one.pair.ring = fields_.ring(fields_.state()[one.pair.index], steps);
    one.seed = files_of(files, one.pair).seed;
  }
}

std::vector<RingSums> Checks::pointers(std::deque<Sums> &arrays, std::size_t count) const {
  std::vector<RingSums> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back({arrays[i].pair.ring, &arrays[i].sums});
  return result;
}

void Checks::keep(std::size_t ring, long z) {
  for (Sums &one : sources_)
    if (one.pair.ring == ring)
      std::memcpy(&one.expected[static_cast<std::size_t>(z)], window_.tail(ring, z), sizeof(Tail));
}

std::uint32_t Checks::seal(const Sums &array, long z) const {
  return plane_seal(static_cast<std::uint64_t>(grid_.plane(z)), array.sums.value(z), array.seed);
}

void Checks::add(std::deque<Sums> &arrays, std::size_t count, long z, const Rectangle &cells) {
  for (std::size_t i = 0; i < count; ++i)
    arrays[i].sums.add(z, window_.origin(arrays[i].pair.ring, z), window_.pitch_bytes(), cells);
}

std::optional<Checks::Wrong> Checks::wrong(long z) {
  const auto place = static_cast<std::size_t>(z);
  for (std::size_t i = 0; i < reading_; ++i) {
    Sums &one = sources_[i];
    if (one.checked[place] || !one.sums.whole(z)) continue;
    one.checked[place] = true;
    if (one.sums.value(z) != one.expected[place].crc) return Wrong{one.pair, false};
    if (seal(one, z) != one.expected[place].seal) return Wrong{one.pair, true};
  }
  return std::nullopt;
}

Checks::Verdict Checks::verdict(const ArrayRing &source, long z) const {
  const auto has_ring = [&](const Sums &one) {
    return one.pair.array == source.array && one.pair.index == source.index;
  };
  const Sums &array = *std::ranges::find_if(sources_, has_ring);
  const Tail &expected = array.expected[static_cast<std::size_t>(z)];
  const std::uint32_t crc = crc32c({window_.cell(source.ring, z, 0, 0), grid_.plane_bytes});
  if (crc != expected.crc) return Verdict::damaged;
  const auto plane = static_cast<std::uint64_t>(grid_.plane(z));
  return plane_seal(plane, crc, array.seed) == expected.seal ? Verdict::valid : Verdict::displaced;
}

std::vector<std::size_t> Checks::not_finite() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < targets_.size(); ++i)
    if (!targets_[i].sums.is_finite()) found.push_back(i);
  return found;
}

// Completes a record with its checksum and seal. Parts of a record can be written to disk before all rows of the plane
// are final. So the checksum is written together with the last part of the record.
void Checks::finish_record(const ArrayRing &target, long z) const {
  const Sums &array = targets_[target.index];
  if (!array.sums.whole(z)) return;
  const Tail known{array.sums.value(z), seal(array, z)};
  std::byte *tail = window_.tail(target.ring, z);
  std::memset(tail, 0, grid_.tail_bytes());
  std::memcpy(tail, &known, sizeof known);
}

}  // namespace outcrop
