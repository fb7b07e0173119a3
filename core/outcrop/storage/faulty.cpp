// A store with deliberate faults, for tests of all code that uses a store. Two stores with the same seed have the same
// faults.
#include "outcrop/storage/store.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

using Clock = std::chrono::steady_clock;

// Returns a random word. The word depends only on the seed, on the number of the transfer, and on `question`.
// `question` is the number of the decision for which the word is used. So the order in which transfers complete does
// not change the faults.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t number, std::uint64_t question) {
  std::uint64_t word = seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + question * 0x94D049BB133111EB;
  for (int round = 0; round < 2; ++round) {  // the last steps of the generator splitmix64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    word ^= word >> 31;
  }
  return word;
}

enum Question : std::uint64_t { error, again, shorter, flip, where };

class FaultyStore final : public Store {
 public:
  FaultyStore(std::unique_ptr<Store> inside, const Faults &faults)
      : Store({}), inside_(std::move(inside)), faults_(faults), arrived_(inside_->depth()) {
    add_note(inside_->note());
  }

  const char *name() const override { return inside_->name(); }
  std::size_t depth() const override { return inside_->depth(); }
  const std::vector<File> &files() const override { return inside_->files(); }
  void close() override { inside_->close(); }
  void replace(std::uint32_t file, File opened) override {
    const std::lock_guard lock(replacing_);
    inside_->replace(file, std::move(opened));
  }

  void flush() override {
    if (flushes_++ == faults_.flush_error_at) throw StorageError("flush", path(0), EIO);
    inside_->flush();
  }

  void submit(std::span<const Transfer> transfers) override {
    for (const Transfer &transfer : transfers) submit_one(transfer);
  }

  std::size_t reap(std::span<Completion> completions, bool wait) override {
    const std::size_t count = inside_->reap(arrived_, wait && delayed_.empty());
    for (std::size_t i = 0; i < count; ++i) arrive(arrived_[i]);
    if (wait && !delayed_.empty()) std::this_thread::sleep_until(delayed_.front().due);
    std::size_t given = 0;
    for (const auto now = Clock::now();
         given < completions.size() && !delayed_.empty() && delayed_.front().due <= now;) {
      completions[given++] = delayed_.front().completion;
      delayed_.pop_front();
    }
    return given;
  }

 private:
  struct Pending {
    Transfer transfer;
    Clock::time_point due;
    bool flip = false;
    std::uint64_t read = 0;
    std::vector<iovec> parts = {};  // the parts of a transfer that was made shorter
  };
  struct Delayed {
    Completion completion;
    Clock::time_point due;
  };

  bool happens(double rate, std::uint64_t number, Question question) const {
    return static_cast<double>(random_word(faults_.seed, number, question) >> 11) < rate * 0x1p53;
  }

  void submit_one(const Transfer &transfer) {
    const std::uint64_t number = transfers_++;
    const auto due = Clock::now() + std::chrono::microseconds(faults_.latency_microseconds);
    if (const int failure = failure_of(transfer, number); failure != 0) {
      delayed_.push_back({{transfer.tag, -failure}, due});
      return;
    }
    // Reads are counted separately from writes, because the number of writes between two reads differs from run to run.
    const std::uint64_t read = transfer.write ? reads_ : reads_++;
    const bool flips = !transfer.write && (read == faults_.flip_at || happens(faults_.flip_rate, read, flip));
    Pending &pending = pending_[number] = Pending{transfer, due, flips, read};
    Transfer passed = transfer;
    passed.tag = number;
    if (happens(faults_.short_rate, number, shorter)) {
      passed.length = shortened(transfer, number);
      pending.parts = first_of(transfer.parts, passed.length);
      passed.parts = pending.parts;
    }
    if (transfer.write) written_ += passed.length;
    inside_->submit({&passed, 1});
  }

  int failure_of(const Transfer &transfer, std::uint64_t number) const {
    if (number == faults_.error_at || happens(faults_.error_rate, number, error)) return EIO;
    if (happens(faults_.again_rate, number, again)) return EAGAIN;
    if (transfer.write && transfer.length > faults_.full_after_bytes - std::min(written_, faults_.full_after_bytes))
      return ENOSPC;
    return 0;
  }

  // Returns the number of bytes that a short transfer moves. This number is smaller than the requested number of bytes,
  // but at least one unit of the file's alignment.
  std::size_t shortened(const Transfer &transfer, std::uint64_t number) {
    const std::lock_guard lock(replacing_);  // alignment() reads the list of files, and replace() changes this list
    const std::size_t unit = inside_->alignment();
    if (transfer.length <= unit) return transfer.length;
    const auto length = round_down(1 + random_word(faults_.seed, number, where) % (transfer.length - 1), unit);
    return std::max<std::size_t>(length, unit);
  }

  // Returns parts for the first `bytes` bytes of the given parts.
  static std::vector<iovec> first_of(std::span<const iovec> parts, std::size_t bytes) {
    std::vector<iovec> result;
    for (const iovec &part : parts) {
      if (bytes == 0) break;
      result.push_back({part.iov_base, std::min(part.iov_len, bytes)});
      bytes -= result.back().iov_len;
    }
    return result;
  }

  static std::byte &byte_of(const Transfer &transfer, std::size_t place) {
    for (const iovec &part : transfer.parts) {
      if (place < part.iov_len) return begin_of(part)[place];
      place -= part.iov_len;
    }
    return transfer.data[place];
  }

  void arrive(const Completion &completion) {
    const Pending pending = pending_.extract(completion.tag).mapped();
    if (pending.flip && completion.result > 0) {
      const std::uint64_t word = random_word(faults_.seed, pending.read, where);
      std::byte &victim = byte_of(pending.transfer, (word >> 3) % static_cast<std::uint64_t>(completion.result));
      victim ^= std::byte{1} << static_cast<int>(word & 7);
    }
    delayed_.push_back({{pending.transfer.tag, completion.result}, pending.due});
  }

  const std::unique_ptr<Store> inside_;
  const Faults faults_;
  std::mutex replacing_;
  std::map<std::uint64_t, Pending> pending_;  // the key is the number of the transfer
  std::vector<Completion> arrived_;
  std::deque<Delayed> delayed_;
  std::uint64_t transfers_ = 0, reads_ = 0, written_ = 0, flushes_ = 0;
};

}  // namespace

std::unique_ptr<Store> make_faulty_store(std::unique_ptr<Store> inside, const Faults &faults) {
  return std::make_unique<FaultyStore>(std::move(inside), faults);
}

}  // namespace outcrop
