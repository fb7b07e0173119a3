// io_uring passes transfers to the Linux kernel in batches, through a ring. In the cheaper modes SINGLE_ISSUER and
// DEFER_TASKRUN, a ring may be used only by the thread that created it. But the thread that uses a store can differ
// from the thread that opened the store. So the store creates a new ring when another thread begins to use the store.
//
// If the kernel cannot perform a transfer immediately, it passes the transfer to a worker thread. One version of Linux
// did not start the worker thread of a new ring, so the first transfer was never completed. For this reason, a new ring
// first makes a trial transfer by a worker thread.
#include "outcrop/storage/store.hpp"

#ifdef OUTCROP_HAVE_URING

#include <liburing.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>

#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

// The maximum number of bytes of a transfer. If a transfer has more bytes, the store transfers only
// `max_transfer_bytes` bytes, and the caller then submits the remaining bytes.
constexpr std::size_t max_transfer_bytes = std::size_t{1} << 30;

// Returns a number for the calling thread. No other thread of the process ever gets the same number. The thread numbers
// of the system are not suitable, because the system reuses them.
std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t number = ++last;
  return number;
}

struct CloseRing {
  void operator()(io_uring *ring) const {
    io_uring_queue_exit(ring);
    delete ring;
  }
};
using Ring = std::unique_ptr<io_uring, CloseRing>;

// The maximum time that a new ring may take for its trial transfer.
constexpr std::chrono::seconds trial_limit{5};

// Makes a trial transfer with a new ring. Returns 0 or an errno. The errno is ETIMEDOUT if the transfer is not
// completed in time. The kernel can still perform the transfer later, even after the ring is closed. A late trial
// transfer is harmless, because a write changes no memory, and the file of the trial stays open.
int try_ring(io_uring &ring) {
  static constexpr std::array<std::byte, 1> bytes{};
  static const File file = File::anonymous("trial", bytes.size());
  io_uring_sqe *const entry = io_uring_get_sqe(&ring);
  io_uring_prep_write(entry, file.descriptor(0, bytes.data(), bytes.size()), bytes.data(), bytes.size(), 0);
  entry->flags |= IOSQE_ASYNC;  // the flag makes a worker thread perform the transfer
  const auto deadline = std::chrono::steady_clock::now() + trial_limit;
  int result = 0;
  do result = io_uring_submit(&ring);
  while (result == -EINTR);
  if (result <= 0) return result == 0 ? EAGAIN : -result;
  io_uring_cqe *completion = nullptr;
  do {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return ETIMEDOUT;
    __kernel_timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    result = io_uring_wait_cqe_timeout(&ring, &completion, &limit);
  } while (result == -EINTR);
  if (result < 0) return result == -ETIME ? ETIMEDOUT : -result;
  result = completion->res;
  io_uring_cqe_seen(&ring, completion);
  return result > 0 ? 0 : result < 0 ? -result : EIO;
}

// Throws StorageError if the system refuses a ring, or if the ring does not work.
Ring open_ring(unsigned entries) {
  auto ring = std::make_unique<io_uring>();
  int result = -EINVAL;
#ifdef IORING_SETUP_DEFER_TASKRUN
  result = io_uring_queue_init(entries, ring.get(),
                               IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
#endif
  // Linux before 6.1 does not have these modes
  if (result == -EINVAL) result = io_uring_queue_init(entries, ring.get(), 0);
  if (result < 0) throw StorageError("set up", "io_uring", -result);
  Ring opened(ring.release());
  if (const int error = try_ring(*opened); error != 0) throw StorageError("first transfer", "io_uring", error);
  return opened;
}

class UringStore final : public Store {
 public:
  UringStore(std::vector<File> files, std::size_t depth)
      : Store(std::move(files)), depth_(std::max<std::size_t>(depth, 1)) {
    refused_.reserve(depth_);
    waiting_.reserve(depth_);
    make_ring();
  }

  const char *name() const override { return "io_uring"; }
  std::size_t depth() const override { return depth_; }

  void submit(std::span<const Transfer> transfers) override {
    assert(in_kernel_ + waiting_.size() + refused_.size() + transfers.size() <= depth_);
    const int error = ensure_ring();
    for (const Transfer &transfer : transfers) {
      if (error != 0)
        refused_.push_back({transfer.tag, -error});
      else
        prepare(transfer);
    }
    push();
  }

  std::size_t reap(std::span<Completion> completions, bool wait) override {
    push();
    std::size_t count = 0;
    for (; count < completions.size() && !refused_.empty(); refused_.pop_back()) completions[count++] = refused_.back();
    io_uring_cqe *entry = nullptr;
    while (wait && count == 0 && in_kernel_ > 0 && io_uring_wait_cqe(ring_.get(), &entry) == -EINTR) {
    }
    while (count < completions.size() && in_kernel_ > 0 && io_uring_peek_cqe(ring_.get(), &entry) == 0) {
      completions[count++] = {entry->user_data, entry->res};
      io_uring_cqe_seen(ring_.get(), entry);
      --in_kernel_;
    }
    return count;
  }

 private:
  void make_ring() {
    ring_.reset();
    ring_ = open_ring(static_cast<unsigned>(depth_));
    owner_ = thread_number();
  }

  // Creates a ring if the calling thread has no working ring. Returns 0 or an errno.
  int ensure_ring() {
    if (ring_ && owner_ == thread_number()) return 0;
    if (in_kernel_ > 0) return EAGAIN;  // a broken ring is replaced when it has no transfers left
    try {
      make_ring();
    } catch (const StorageError &error) {
      return error.error;
    }
    return 0;
  }

  void prepare(const Transfer &transfer) {
    io_uring_sqe *entry = io_uring_get_sqe(ring_.get());
    assert(entry != nullptr);  // an entry is always free, because the queue has room for `depth` transfers
    const auto [file, offset] = locate(transfer);
    const auto length = static_cast<unsigned>(std::min(transfer.length, max_transfer_bytes));
    const auto parts = static_cast<unsigned>(transfer.parts.size());
    if (parts > 0 && transfer.write)
      io_uring_prep_writev(entry, file, transfer.parts.data(), parts, offset);
    else if (parts > 0)
      io_uring_prep_readv(entry, file, transfer.parts.data(), parts, offset);
    else if (transfer.write)
      io_uring_prep_write(entry, file, transfer.data, length, offset);
    else
      io_uring_prep_read(entry, file, transfer.data, length, offset);
    entry->user_data = transfer.tag;
    waiting_.push_back(transfer.tag);
  }

  // Submits prepared entries to the kernel. The kernel can accept only some of the entries. The remaining entries are
  // submitted after a completion.
  void push() {
    while (!waiting_.empty()) {
      const int result = io_uring_submit(ring_.get());
      if (result == -EINTR) continue;
      if (result > 0) {
        waiting_.erase(waiting_.begin(), waiting_.begin() + result);
        in_kernel_ += static_cast<std::size_t>(result);
        continue;
      }
      const bool later = result == 0 || result == -EAGAIN || result == -EBUSY;
      if (later && in_kernel_ > 0) return;
      // Either the kernel refuses the entries permanently, or it has no room for the entries and no transfer in flight
      // will make room. The transfers of the refused entries have not begun, but the ring still contains these entries.
      // So the store must not use this ring any more.
      for (const std::uint64_t tag : waiting_) refused_.push_back({tag, later ? -EAGAIN : result});
      waiting_.clear();
      owner_ = no_thread;
    }
  }

  static constexpr std::uint64_t no_thread = 0;

  const std::size_t depth_;
  Ring ring_;
  std::uint64_t owner_ = no_thread;  // the thread that created the ring; no_thread if the ring is broken
  std::size_t in_kernel_ = 0;        // number of transfers that the kernel has accepted and that are not reaped
  // the tags of entries that the kernel has not accepted yet, in the order of submission
  std::vector<std::uint64_t> waiting_;
  std::vector<Completion> refused_;  // transfers that the kernel has refused
};

}  // namespace

std::unique_ptr<Store> make_uring_store(std::vector<File> files, std::size_t depth) {
  return std::make_unique<UringStore>(std::move(files), depth);
}

}  // namespace outcrop

#endif
