#include "outcrop/aggregate/mpi/mpi_one_sided.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace outcrop::aggregate {

// --- the window ----------------------------------------------------------------------------------------------------

MpiWindow::MpiWindow(MPI_Comm communicator, std::size_t slots, std::size_t slot_bytes)
    : slots_(slots), slot_bytes_(slot_bytes) {
  const auto bytes = static_cast<MPI_Aint>(slots * slot_bytes);
  check(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, communicator, &memory_, &window_), "making a window");
  check(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "setting the error handler of a window");
}

// Begins access to the windows. The windows must have MPI's unified memory model. With MPI's separate memory model, a
// rank must lock its own window before other ranks can see new data in this window.
void MpiWindow::open() {
  int *model = nullptr, found = 0;
  check(MPI_Win_get_attr(window_, MPI_WIN_MODEL, &model, &found), "asking for the memory model of a window");
  if (found == 0 || *model != MPI_WIN_UNIFIED) throw std::runtime_error("windows do not have a unified memory model");
  check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "beginning access to a window");
  open_ = true;
}

MpiWindow::~MpiWindow() {
  if (window_ == MPI_WIN_NULL) return;
  if (open_) MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

MPI_Request MpiWindow::fetch(std::span<std::byte> target, int from, std::size_t slot) const {
  MPI_Request request = MPI_REQUEST_NULL;
  const int bytes = static_cast<int>(target.size());
  const auto at = static_cast<MPI_Aint>(slot * slot_bytes_);
  check(MPI_Rget(target.data(), bytes, MPI_BYTE, from, at, bytes, MPI_BYTE, window_, &request), "fetching");
  return request;
}

// --- messages ------------------------------------------------------------------------------------------------------

namespace {

constexpr outcrop_request sends = outcrop_request{1} << 62;

template <typename Message>
std::size_t unused_of(std::deque<Message> &all, std::vector<std::size_t> &unused) {
  if (unused.empty()) {
    unused.push_back(all.size());
    all.emplace_back();
  }
  const std::size_t index = unused.back();
  unused.pop_back();
  return index;
}

}  // namespace

MpiGets::MpiGets(MPI_Comm tickets_over, MPI_Comm pieces_over, MpiWindow &window)
    : tickets_over_(tickets_over), pieces_over_(pieces_over), window_(window), slots_(window.slots()) {
  for (Ticket ticket = max_tickets; ticket-- > 0;) tickets_.push_back(ticket);
}

template <typename Message>
bool MpiGets::finished(MPI_Request &request, const Message &message) {
  int done = 0;
  if (const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE); code != MPI_SUCCESS) check(code, text(message));
  return done != 0;
}

std::string MpiGets::text(const Sending &message) {
  return "sending " + std::to_string(message.bytes) + " bytes to rank " + std::to_string(message.to) + " with tag " +
         std::to_string(message.tag) + " by a window";
}

std::string MpiGets::text(const Receiving &message) {
  return "fetching " + std::to_string(message.bytes) + " bytes from rank " + std::to_string(message.from) +
         " with tag " + std::to_string(message.tag);
}

outcrop_request MpiGets::send(const std::byte *data, std::size_t bytes, int to, int tag) {
  const std::size_t index = unused_of(sendings_, sendings_unused_);
  Sending &message = sendings_[index];
  message = {{data, bytes}, bytes, 0, to, tag, 0, MPI_REQUEST_NULL, true};
  check(MPI_Irecv(&message.ticket, sizeof message.ticket, MPI_BYTE, to, tag, tickets_over_, &message.ticket_coming),
        text(message));
  return mark | sends | index;
}

outcrop_request MpiGets::receive(std::byte *data, std::size_t bytes, int from, int tag) {
  const std::size_t index = unused_of(receivings_, receivings_unused_);
  Receiving &message = receivings_[index];
  message = {};
  message.rest = {data, bytes};
  message.bytes = bytes;
  message.from = from;
  message.tag = tag;
  message.busy = true;
  without_ticket_.push_back(&message);
  if (without_ticket_.size() == 1 && !tickets_.empty()) give_ticket(message);
  return mark | index;
}

void MpiGets::give_ticket(Receiving &message) {
  without_ticket_.pop_front();
  message.ticket = tickets_.back();
  tickets_.pop_back();
  message.has_ticket = true;
  check(MPI_Isend(&message.ticket, sizeof message.ticket, MPI_BYTE, message.from, message.tag, tickets_over_,
                  &message.ticket_going),
        text(message));
  ask_for_header(message);
}

void MpiGets::ask_for_header(Receiving &message) {
  check(MPI_Irecv(&message.header, sizeof message.header, MPI_BYTE, message.from, static_cast<int>(message.ticket),
                  pieces_over_, &message.header_coming),
        text(message));
}

void MpiGets::free_slots() {
  for (Slot &slot : slots_) {
    if (slot.message == nullptr) continue;
    if (!finished(slot.header_going, *slot.message) || !finished(slot.fetched, *slot.message)) continue;
    --slot.message->slots;
    slot.message = nullptr;
  }
}

void MpiGets::fill_slots(Sending &message) {
  for (std::size_t number = 0; number < slots_.size() && !message.rest.empty(); ++number) {
    Slot &slot = slots_[number];
    if (slot.message != nullptr) continue;
    const std::span<const std::byte> piece = message.rest.first(std::min(message.rest.size(), window_.slot_bytes()));
    std::memcpy(window_.slot(number).data(), piece.data(), piece.size());
    window_.publish();
    slot.message = &message;
    ++message.slots;
    message.rest = message.rest.subspan(piece.size());
    slot.header = {number, piece.size(), message.bytes};
    check(
        MPI_Irecv(nullptr, 0, MPI_BYTE, message.to, first_slot + static_cast<int>(number), pieces_over_, &slot.fetched),
        text(message));
    check(MPI_Isend(&slot.header, sizeof slot.header, MPI_BYTE, message.to, static_cast<int>(message.ticket),
                    pieces_over_, &slot.header_going),
          text(message));
  }
}

void MpiGets::fetch(Receiving &message) {
  const Header &header = message.header;
  if (header.bytes_of_message != message.bytes || header.bytes > message.rest.size())
    throw std::runtime_error(text(message) + ": a message of " + std::to_string(header.bytes_of_message) +
                             " bytes came");
  message.piece = window_.fetch(message.rest.first(header.bytes), message.from, header.slot);
  message.fetching = true;
}

void MpiGets::advance(Receiving &message) {
  if (!message.has_ticket || message.rest.empty()) return;
  if (!message.fetching) {
    if (!finished(message.header_coming, message)) return;
    fetch(message);
  }
  // The request `fetched` of the previous piece may still be under way.
  if (!finished(message.piece, message) || !finished(message.fetched, message)) return;
  message.fetching = false;
  message.rest = message.rest.subspan(message.header.bytes);
  check(MPI_Isend(nullptr, 0, MPI_BYTE, message.from, first_slot + static_cast<int>(message.header.slot), pieces_over_,
                  &message.fetched),
        text(message));
  if (!message.rest.empty()) ask_for_header(message);
}

void MpiGets::advance() {
  free_slots();
  for (Sending &message : sendings_)
    if (message.busy && !message.rest.empty() && finished(message.ticket_coming, message)) fill_slots(message);
  while (!without_ticket_.empty() && !tickets_.empty()) give_ticket(*without_ticket_.front());
  for (Receiving &message : receivings_)
    if (message.busy) advance(message);
}

bool MpiGets::over(outcrop_request request) {
  const auto index = static_cast<std::size_t>(request & ~(mark | sends));
  if ((request & sends) != 0) {
    Sending &message = sendings_[index];
    if (!message.rest.empty() || message.slots > 0) return false;
    message.busy = false;
    sendings_unused_.push_back(index);
    return true;
  }
  Receiving &message = receivings_[index];
  if (!message.rest.empty() || !finished(message.ticket_going, message) || !finished(message.fetched, message))
    return false;
  message.busy = false;
  tickets_.push_back(message.ticket);
  receivings_unused_.push_back(index);
  return true;
}

bool MpiGets::idle() const {
  const auto busy = [](const auto &message) { return message.busy; };
  return std::ranges::none_of(sendings_, busy) && std::ranges::none_of(receivings_, busy);
}

bool MpiGets::abandon() noexcept {
  const auto deadline = deadline_of_abandoned();
  bool all_fetched = true;
  for (Receiving &message : receivings_) {
    all_fetched = ends_before(deadline, message.piece, false) && all_fetched;
    ends_before(deadline, message.header_coming, true);
  }
  for (Sending &message : sendings_) ends_before(deadline, message.ticket_coming, true);
  for (Slot &slot : slots_) ends_before(deadline, slot.fetched, true);
  return all_fetched;
}

// --- the window and its messages ----------------------------------------------------------------------------------

namespace {

// Returns test bytes that are different for each pair of ranks.
std::vector<std::byte> content(std::size_t bytes, int from, int to) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    made[i] =
        static_cast<std::byte>(i * 7 + i / 251 + static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to));
  return made;
}

}  // namespace

MpiOneSided::MpiOneSided(MPI_Comm original, std::size_t slot_bytes)
    : slot_bytes_(slot_bytes),
      small_bytes_(std::min(max_small_bytes, slot_bytes / 4)),
      tickets_over_(original),
      pieces_over_(original) {}

void MpiOneSided::make_window() { window_.emplace(pieces_over_.value, slots, slot_bytes_); }

void MpiOneSided::open_window() {
  window_->open();
  gets_.emplace(tickets_over_.value, pieces_over_.value, *window_);
}

void MpiOneSided::probe(int rank, int size, std::chrono::duration<double> limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const std::size_t bytes = slots * slot_bytes_ + slot_bytes_ / 2;  // this test message is larger than a window
  for (const int steps : {1, size / 2}) {
    const int to = (rank + steps) % size, from = (rank + size - steps) % size;
    const std::vector<std::byte> sent = content(bytes, rank, to);
    std::vector<std::byte> came(bytes);
    outcrop_request sending = gets_->send(sent.data(), bytes, to, 0),
                    receiving = gets_->receive(came.data(), bytes, from, 0);
    for (Backoff backoff(WaitPolicy{true}); sending != 0 || receiving != 0; backoff.pause()) {
      gets_->advance();
      if (sending != 0 && gets_->over(sending)) sending = 0;
      if (receiving != 0 && gets_->over(receiving)) receiving = 0;
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("a message from rank " + std::to_string(from) + " or to rank " + std::to_string(to) +
                                 " does not end");
    }
    if (came != content(bytes, from, rank))
      throw std::runtime_error("other bytes came from rank " + std::to_string(from) + " than it has sent");
  }
}

void MpiOneSided::release() {
  if (window_) window_->release();
  tickets_over_.release();
  pieces_over_.release();
}

}  // namespace outcrop::aggregate
