#include "outcrop/storage/pump.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>

#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

constexpr std::size_t max_parts = 64;  // maximum number of parts of the memory of a chunk

// Returns true if the memory of two requests overlaps. Each of the two requests must have only one row.
bool overlaps(const Request &a, const Request &b) { return a.data < b.data + b.length && b.data < a.data + a.length; }

}  // namespace

Pump::Pump(Store &store, const PumpOptions &options)
    : store_(store),
      options_(options),
      requests_(std::max<std::size_t>(options.capacity, 1)),
      queues_{TicketQueue(requests_.size()), TicketQueue(requests_.size())} {
  assert(options.chunk_bytes > 0);
  const std::size_t by_bytes = std::max<std::size_t>(options.in_flight_bytes / options.chunk_bytes, 1);
  // A small request makes a small chunk. So the number of chunks in flight can be larger than `in_flight_bytes` /
  // `chunk_bytes`.
  chunks_.resize(std::min(store.depth(), std::max<std::size_t>(4 * by_bytes, 32)));
  parts_.resize(max_parts * chunks_.size());
  free_chunks_.reserve(chunks_.size());
  for (std::size_t i = chunks_.size(); i > 0; --i) free_chunks_.push_back(i - 1);
  retries_.reserve(chunks_.size());
  batch_.reserve(chunks_.size());
  completions_.resize(chunks_.size());
  thread_ = std::thread([this] { loop(); });
}

Pump::~Pump() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
}

Ticket Pump::submit(const Request &request) {
  std::unique_lock lock(mutex_);
  // The wait for a free entry always ends, because a request never waits for a later request.
  finished_.wait(lock, [&] {
    const Ticket next = last_ + 1;
    return stopped() || next <= requests_.size() || complete(next - requests_.size());
  });
  throw_if_stopped();
  const Ticket ticket = last_ + 1;
  assert(request.after < ticket);
  last_ = ticket;
  queued(ticket) = QueuedRequest{request, ticket, 0, request.length * request.rows};
  if (request.length * request.rows > 0) {
    ++unfinished_;
    queues_[request.write ? 1 : 0].push(ticket);
  }
  lock.unlock();
  work_.notify_one();
  return ticket;
}

void Pump::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  assert(ticket <= last_);
  finished_.wait(lock, [&] { return stopped() || complete(ticket); });
  throw_if_stopped();
}

void Pump::drain() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return stopped() || unfinished_ == 0; });
  throw_if_stopped();
}

bool Pump::done(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return complete(ticket);
}

void Pump::cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  finished_.notify_all();
  work_.notify_one();
}

// --- with the lock held --------------------------------------------------------------------------------------------

// Returns true if a request is complete. An entry is reused only after its request is complete. So a request is also
// complete if its entry contains a later request.
bool Pump::complete(Ticket ticket) const {
  if (ticket == no_ticket) return true;
  const QueuedRequest &found = queued(ticket);
  return found.ticket > ticket || (found.ticket == ticket && found.remaining == 0);
}

void Pump::throw_if_stopped() const {
  if (failure_) {
    const Transfer &failed = failure_->transfer;
    const bool known = failed.file < store_.files().size();
    throw StorageError(failed.write ? "write" : "read", known ? store_.path(failed.file) : "(no such file)",
                       failed.offset, failed.length, failure_->error);
  }
  if (cancelled_) throw Cancelled("the transfers were cancelled");
}

// Returns true if gather() can start a transfer.
bool Pump::startable() const {
  if (free_chunks_.empty()) return false;
  return std::ranges::any_of(queues_, [this](const TicketQueue &queue) {
    return queue.count() > 0 && complete(queued(queue.front()).request.after);
  });
}

// Takes the next chunk from the first request of a queue. Returns false if the first request cannot start yet.
bool Pump::gather_from(TicketQueue &queue) {
  if (queue.count() == 0) return false;
  const Ticket ticket = queue.front();
  QueuedRequest &next = queued(ticket);
  if (!complete(next.request.after)) return false;
  const Request &request = next.request;
  const std::size_t row = next.issued / request.length, done = next.issued % request.length;
  // If at most half a chunk of a request remains, the remainder is added to the chunk before it. The reason is that
  // records are often a few KiB longer than a power of two.
  const std::size_t rest = request.length - done;
  const std::size_t length = rest <= options_.chunk_bytes + options_.chunk_bytes / 2 ? rest : options_.chunk_bytes;
  if (in_flight_ > 0 && in_flight_bytes_ + length > options_.in_flight_bytes) return false;
  const std::size_t number = free_chunks_.back();
  free_chunks_.pop_back();
  chunks_[number] =
      Chunk{ticket, Transfer{request.write, request.file, request.offset + row * request.file_stride + done,
                             request.data + row * request.data_stride + done, length, number}};
  ++in_flight_;
  in_flight_bytes_ += length;
  next.issued += length;
  if (next.issued == request.length * request.rows) {
    queue.pop();
    if (length == next.issued) join(queue, chunks_[number]);
  }
  batch_.push_back(chunks_[number].transfer);
  return true;
}

// Adds the following requests of the queue to a chunk that is a whole request. Adds only requests that can start now.
// If a request waits only for a request in the chunk, and the two requests use different memory, the waiting request
// can also join the chunk. For example, the end of a plane's record waits for the rest of the record.
void Pump::join(TicketQueue &queue, Chunk &chunk) {
  Transfer &whole = chunk.transfer;
  for (Ticket last = chunk.ticket; queue.count() > 0; queue.pop()) {
    QueuedRequest &next = queued(queue.front());
    const Request &request = next.request;
    const bool follows =
        request.rows == 1 && request.file == whole.file && request.offset == whole.offset + whole.length;
    const bool fits = whole.length + request.length <= options_.chunk_bytes &&
                      in_flight_bytes_ + request.length <= options_.in_flight_bytes;
    const bool may_start = complete(request.after) || (request.after == last && !uses_memory_of(chunk, request));
    if (!follows || !fits || !may_start || !add_memory(whole, request)) return;
    assert(next.issued == 0);
    next.issued = request.length;
    whole.length += request.length;
    in_flight_bytes_ += request.length;
    queued(last).joined = next.ticket;
    last = next.ticket;
  }
}

// Returns true if a request uses memory of a request in the chunk.
bool Pump::uses_memory_of(const Chunk &chunk, const Request &request) const {
  for (Ticket one = chunk.ticket; one != no_ticket; one = queued(one).joined)
    if (overlaps(request, queued(one).request)) return true;
  return false;
}

// Adds the memory of a request to a transfer. If the memory of the request does not directly follow the memory of the
// transfer, the transfer gets another part. Returns false if there is no place for another part. Also returns false if
// only the transfer or only the request could bypass the page cache. The joined transfer would go through the page
// cache as a whole.
bool Pump::add_memory(Transfer &whole, const Request &request) {
  const std::span places(&parts_[whole.tag * max_parts], max_parts);
  std::size_t count = whole.parts.size();
  if (count == 0) places[count++] = {whole.data, whole.length};
  iovec &last = places[count - 1];
  if (whole.file >= store_.files().size()) return false;
  const File &file = store_.files()[whole.file];
  if (file.descriptor(request.offset - last.iov_len, begin_of(last), last.iov_len) !=
      file.descriptor(request.offset, request.data, request.length))
    return false;
  if (request.data == begin_of(last) + last.iov_len)
    last.iov_len += request.length;
  else if (count < places.size())
    places[count++] = {request.data, request.length};
  else
    return false;
  if (count > 1) whole.parts = places.first(count);
  return true;
}

// Fills batch_ with the transfers that must be submitted now.
void Pump::gather() {
  batch_.clear();
  if (stopped()) {  // chunks that wait for a retry still count as in flight, so they are released here
    for (const std::size_t number : retries_) release(number);
    retries_.clear();
    return;
  }
  for (const std::size_t number : retries_) batch_.push_back(chunks_[number].transfer);
  retries_.clear();
  for (bool more = true; more;) {  // reads and writes alternate
    more = false;
    for (std::size_t i = 0; i < queues_.size() && !free_chunks_.empty(); ++i, turn_ ^= 1)
      more = gather_from(queues_[turn_]) || more;
  }
}

void Pump::release(std::size_t number) {
  --in_flight_;
  in_flight_bytes_ -= chunks_[number].transfer.length;
  free_chunks_.push_back(number);
}

void Pump::settle(const Completion &completion) {
  const auto number = static_cast<std::size_t>(completion.tag);
  Chunk &chunk = chunks_[number];
  const std::int64_t result = completion.result;
  if (result == -EAGAIN || result == -EINTR) {
    retries_.push_back(number);
    again_ = again_ || result == -EAGAIN;
    return;
  }
  if (result <= 0) {
    if (!failure_) failure_ = FailedTransfer{chunk.transfer, static_cast<int>(-result)};
    release(number);
    return;
  }
  const auto moved = static_cast<std::size_t>(result);
  assert(moved <= chunk.transfer.length);
  (chunk.transfer.write ? bytes_written_ : bytes_read_) += moved;
  credit(chunk, moved);
  if (moved == chunk.transfer.length) {
    release(number);
    return;
  }
  chunk.transfer.offset += moved;
  chunk.transfer.length -= moved;
  if (chunk.transfer.parts.empty()) {
    chunk.transfer.data += moved;
  } else {
    chunk.transfer.parts = without_first(chunk.transfer.parts, moved);
    chunk.transfer.data = begin_of(chunk.transfer.parts[0]);
  }
  in_flight_bytes_ -= moved;
  retries_.push_back(number);
}

// Counts the transferred bytes of a chunk as done: subtracts them from the remaining bytes of the chunk's requests, in
// the order of these requests.
void Pump::credit(Chunk &chunk, std::size_t moved) {
  while (moved > 0) {
    QueuedRequest &whole = queued(chunk.ticket);
    const std::size_t part = std::min(moved, whole.remaining);
    assert(part > 0);
    whole.remaining -= part;
    moved -= part;
    if (whole.remaining > 0) continue;
    --unfinished_;
    if (whole.joined != no_ticket) chunk.ticket = whole.joined;
  }
}

// --- the thread ----------------------------------------------------------------------------------------------------

void Pump::loop() {
  // The time to wait after EAGAIN if no transfer is in flight. If transfers are in flight, the pump waits for the next
  // completion instead, because a completion frees resources.
  constexpr std::chrono::milliseconds pause_again{1};
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_busy;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (in_flight_ == 0) {
      work_.wait(lock, [&] { return stopping_ || (!stopped() && startable()); });
      if (stopping_) return;
      begin_busy = Clock::now();
    }
    gather();
    if (in_flight_ == 0) continue;
    const bool only_retries = again_ && batch_.size() == in_flight_;
    again_ = false;
    lock.unlock();
    if (only_retries) std::this_thread::sleep_for(pause_again);
    if (!batch_.empty()) store_.submit(batch_);
    const std::size_t count = store_.reap(completions_, true);
    lock.lock();
    for (std::size_t i = 0; i < count; ++i) settle(completions_[i]);
    if (in_flight_ == 0) seconds_busy_ += std::chrono::duration<double>(Clock::now() - begin_busy).count();
    finished_.notify_all();
  }
}

}  // namespace outcrop
