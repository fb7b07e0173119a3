#include "outcrop/trajectory/trajectory.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "outcrop/base/available_memory.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/threads.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

constexpr std::size_t page_bytes = AlignedMemory::page_bytes;
constexpr std::size_t min_piece_bytes = std::size_t{2} << 20, max_pieces = 256;
// A state is copied in parts of `copy_bytes` bytes. The checksum of a part is computed while the part is in a cache.
constexpr std::size_t copy_bytes = std::size_t{128} << 10;
// Transfers of files with fewer than `direct_bytes` bytes go through the page cache, because direct transfers of few
// pages are slow.
constexpr std::size_t direct_bytes = std::size_t{1} << 20;

std::uint32_t copy_and_sum(std::byte *to, const std::byte *from, std::size_t length) {
  std::uint32_t sum = 0;
  for (std::size_t done = 0; done < length; done += copy_bytes) {
    const std::size_t part = std::min(copy_bytes, length - done);
    std::memcpy(to + done, from + done, part);
    sum = crc32c({to + done, part}, sum);
  }
  return sum;
}

// Returns the number of threads that copy a state. Only one thread copies a small state, because the copy takes this
// thread only a few milliseconds.
std::uint64_t threads_for(const StateLayout &layout) {
  constexpr std::uint64_t min_bytes = std::uint64_t{8} << 20, max_threads = 4;
  if (layout.state_bytes() < min_bytes) return 1;
  return std::clamp<std::uint64_t>(std::thread::hardware_concurrency(), 1, max_threads);
}

std::size_t buffers_of(const TrajectoryOptions &options) { return std::max<std::size_t>(options.buffers, 2); }

// Checks that memory for `states` states and `buffers` buffers is free. Without this check, the system might allocate
// more memory than it has, and kill the program later.
void require_memory(const StateLayout &layout, std::uint64_t states, std::size_t buffers) {
  const std::size_t bytes = layout.buffer_bytes();
  if (buffers > SIZE_MAX / 4 / bytes || states > SIZE_MAX / 4 / bytes)
    throw InputError("cannot take memory for ", states, " states and ", buffers, " buffers");
  const std::uint64_t needed = (states + buffers) * bytes, available = available_bytes();
  if (needed > available)
    throw InputError(states > 0 ? "the states in memory and the buffers need " : "the buffers need ", needed,
                     " bytes of memory, but ", available, " are free; give ", states > 0 ? "less memory or " : "",
                     "fewer buffers");
}

}  // namespace

std::unique_ptr<Trajectory> Trajectory::create(const StateLayout &layout, std::uint64_t states,
                                               std::uint64_t memory_bytes,
                                               const std::vector<DirectoryLimit> &directories,
                                               const TrajectoryOptions &options) {
  open_empty_store(options.io, 1);  // if the backend does not work, throws InputError before a file is made
  const std::uint64_t in_memory = std::min(states, memory_bytes / layout.buffer_bytes());
  const std::size_t buffers = buffers_of(options);
  require_memory(layout, in_memory, buffers);
  AlignedMemory memory(buffers * layout.buffer_bytes()), kept(in_memory * layout.buffer_bytes());
  Places places = Places::create(layout, states, memory_bytes, directories);
  std::unique_ptr<Trajectory> made(new Trajectory(std::move(places), std::move(memory), options));
  made->keep(std::move(kept));
  return made;
}

std::unique_ptr<Trajectory> Trajectory::open(const std::string &path, const TrajectoryOptions &options) {
  Places places = Places::open(path);
  const std::size_t buffers = buffers_of(options);
  require_memory(places.layout(), 0, buffers);
  AlignedMemory memory(buffers * places.layout().buffer_bytes());
  return std::unique_ptr<Trajectory>(new Trajectory(std::move(places), std::move(memory), options));
}

Trajectory::Trajectory(Places places, AlignedMemory memory, const TrajectoryOptions &options)
    : places_(std::move(places)), threads_(threads_for(layout())), memory_(std::move(memory)) {
  // the transfer of a piece starts while the next piece is being copied
  const std::size_t piece_bytes = round_up(std::max(min_piece_bytes, layout().buffer_bytes() / max_pieces), page_bytes);
  for (std::size_t field = 0; field < layout().count(); ++field)
    for (std::size_t begin = 0; begin < layout().cell_bytes(field); begin += piece_bytes) {
      const std::size_t end = std::min(begin + piece_bytes, layout().cell_bytes(field));
      pieces_.push_back({field, begin, end, crc32c_factor(end - begin), 0});
    }
  const std::size_t count = buffers_of(options), bytes = layout().buffer_bytes();
  // the first touch of a page is slow, so it happens here and not in a push
  std::memset(memory_.data(), 0, memory_.size());
  buffers_.resize(count);
  for (std::size_t i = 0; i < count; ++i) buffers_[i].data = memory_.data() + i * bytes;
  sums_ = places_.manifest().sums;
  states_ = places_.manifest().committed();
  StoreOptions store_options;
  store_options.faults = options.faults;
  store_ = open_empty_store(options.io, count * layout().count(), store_options);
  // A piece needs at most two requests, so submit() never waits for an entry in the ring of the pump.
  PumpOptions pump_options;
  pump_options.capacity = 2 * pieces_.size() * count;
  pump_ = std::make_unique<Pump>(*store_, pump_options);
}

std::uint64_t Trajectory::states() const {
  const std::lock_guard lock(mutex_);
  return states_;
}

std::uint64_t Trajectory::committed() const {
  const std::lock_guard lock(mutex_);
  return places_.manifest().committed();
}

std::uint64_t Trajectory::push(std::span<const std::byte *const> fields) {
  const std::lock_guard lock(mutex_);
  require_open();
  const std::uint64_t state = states_;
  if (state == max_states())
    throw InputError("the trajectory in ", path(), " is full: it has its maximum of ", state,
                     " states; make one with more states");
  if (state < places_.manifest().committed())
    throw InputError("state ", state, " of ", path(),
                     " was popped, but its place is free only after the next commit; commit before the push");
  if (sums_.size() < (state + 1) * layout().count()) sums_.resize((state + 1) * layout().count());
  if (state < memory_states() && !has_memory_) take_memory();
  if (state < memory_states_.size()) {
    in_parallel(pieces_.size(), threads_, [&](std::uint64_t i) {
      const auto &[field, begin, end, factor, piece_sum] = pieces_[i];
      std::memcpy(memory_states_[state] + layout().offset(field) + begin, fields[field] + begin, end - begin);
    });
    in_memory_[state] = true;
    return states_++;
  }
  wait_for_writes(state);
  StateBuffer &buffer = take();
  open_files(buffer, state);
  buffer.state = state;
  std::mutex submitting;
  in_parallel(pieces_.size(), threads_, [&](std::uint64_t i) {
    Piece &piece = pieces_[i];
    std::byte *to = buffer.data + layout().offset(piece.field);
    piece.sum = copy_and_sum(to + piece.begin, fields[piece.field] + piece.begin, piece.end - piece.begin);
    const std::lock_guard submit(submitting);
    transfer(buffer, to, true, piece.field, piece.begin, piece.end);
  });
  join_sums(&sum(state, 0));
  return states_++;
}

Trajectory::Popped Trajectory::pop() {
  const std::lock_guard lock(mutex_);
  require_open();
  if (states_ == 0) throw InputError("the trajectory in ", path(), " has no states left");
  const std::uint64_t state = states_ - 1;
  for (StateBuffer &buffer : buffers_)
    if (buffer.is_held) {
      buffer.is_held = false;
      buffer.state.reset();
    }
  if (is_in_memory(state)) {
    StateBuffer &buffer = take();
    std::swap(buffer.data, memory_states_[state]);
    in_memory_[state] = false;
    buffer.is_held = true;
    states_ = state;
    return {state, buffer.data};
  }
  StateBuffer *buffer = find(state);
  if (buffer == nullptr) {
    buffer = &take();
    start_reading(*buffer, state);
  }
  read_ahead(state);
  if (buffer->is_read) {
    wait(*buffer);
    buffer->is_read = false;
    try {
      check(state, fields_in(buffer->data));
    } catch (...) {
      buffer->state.reset();
      throw;
    }
  }
  buffer->is_held = true;
  states_ = state;
  return {state, buffer->data};
}

void Trajectory::read(std::uint64_t state, std::span<std::byte *const> fields) {
  const std::lock_guard lock(mutex_);
  require_open();
  if (state >= states_) throw InputError("there is no state ", state, " in ", path(), "; it has ", states_, " states");
  const std::byte *there = is_in_memory(state) ? memory_states_[state] : nullptr;
  if (StateBuffer *buffer = find(state); buffer != nullptr && !buffer->is_read) there = buffer->data;
  for (std::size_t field = 0; field < layout().count(); ++field) {
    const std::size_t bytes = layout().cell_bytes(field);
    if (there != nullptr)
      std::memcpy(fields[field], there + layout().offset(field), bytes);
    else
      places_.open_file(field, state, bytes >= direct_bytes).read(0, fields[field], bytes);
  }
  if (there == nullptr) check(state, fields);
}

void Trajectory::commit() {
  const std::lock_guard lock(mutex_);
  require_open();
  const std::uint64_t first = places_.manifest().committed();
  if (!is_durable() && states_ > 0 && memory_states() > 0)
    throw InputError("states in memory cannot be committed: the directories of ", path(), " have no room for all ",
                     max_states(), " states; give a directory or limit with more room");
  for (std::uint64_t state = first; state < std::min(states_, memory_states()); ++state) write_from_memory(state);
  pump_->drain();
  if (first < states_) places_.flush(first, states_);
  const auto count = static_cast<std::ptrdiff_t>(states_ * layout().count());
  places_.commit({sums_.begin(), sums_.begin() + count});
}

void Trajectory::close() {
  const std::lock_guard lock(mutex_);
  stop();
}

void Trajectory::remove() {
  const std::lock_guard lock(mutex_);
  require_open();
  if (pump_) pump_->cancel();
  pump_.reset();
  places_.remove();
  stop();
}

// --- with the lock held --------------------------------------------------------------------------------------------

void Trajectory::require_open() const {
  if (!is_open_) throw InputError("the trajectory is closed; open it again");
}

void Trajectory::stop() {
  is_open_ = false;
  pump_.reset();
  store_.reset();
  places_.close();
}

void Trajectory::wait(StateBuffer &buffer) {
  for (; buffer.first <= buffer.last && buffer.last != no_ticket; ++buffer.first) pump_->wait(buffer.first);
  buffer.first = buffer.last = no_ticket;
}

// Keeps the first states in this memory.
void Trajectory::keep(AlignedMemory memory) {
  kept_ = std::move(memory);
  if (kept_.size() > 0) std::memset(kept_.data(), 0, kept_.size());  // as in the constructor
  const std::size_t bytes = layout().buffer_bytes();
  for (std::size_t begin = 0; begin < kept_.size(); begin += bytes) memory_states_.push_back(kept_.data() + begin);
  in_memory_.resize(memory_states_.size());
  has_memory_ = true;
}

// Allocates the memory for states of a trajectory that was opened. If too little memory is free, no memory is
// allocated, and pushes write all states to their files.
void Trajectory::take_memory() {
  const bool is_free = memory_states() <= available_bytes() / layout().buffer_bytes();
  const std::uint64_t states = is_free || !is_durable() ? memory_states() : 0;
  require_memory(layout(), states, 0);
  keep(AlignedMemory(states * layout().buffer_bytes()));
}

// A state that was popped earlier can have the same number, and so the same files, as the new state. Waits until the
// writes of the popped state are complete, because two writes to the same file must not overlap.
void Trajectory::wait_for_writes(std::uint64_t state) {
  for (StateBuffer &buffer : buffers_)
    if (buffer.files == state) wait(buffer);
}

bool Trajectory::is_idle(const StateBuffer &buffer) const {
  for (Ticket ticket = buffer.last; ticket >= buffer.first && ticket != no_ticket; --ticket)
    if (!pump_->done(ticket)) return false;
  return true;
}

// Returns the buffer that holds the state `state`. Returns null if there is no such buffer, or if the state was popped.
Trajectory::StateBuffer *Trajectory::find(std::uint64_t state) {
  for (StateBuffer &buffer : buffers_)
    if (buffer.state == state && !buffer.is_held) return &buffer;
  return nullptr;
}

// Returns the buffer that is best for another state. The first choice is an empty buffer. If no buffer is empty, the
// choice is the buffer of the oldest state whose transfers are complete. If transfers of all buffers are in flight, the
// choice is the buffer whose transfers were started first.
Trajectory::StateBuffer &Trajectory::best() {
  StateBuffer *found = nullptr;
  const auto rank = [this](const StateBuffer &buffer) {
    const bool idle = is_idle(buffer);
    return std::pair(idle ? (buffer.state ? 1 : 0) : 2, idle ? buffer.state.value_or(0) : buffer.last);
  };
  for (StateBuffer &buffer : buffers_)
    if (!buffer.is_held && (found == nullptr || rank(buffer) < rank(*found))) found = &buffer;
  return *found;
}

// Empties the best buffer and returns it.
Trajectory::StateBuffer &Trajectory::take() {
  StateBuffer &buffer = best();
  wait(buffer);
  buffer.state.reset();
  buffer.is_read = false;
  return buffer;
}

void Trajectory::open_files(StateBuffer &buffer, std::uint64_t state) {
  buffer.files = state;
  const auto first = static_cast<std::size_t>(&buffer - buffers_.data()) * layout().count();
  for (std::size_t field = 0; field < layout().count(); ++field)
    store_->replace(static_cast<std::uint32_t>(first + field),
                    places_.open_file(field, state, layout().cell_bytes(field) >= direct_bytes));
}

// Starts the transfer of the bytes begin <= i < end of a field whose cells are at `data`. `begin` is a multiple of the
// page size. If the last page is incomplete, the last page is transferred separately. So the other pages can bypass the
// page cache.
void Trajectory::transfer(StateBuffer &buffer, std::byte *data, bool write, std::size_t field, std::size_t begin,
                          std::size_t end) {
  const std::size_t whole = round_down(end, page_bytes);
  const std::size_t number = static_cast<std::size_t>(&buffer - buffers_.data()) * layout().count() + field;
  for (const auto &[from, to] : {std::pair(begin, whole), std::pair(std::max(begin, whole), end)}) {
    if (from >= to) continue;
    Request request;
    request.write = write;
    request.file = static_cast<std::uint32_t>(number);
    request.offset = from;
    request.data = data + from;
    request.length = to - from;
    buffer.last = pump_->submit(request);
    if (buffer.first == no_ticket) buffer.first = buffer.last;
  }
}

// Starts the transfer of a whole state between its files and the memory at `data`.
void Trajectory::transfer_state(StateBuffer &buffer, std::uint64_t state, std::byte *data, bool write) {
  open_files(buffer, state);
  for (std::size_t field = 0; field < layout().count(); ++field)
    transfer(buffer, data + layout().offset(field), write, field, 0, layout().cell_bytes(field));
}

void Trajectory::start_reading(StateBuffer &buffer, std::uint64_t state) {
  transfer_state(buffer, state, buffer.data, false);
  buffer.state = state;
  buffer.is_read = true;
}

// Starts to read the states before `newest` into the buffers that are free.
void Trajectory::read_ahead(std::uint64_t newest) {
  const std::uint64_t count = std::min<std::uint64_t>(buffers_.size() - 1, newest);
  for (std::uint64_t i = 1; i <= count; ++i) {
    const std::uint64_t state = newest - i;
    if (is_in_memory(state) || find(state) != nullptr) continue;
    const StateBuffer &buffer = best();
    if (!is_idle(buffer) || buffer.state >= newest - count) return;  // an empty optional is less than any number
    start_reading(take(), state);
  }
}

// Computes the checksum of each field of a state. The checksum of a field is made from the checksums of the field's
// pieces.
void Trajectory::join_sums(std::uint32_t *sums) const {
  std::fill_n(sums, layout().count(), 0);  // the CRC32C of an empty sequence of bytes is 0
  for (const Piece &piece : pieces_) sums[piece.field] = crc32c_join(sums[piece.field], piece.sum, piece.factor);
}

std::vector<std::uint32_t> Trajectory::sums_of(std::span<const std::byte *const> cells) {
  in_parallel(pieces_.size(), threads_, [&](std::uint64_t i) {
    Piece &piece = pieces_[i];
    piece.sum = crc32c({cells[piece.field] + piece.begin, piece.end - piece.begin});
  });
  std::vector<std::uint32_t> found(layout().count());
  join_sums(found.data());
  return found;
}

std::vector<std::byte *> Trajectory::fields_in(std::byte *buffer) const {
  std::vector<std::byte *> found;
  for (std::size_t field = 0; field < layout().count(); ++field) found.push_back(buffer + layout().offset(field));
  return found;
}

void Trajectory::check(std::uint64_t state, std::span<std::byte *const> cells) {
  const std::vector<std::uint32_t> found = sums_of(cells);
  for (std::size_t field = 0; field < layout().count(); ++field)
    if (found[field] != sum(state, field))
      throw CorruptionError(places_.label(field, state), " is damaged: checksum mismatch in ",
                            layout().cell_bytes(field), " bytes (field ", layout().fields()[field].name, ", state ",
                            state, ")");
}

// Starts to write a state that is in memory. The state stays in memory.
void Trajectory::write_from_memory(std::uint64_t state) {
  if (!is_in_memory(state)) return;
  transfer_state(take(), state, memory_states_[state], true);
  std::ranges::copy(sums_of(fields_in(memory_states_[state])), &sum(state, 0));
}

}  // namespace outcrop
