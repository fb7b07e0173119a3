#include "outcrop/aggregate/mpi/mpi_gets.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace outcrop::aggregate {
namespace {

constexpr outcrop_request sends = outcrop_request{1} << 62;
constexpr auto deserted_after = std::chrono::seconds(1);

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
  for (Ticket ticket = tickets_most; ticket-- > 0;) tickets_.push_back(ticket);
}

template <typename Message>
bool MpiGets::is_done(MPI_Request &request, const Message &message) {
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
  message.is_busy = true;
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
    if (!is_done(slot.requests[0], *slot.message) || !is_done(slot.requests[1], *slot.message)) continue;
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
    check(MPI_Irecv(nullptr, 0, MPI_BYTE, message.to, first_slot + static_cast<int>(number), pieces_over_,
                    &slot.requests[1]),
          text(message));
    check(MPI_Isend(&slot.header, sizeof slot.header, MPI_BYTE, message.to, static_cast<int>(message.ticket),
                    pieces_over_, &slot.requests[0]),
          text(message));
  }
}

void MpiGets::fetch(Receiving &message) {
  const Header &header = message.header;
  if (header.bytes_of_message != message.bytes || header.bytes > message.rest.size())
    throw std::runtime_error(text(message) + ": a message of " + std::to_string(header.bytes_of_message) +
                             " bytes came");
  message.piece = window_.fetch(message.rest.first(header.bytes), message.from, header.slot);
  message.is_fetching = true;
}

void MpiGets::advance(Receiving &message) {
  if (!message.has_ticket || message.rest.empty()) return;
  if (!message.is_fetching) {
    if (!is_done(message.header_coming, message)) return;
    fetch(message);
  }
  // `fetched` still tells of the piece before, maybe.
  if (!is_done(message.piece, message) || !is_done(message.fetched, message)) return;
  message.is_fetching = false;
  message.rest = message.rest.subspan(message.header.bytes);
  check(MPI_Isend(nullptr, 0, MPI_BYTE, message.from, first_slot + static_cast<int>(message.header.slot), pieces_over_,
                  &message.fetched),
        text(message));
  if (!message.rest.empty()) ask_for_header(message);
}

void MpiGets::advance() {
  free_slots();
  for (Sending &message : sendings_)
    if (message.is_busy && !message.rest.empty() && is_done(message.ticket_coming, message)) fill_slots(message);
  while (!without_ticket_.empty() && !tickets_.empty()) give_ticket(*without_ticket_.front());
  for (Receiving &message : receivings_)
    if (message.is_busy) advance(message);
}

bool MpiGets::over(outcrop_request request) {
  const auto index = static_cast<std::size_t>(request & ~(mark | sends));
  if ((request & sends) != 0) {
    Sending &message = sendings_[index];
    if (!message.rest.empty() || message.slots > 0) return false;
    message.is_busy = false;
    sendings_unused_.push_back(index);
    return true;
  }
  Receiving &message = receivings_[index];
  if (!message.rest.empty() || !is_done(message.ticket_going, message) || !is_done(message.fetched, message))
    return false;
  message.is_busy = false;
  tickets_.push_back(message.ticket);
  receivings_unused_.push_back(index);
  return true;
}

bool MpiGets::is_idle() const {
  const auto is_busy = [](const auto &message) { return message.is_busy; };
  return std::ranges::none_of(sendings_, is_busy) && std::ranges::none_of(receivings_, is_busy);
}

bool MpiGets::abandon() noexcept {
  const auto deadline = std::chrono::steady_clock::now() + deserted_after;
  const auto ends = [&](MPI_Request &request, bool is_cancelled) {
    if (request == MPI_REQUEST_NULL) return true;
    if (is_cancelled) MPI_Cancel(&request);
    int done = 0;
    for (Patience patience(Manner{true}); MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0;) {
      if (std::chrono::steady_clock::now() > deadline) break;
      patience.pause();
    }
    if (request == MPI_REQUEST_NULL) return true;
    MPI_Request_free(&request);
    return false;
  };
  bool all_fetched = true;
  for (Receiving &message : receivings_) {
    all_fetched = ends(message.piece, false) && all_fetched;
    ends(message.header_coming, true);
  }
  for (Sending &message : sendings_) ends(message.ticket_coming, true);
  for (Slot &slot : slots_) ends(slot.requests[1], true);
  return all_fetched;
}

}  // namespace outcrop::aggregate
