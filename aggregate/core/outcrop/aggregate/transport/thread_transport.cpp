// This file defines ThreadRanks (transport.hpp): the transport between ranks that are threads of one process.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "outcrop/aggregate/transport/transport.hpp"

namespace outcrop::aggregate {
namespace {

using Message = std::vector<std::byte>;

struct Receive {
  std::byte *data = nullptr;
  std::size_t bytes = 0;
  int from = 0;
  std::optional<Message> message = {};
};

// The messages with one tag from one rank to another rank. Messages wait only if no call of receive() waits, and calls
// of receive() wait only if no message waits. Therefore one of the two queues is always empty.
struct Channel {
  std::deque<Message> messages;
  std::deque<Receive *> receives;

  void match() {
    if (messages.empty() || receives.empty()) return;
    receives.front()->message = std::move(messages.front());
    receives.pop_front();
    messages.pop_front();
  }
};

}  // namespace

// All ranks and their messages. One mutex guards all members. A single mutex is slow, but this class needs no speed.
class ThreadWorld {
 public:
  // The table of one rank calls the functions of this class. They throw std::runtime_error.
  class Rank {
   public:
    void set_up(ThreadWorld &world, int rank, int node) {
      world_ = &world;
      table.rank = rank;
      table.size = static_cast<int>(world.ranks.size());
      table.node = node;
      const std::string host = "node" + std::to_string(node);
      host.copy(table.host, sizeof table.host - 1);
      std::string("threads").copy(table.name, sizeof table.name - 1);
      fill_table(table, this);
    }

    outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag) {
      const std::lock_guard lock(world_->mutex);
      check(to);
      Channel &channel = world_->channels[{table.rank, to, tag}];
      channel.messages.emplace_back(data, data + bytes);
      channel.match();
      world_->changed.notify_all();
      return 0;
    }
    outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag) {
      const std::lock_guard lock(world_->mutex);
      check(from);
      Receive &begun = receives_[++last_] = {data, bytes, from};
      Channel &channel = world_->channels[{from, table.rank, tag}];
      channel.receives.push_back(&begun);
      channel.match();
      return last_;
    }
    void wait(std::span<outcrop_request> requests) {
      std::unique_lock lock(world_->mutex);
      const Clock::time_point begin = Clock::now();
      for (outcrop_request &request : requests)
        while (!take(request)) wait_for_change(lock, begin);
    }
    bool test(std::span<outcrop_request> requests) {
      const std::lock_guard lock(world_->mutex);
      bool all = true;
      for (outcrop_request &request : requests) all = take(request) && all;
      return all;
    }
    void gather_all(const void *mine, std::size_t bytes, void *all) {
      const std::vector<std::uint64_t> sizes(world_->ranks.size(), bytes);
      gather_all_sizes(mine, sizes.data(), all);
    }
    void gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all) {
      std::unique_lock lock(world_->mutex);
      const Clock::time_point begun = Clock::now();
      const auto wait_until = [&](auto &&ready) {
        while (!world_->failed && !ready()) wait_for_change(lock, begun);
        check(0);
      };
      const auto number = static_cast<std::size_t>(table.rank);
      wait_until([&] { return world_->left == 0; });  // waits until all ranks have returned from the previous call
      const auto *begin = static_cast<const std::byte *>(mine);
      world_->gathered[number].assign(begin, begin + sizes[number]);
      const std::uint64_t own_round = world_->round;
      if (++world_->arrived == world_->ranks.size()) {
        world_->arrived = 0;
        world_->left = world_->ranks.size();
        ++world_->round;
        world_->changed.notify_all();
      }
      wait_until([&] { return world_->round != own_round; });
      auto *target = static_cast<std::byte *>(all);
      for (std::size_t i = 0; i < world_->gathered.size(); target += sizes[i++])
        if (sizes[i] > 0) std::memcpy(target, world_->gathered[i].data(), sizes[i]);
      if (--world_->left == 0) world_->changed.notify_all();
    }
    void barrier() { gather_all("", 0, nullptr); }

    // Always returns true, because only calls of this rank copy messages to memory of this rank. After this call, no
    // transfer uses the memory.
    bool abandon() {
      const std::lock_guard lock(world_->mutex);
      for (auto &[key, channel] : world_->channels)
        if (std::get<1>(key) == table.rank) channel.receives.clear();
      receives_.clear();
      return true;
    }
    void fail(const std::string &text) { error_ = "rank " + std::to_string(table.rank) + ": " + text; }
    const char *failure() const { return error_.c_str(); }
    void close() {}  // does nothing: ThreadRanks owns all ranks

    outcrop_transport table{};

   private:
    using Clock = std::chrono::steady_clock;

    // Throws an error if the connection is lost or if the rank `other` does not exist. The caller must hold the mutex.
    void check(int other) const {
      if (world_->failed) throw std::runtime_error("the connection is lost");
      if (other < 0 || other >= table.size) throw std::runtime_error("there is no rank " + std::to_string(other));
    }
    void wait_for_change(std::unique_lock<std::mutex> &lock, Clock::time_point begin) {
      if (table.seconds_most == 0) return world_->changed.wait(lock);
      const std::chrono::duration<double> time_left(std::chrono::duration<double>(table.seconds_most) -
                                                    (Clock::now() - begin));
      if (time_left.count() <= 0 || world_->changed.wait_for(lock, time_left) == std::cv_status::timeout)
        throw std::runtime_error("other ranks did not respond within the time of the setting seconds_most");
    }
    // Returns false if the message of `request` has not arrived. Otherwise copies the message to the memory of the
    // request, sets the request to 0, and returns true.
    bool take(outcrop_request &request) {
      if (request == 0) return true;
      check(0);
      const Receive &wanted = receives_.at(request);
      if (!wanted.message) return false;
      const Message &message = *wanted.message;
      if (message.size() != wanted.bytes)
        throw std::runtime_error("a message from rank " + std::to_string(wanted.from) + " has " +
                                 std::to_string(message.size()) + " bytes, expected " + std::to_string(wanted.bytes));
      if (wanted.bytes > 0) std::memcpy(wanted.data, message.data(), wanted.bytes);
      receives_.erase(request);
      request = 0;
      return true;
    }

    ThreadWorld *world_ = nullptr;
    std::map<outcrop_request, Receive> receives_;
    outcrop_request last_ = 0;
    std::string error_;
  };

  ThreadWorld(int size, int per_node) : ranks(static_cast<std::size_t>(size)), gathered(ranks.size()) {
    for (int rank = 0; rank < size; ++rank)
      ranks[static_cast<std::size_t>(rank)].set_up(*this, rank, per_node > 0 ? rank / per_node * per_node : 0);
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
  std::vector<Rank> ranks;
  std::map<std::tuple<int, int, int>, Channel> channels;  // the key is (sending rank, receiving rank, tag)
  // The collective call in progress. `arrived` ranks have begun the call, and `left` ranks have not yet returned from
  // it.
  std::vector<Message> gathered;
  std::size_t arrived = 0, left = 0;
  std::uint64_t round = 0;
};

ThreadRanks::ThreadRanks(int size, int per_node) : world_(std::make_unique<ThreadWorld>(size, per_node)) {}
ThreadRanks::~ThreadRanks() = default;

outcrop_transport &ThreadRanks::transport(int rank) { return world_->ranks.at(static_cast<std::size_t>(rank)).table; }

void ThreadRanks::fail() {
  const std::lock_guard lock(world_->mutex);
  world_->failed = true;
  world_->changed.notify_all();
}

}  // namespace outcrop::aggregate
