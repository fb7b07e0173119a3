#include "outcrop/exec/staging.hpp"

#include <cassert>

namespace outcrop {

Staging::Staging(Store &store, StagingSizes sizes)
    : sizes_(sizes), memory_(sizes.slots * sizes.slot_bytes), pump_(store) {
  assert(sizes.slots > 0 && sizes.slot_bytes > 0 && sizes.slot_bytes % AlignedMemory::page_bytes == 0);
  for (std::size_t i = 0; i < sizes.slots; ++i) free_.push_back({memory_.data() + i * sizes.slot_bytes, no_ticket});
}

Staging::Slot Staging::take() {
  std::unique_lock lock(mutex_);
  given_back_.wait(lock, [this] { return !free_.empty(); });
  const Free oldest = free_.front();
  free_.pop_front();
  lock.unlock();
  try {
    pump_.wait(oldest.ticket);
  } catch (...) {
    give_back(oldest.data, oldest.ticket);
    throw;
  }
  return {*this, oldest.data};
}

// What was not sent is free at once, and warm in a cache.
void Staging::give_back(std::byte *data, Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (ticket == no_ticket)
      free_.push_front({data, ticket});
    else
      free_.push_back({data, ticket});
  }
  given_back_.notify_one();
}

void Staging::Slot::send(std::uint32_t file, std::uint64_t offset, std::size_t from, std::size_t length) {
  assert(ticket_ == no_ticket && from + length <= owner_.slot_bytes());
  ticket_ =
      owner_.pump_.submit({.write = true, .file = file, .offset = offset, .data = data_ + from, .length = length});
}

}  // namespace outcrop
