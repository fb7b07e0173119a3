// libaio is the older asynchronous I/O of Linux. Many containers forbid io_uring, and most of these containers allow
// libaio. Transfers are asynchronous only with O_DIRECT. If a transfer uses the page cache, io_submit waits until the
// transfer is complete. A transfer through the page cache is correct, but slow.
#include "outcrop/storage/store.hpp"

#ifdef OUTCROP_HAVE_LIBAIO

#include <libaio.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

class LibaioStore final : public Store {
 public:
  LibaioStore(std::vector<File> files, std::size_t depth)
      : Store(std::move(files)), blocks_(std::max<std::size_t>(depth, 1)) {
    if (const int result = io_setup(static_cast<int>(blocks_.size()), &context_); result < 0)
      throw StorageError("set up", "libaio", -result);
    for (iocb &block : blocks_) free_.push_back(&block);
    waiting_.reserve(blocks_.size());
    refused_.reserve(blocks_.size());
    events_.resize(blocks_.size());
  }
  ~LibaioStore() override { io_destroy(context_); }

  const char *name() const override { return "libaio"; }
  std::size_t depth() const override { return blocks_.size(); }

  void submit(std::span<const Transfer> transfers) override {
    assert(transfers.size() <= free_.size());
    for (const Transfer &transfer : transfers) prepare(transfer);
    push();
  }

  std::size_t reap(std::span<Completion> completions, bool wait) override {
    push();
    std::size_t count = 0;
    for (; count < completions.size() && !refused_.empty(); refused_.pop_back()) completions[count++] = refused_.back();
    const std::size_t room = std::min(completions.size() - count, in_kernel_);
    if (room == 0) return count;
    int found = 0;
    do {
      found = io_getevents(context_, wait && count == 0 ? 1 : 0, static_cast<long>(room), events_.data(), nullptr);
    } while (found == -EINTR);
    for (int i = 0; i < found; ++i) {
      const io_event &event = events_[static_cast<std::size_t>(i)];
      completions[count++] = {tag_of(event.obj), static_cast<std::int64_t>(event.res)};
      free_.push_back(event.obj);
      --in_kernel_;
    }
    return count;
  }

 private:
  static std::uint64_t tag_of(const iocb *block) { return reinterpret_cast<std::uintptr_t>(block->data); }

  void prepare(const Transfer &transfer) {
    iocb *block = free_.back();
    free_.pop_back();
    const auto [file, begin] = locate(transfer);
    const auto offset = static_cast<long long>(begin);
    const auto parts = static_cast<int>(transfer.parts.size());
    if (parts > 0 && transfer.write)
      io_prep_pwritev(block, file, transfer.parts.data(), parts, offset);
    else if (parts > 0)
      io_prep_preadv(block, file, transfer.parts.data(), parts, offset);
    else if (transfer.write)
      io_prep_pwrite(block, file, transfer.data, transfer.length, offset);
    else
      io_prep_pread(block, file, transfer.data, transfer.length, offset);
    static_assert(sizeof(void *) >= sizeof(std::uint64_t));
    block->data = reinterpret_cast<void *>(transfer.tag);
    waiting_.push_back(block);
  }

  // Passes control blocks (iocb) to the Linux kernel. The kernel stops at the first control block that it refuses. The
  // kernel returns the reason only if the refused block was the first block of the call.
  void push() {
    std::size_t next = 0;
    while (next < waiting_.size()) {
      const int result = io_submit(context_, static_cast<long>(waiting_.size() - next), waiting_.data() + next);
      if (result == -EINTR) continue;
      if (result > 0) {
        next += static_cast<std::size_t>(result);
        in_kernel_ += static_cast<std::size_t>(result);
        continue;
      }
      // the kernel has room again after the next completion
      if ((result == 0 || result == -EAGAIN) && in_kernel_ > 0) break;
      refused_.push_back({tag_of(waiting_[next]), result == 0 ? -EAGAIN : result});
      free_.push_back(waiting_[next++]);
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(next));
  }

  io_context_t context_{};
  std::vector<iocb> blocks_;
  std::vector<iocb *> free_;
  std::vector<iocb *> waiting_;  // the control blocks that the kernel has not accepted yet, in the order of submission
  std::vector<Completion> refused_;
  std::vector<io_event> events_;
  std::size_t in_kernel_ = 0;
};

}  // namespace

std::unique_ptr<Store> make_libaio_store(std::vector<File> files, std::size_t depth) {
  return std::make_unique<LibaioStore>(std::move(files), depth);
}

}  // namespace outcrop

#endif
