// Defines a store for tests of the pump and of code that uses the pump. The test controls each transfer. The test can
// delay the completion of a transfer, shorten the transfer, or return an error.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "outcrop/storage/store.hpp"

namespace outcrop {

/// A store with one file named "scripted" of `size` bytes. The initial value of byte i is i * 7 + i / 256.
class ScriptedStore final : public Store {
 public:
  /// A function that returns the maximum number of bytes that a transfer moves, or an error as -errno. Transfers are
  /// numbered from 0.
  using Script = std::function<std::int64_t(const Transfer &, std::size_t number)>;

  /// Transfers do not access the file in `files`. But the properties of the file in `files` decide which transfers
  /// bypass the page cache.
  explicit ScriptedStore(std::size_t size, std::size_t depth = 64, Script script = {},
                         std::vector<File> files = one_file())
      : Store(std::move(files)), bytes_(size), depth_(depth), script_(std::move(script)) {
    for (std::size_t i = 0; i < size; ++i) bytes_[i] = static_cast<std::byte>(i * 7 + i / 256);
  }

  const char *name() const override { return "scripted"; }
  std::size_t depth() const override { return depth_; }
  void flush() override {}

  void submit(std::span<const Transfer> transfers) override {
    const std::lock_guard lock(mutex_);
    for (const Transfer &transfer : transfers) {
      waiting_.push_back(transfer);
      started_.push_back(transfer);
    }
    most_in_flight_ = std::max(most_in_flight_, waiting_.size());
    std::size_t bytes = 0;
    for (const Transfer &transfer : waiting_) bytes += transfer.length;
    most_bytes_ = std::max(most_bytes_, bytes);
    changed_.notify_all();
  }

  std::size_t reap(std::span<Completion> completions, bool wait) override {
    std::unique_lock lock(mutex_);
    if (wait) changed_.wait(lock, [&] { return woken_ || waiting_.empty() || permits_ > 0; });
    woken_ = false;
    std::size_t count = 0;
    for (; count < completions.size() && permits_ > 0 && !waiting_.empty(); ++count) {
      if (permits_ != unlimited) --permits_;
      const Transfer transfer = waiting_.front();
      waiting_.pop_front();
      completions[count] = Completion{transfer.tag, finish(transfer)};
    }
    return count;
  }

  /// Delays the completion of all transfers until allow() is called.
  void hold() {
    const std::lock_guard lock(mutex_);
    permits_ = 0;
  }
  void allow(std::size_t transfers = unlimited) {
    const std::lock_guard lock(mutex_);
    permits_ = transfers;
    changed_.notify_all();
  }

  /// Waits until at least `count` transfers have been submitted. Returns all submitted transfers.
  std::vector<Transfer> started(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_.size() >= count; });
    return started_;
  }
  std::vector<Transfer> started() { return started(0); }

  std::vector<std::byte> bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  std::size_t most_in_flight() {
    const std::lock_guard lock(mutex_);
    return most_in_flight_;
  }
  std::size_t most_bytes() {
    const std::lock_guard lock(mutex_);
    return most_bytes_;
  }

 private:
  static constexpr std::size_t unlimited = ~std::size_t{0};

  static std::vector<File> one_file() {
    std::vector<File> files;
    files.push_back(File::anonymous("scripted", 0));
    return files;
  }

  std::int64_t finish(const Transfer &transfer) {
    const std::int64_t limit = script_ ? script_(transfer, finished_++) : static_cast<std::int64_t>(transfer.length);
    if (limit < 0) return limit;
    if (transfer.offset >= bytes_.size()) return 0;
    const std::size_t length =
        std::min({static_cast<std::size_t>(limit), transfer.length, bytes_.size() - transfer.offset});
    copy(transfer, bytes_.data() + transfer.offset, length);
    return static_cast<std::int64_t>(length);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Transfer> waiting_;
  std::vector<Transfer> started_;
  std::vector<std::byte> bytes_;
  const std::size_t depth_;
  const Script script_;
  std::size_t permits_ = unlimited, finished_ = 0, most_in_flight_ = 0, most_bytes_ = 0;
  bool woken_ = false;
};

}  // namespace outcrop
