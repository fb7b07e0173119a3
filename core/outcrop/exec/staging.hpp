// Memory in which bytes lie while they are on their way to files, so that whoever has computed them need not wait.
//
//     compute threads:  take() ► fill ► send() ──► pump ──► files
//                         ▲                         │
//                         └──── waits for the oldest one, where devices are slower ◄
//
// At its largest it holds what a device writes in some ten milliseconds: about as long as the pump's thread may wait for a
// processor that updates keep busy. How much the budget allows is decided by planning (plan/tap_memory.py).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/pump.hpp"

namespace outcrop {

/// `slots` of `slot_bytes`, a multiple of pages.
struct StagingSizes {
  std::size_t slots = 64, slot_bytes = 256 << 10;
};

class Staging {
 public:
  /// `store` must outlive this and belongs to it.
  Staging(Store &store, StagingSizes sizes);

  /// slot_bytes of memory, aligned to pages. Goes back to its owner at its end: at once, or when what was sent has been written.
  class Slot {
   public:
    Slot(Staging &owner, std::byte *data) : owner_(owner), data_(data) {}
    ~Slot() { owner_.give_back(data_, ticket_); }
    Slot(const Slot &) = delete;
    Slot &operator=(const Slot &) = delete;

    std::byte *data() const { return data_; }

    /// Begins to write `length` bytes from byte `from` of the slot on; once. Throws StorageError when a write has failed.
    void send(std::uint32_t file, std::uint64_t offset, std::size_t from, std::size_t length);

   private:
    Staging &owner_;
    std::byte *const data_;
    Ticket ticket_ = no_ticket;
  };

  std::size_t slot_bytes() const { return sizes_.slot_bytes; }

  /// A free slot, waiting for one if need be. From any thread, one at a time for each. Throws StorageError when a write has
  /// failed.
  Slot take();

  /// Waits until all that was sent has been written. Throws StorageError.
  void drain() { pump_.drain(); }

 private:
  struct Free {
    std::byte *data = nullptr;
    Ticket ticket = no_ticket;
  };

  void give_back(std::byte *data, Ticket ticket);

  const StagingSizes sizes_;
  AlignedMemory memory_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::deque<Free>
      free_;   // those on their way to files in the order in which they were sent, behind those that are not
  Pump pump_;  // last: its thread ends first
};

}  // namespace outcrop
