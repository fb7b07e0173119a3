#include "outcrop/exec/transfers.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "outcrop/storage/seal.hpp"

namespace outcrop {
namespace {

constexpr std::size_t together_bytes = std::size_t{1} << 20;  // of one lane, before the next one's turn

// What a chain of transfers has to wait for: a read for what was written from its slot, either for those before it.
Ticket last_of(Ticket writing, Ticket reading) { return writing != no_ticket ? writing : reading; }

}  // namespace

const PlaneFiles &files_of(const PassFiles &files, const Lane &lane) {
  switch (lane.array) {
    case Array::source:
      return files.source[lane.index];
    case Array::target:
      return files.target[lane.index];
    case Array::statics:
      return files.statics[lane.index];
    default:
      return files.other;
  }
}

Transfers::Transfers(const Grid &grid, const Window &window, const Fields &fields, Store *store)
    : grid_(grid), window_(window), fields_(fields), store_(store) {
  std::size_t slots = 0;
  for (std::size_t ring = 0; ring < window.rings(); ++ring) {
    slots_.emplace_back(static_cast<std::size_t>(window.ring(ring).planes()));
    slots += slots_.back().size();
  }
  if (store_ == nullptr) return;
  face_tickets_.resize(fields.rings() * static_cast<std::size_t>(grid.nz), no_ticket);
  PumpOptions options;
  options.capacity = 4 * slots + 2;  // a few parts of each slot; more make submit() wait
  pump_ = std::make_unique<Pump>(*store_, options);
}

bool Transfers::wait_for_read(std::size_t ring, long z) {
  Slot &entry = slot(ring, z);
  if (pump_ == nullptr || !holds(entry, ring, z)) return false;
  pump_->wait(std::exchange(entry.reading, no_ticket));
  return std::exchange(entry.has_tail, false);
}

void Transfers::wait_for_write(std::size_t ring, long z) {
  if (pump_ != nullptr) pump_->wait(std::exchange(slot(ring, z).writing, no_ticket));
}

Cut Transfers::take_face(std::size_t ring, long z) {
  return has_face(ring, z) ? std::exchange(slot(ring, z).face, Cut{}) : Cut{};
}

bool Transfers::has_face(std::size_t ring, long z) const {
  const Slot &entry = slot(ring, z);
  return holds(entry, ring, z) && !entry.face.empty();
}

std::size_t Transfers::face_index(std::size_t ring, long z) const {
  return static_cast<std::size_t>(z) * fields_.rings() + ring;
}

bool Transfers::has_tail(Array array, const Cut &cut) const {
  const bool has_records = array == Array::source || array == Array::target || array == Array::statics;
  return has_records && cut.y1 == grid_.ny && cut.x1 == grid_.pitch_cells();
}

std::string Transfers::damage(const Lane &lane, long z, bool is_whole) const {
  const bool is_face = lane.array == Array::faces;
  const Request whole = request(lane, z, is_face ? Cut{0, 0, 0, grid_.pitch_cells()} : whole_plane(grid_));
  const std::string &path = store_->path(whole.file);
  if (!is_face) return plane_damage(grid_.plane(z), is_whole, path, whole.offset, grid_.plane_bytes);
  return "rows between blocks of plane " + std::to_string(grid_.plane(z)) + " are damaged: checksum mismatch in " +
         path + " at offset " + std::to_string(whole.offset);
}

void Transfers::drain() { pump_->drain(); }

void Transfers::cancel() {
  if (pump_) pump_->cancel();
}

Transfers::Slot &Transfers::slot(std::size_t ring, long z) {
  return slots_[ring][static_cast<std::size_t>(window_.ring(ring).slot(window_.place(ring, z)))];
}

const Transfers::Slot &Transfers::slot(std::size_t ring, long z) const {
  return slots_[ring][static_cast<std::size_t>(window_.ring(ring).slot(window_.place(ring, z)))];
}

void Transfers::submit(Slot &entry, Request request) {
  request.after = request.write ? entry.writing : last_of(entry.writing, entry.reading);
  const Ticket ticket = pump_->submit(request);
  if (!request.write) entry.writing = no_ticket;
  (request.write ? entry.writing : entry.reading) = ticket;
}

void Transfers::transfer(bool write, const std::vector<Lane> &lanes, long z0, long z1, const Cut &cut) {
  const long together = std::max(1L, static_cast<long>(together_bytes / grid_.record_bytes));
  for (long first = z0; first < z1; first += together)
    for (const Lane &lane : lanes)
      for (long z = first; z < std::min(z1, first + together); ++z) transfer(write, lane, z, cut);
}

void Transfers::transfer(bool write, const Lane &lane, long z, const Cut &cut) {
  Slot &entry = slot(lane.ring, z);
  entry.place = window_.place(lane.ring, z);
  if (!write && lane.array == Array::faces) {
    entry.face = cut;
    pump_->wait(face_tickets_[face_index(lane.ring, z)]);  // as a rule a block ago
  }
  const bool ends_record = has_tail(lane.array, cut);
  entry.has_tail = entry.has_tail || (!write && lane.array != Array::target && ends_record);
  Request whole = request(lane, z, cut);
  whole.write = write;
  if (!ends_record) {
    submit(entry, whole);
    if (write && lane.array == Array::faces) face_tickets_[face_index(lane.ring, z)] = entry.writing;
    return;
  }
  if (cut.columns() == grid_.pitch_cells()) {  // the tail follows the last row, on disk and in the slot
    whole.length += grid_.tail_bytes();
    submit(entry, whole);
    return;
  }
  submit(entry, whole);
  Request tail = whole;
  tail.offset += static_cast<std::uint64_t>(cut.rows() - 1) * grid_.pitch_bytes + whole.length;
  tail.data = window_.tail(lane.ring, z);
  tail.length = grid_.tail_bytes();
  tail.rows = 1;
  submit(entry, tail);
}

Request Transfers::request(const Lane &lane, long z, const Cut &cut) const {
  Request result;
  result.data = window_.cell(lane.ring, z, cut.y0, cut.x0);
  result.length = static_cast<std::size_t>(cut.rows() * cut.columns()) * grid_.item_bytes;
  if (lane.array == Array::faces) {
    const auto face_bytes = static_cast<std::size_t>(files_.faces_rows) * grid_.pitch_bytes;
    assert(cut.rows() <= files_.faces_rows && cut.columns() == grid_.pitch_cells());
    const std::size_t kept = fields_.rings() - fields_.statics().size();
    result.file = files_.faces_file;
    result.offset = (static_cast<std::uint64_t>(z) * kept + lane.index) * face_bytes;
    return result;
  }
  const PlaneFiles &files = files_of(files_, lane);
  const long plane = grid_.plane(z);
  result.file = files.first_file + static_cast<std::uint32_t>(plane / files.planes_per_file);
  result.offset = static_cast<std::uint64_t>(plane % files.planes_per_file) * grid_.record_bytes +
                  static_cast<std::uint64_t>(cut.y0) * grid_.pitch_bytes +
                  static_cast<std::uint64_t>(cut.x0) * grid_.item_bytes;
  if (cut.columns() == grid_.pitch_cells()) return result;
  result.length = static_cast<std::size_t>(cut.columns()) * grid_.item_bytes;
  result.rows = static_cast<std::size_t>(cut.rows());
  result.file_stride = grid_.pitch_bytes;
  result.data_stride = window_.pitch_bytes();
  return result;
}

}  // namespace outcrop
