#include "outcrop/aggregate/transport/thread_transport.hpp"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>

namespace outcrop::aggregate {
namespace {

struct Receive {
  std::byte *data = nullptr;
  std::size_t bytes = 0;
  int from = 0, tag = 0;
  std::uint64_t turn = 0;  // number among the receives from that rank with that tag
};

}  // namespace

// One mutex guards everything: tests are about order and content, not about speed.
class ThreadWorld {
 public:
  // The functions of its table. They throw std::runtime_error.
  class Rank {
   public:
    void set_up(ThreadWorld &world_of_ranks, int rank, int node);

    outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag);
    outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag);
    void wait(std::span<outcrop_request> requests);
    bool test(std::span<outcrop_request> requests);
    void gather_all(const void *mine, std::size_t bytes, void *all);
    void gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all);
    void barrier() { gather_all("", 0, nullptr); }

    bool abandon();
    void fail(const std::string &text) { error = "rank " + std::to_string(table.rank) + ": " + text; }
    const char *failure() const { return error.c_str(); }
    void close() {}  // ThreadRanks frees the whole world

    ThreadWorld *world = nullptr;
    outcrop_transport table{};
    std::map<outcrop_request, Receive> receives;
    std::map<std::pair<int, int>, std::uint64_t> turns_begun;
    outcrop_request last = 0;
    std::string error;

   private:
    using Clock = std::chrono::steady_clock;

    void check(int other) const;
    void wait_for_change(std::unique_lock<std::mutex> &lock, Clock::time_point begin);
    bool take(outcrop_request &request);
    void forget_taken(const Receive &taken);
  };

  ThreadWorld(int size, int per_node) : ranks(static_cast<std::size_t>(size)), gathered(ranks.size()) {
    for (int rank = 0; rank < size; ++rank)
      ranks[static_cast<std::size_t>(rank)].set_up(*this, rank, per_node > 0 ? rank / per_node * per_node : 0);
  }

  struct Queue {
    std::uint64_t first = 0;  // turn of the first message
    std::deque<std::vector<std::byte>> messages;
  };

  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
  std::vector<Rank> ranks;
  std::map<std::tuple<int, int, int>, Queue> queues;  // from, to, tag
  // The collective call under way: the number of ranks that have arrived, and of those that have not left.
  std::vector<std::vector<std::byte>> gathered;
  std::size_t arrived = 0, left = 0;
  std::uint64_t round = 0;
};

using Rank = ThreadWorld::Rank;

// The caller holds the mutex.
void Rank::check(int other) const {
  if (world->failed) throw std::runtime_error("the connection is lost");
  if (other < 0 || other >= table.size) throw std::runtime_error("there is no rank " + std::to_string(other));
}

outcrop_request Rank::send(const std::byte *data, std::size_t bytes, int to, int tag) {
  const std::lock_guard lock(world->mutex);
  check(to);
  world->queues[{table.rank, to, tag}].messages.emplace_back(data, data + bytes);
  world->changed.notify_all();
  return 0;
}

outcrop_request Rank::receive(std::byte *data, std::size_t bytes, int from, int tag) {
  const std::lock_guard lock(world->mutex);
  check(from);
  receives[++last] = {data, bytes, from, tag, turns_begun[{from, tag}]++};
  return last;
}

// Takes the message of this request if it has come. The request is then 0.
bool Rank::take(outcrop_request &request) {
  if (request == 0) return true;
  check(0);
  const Receive wanted = receives.at(request);
  auto &queue = world->queues[{wanted.from, table.rank, wanted.tag}];
  const std::uint64_t index = wanted.turn - queue.first;
  if (index >= queue.messages.size()) return false;
  std::vector<std::byte> &message = queue.messages[index];
  if (message.size() != wanted.bytes)
    throw std::runtime_error("a message from rank " + std::to_string(wanted.from) + " has " +
                             std::to_string(message.size()) + " bytes, expected " + std::to_string(wanted.bytes));
  if (wanted.bytes > 0) std::memcpy(wanted.data, message.data(), wanted.bytes);
  message.clear();
  message.shrink_to_fit();
  receives.erase(request);
  request = 0;
  forget_taken(wanted);
  return true;
}

// Messages are removed from the front. One that was taken early waits, empty, for those before it.
void Rank::forget_taken(const Receive &taken) {
  const auto waiting = [&](std::uint64_t turn) {
    for (const auto &[number, other] : receives)
      if (other.from == taken.from && other.tag == taken.tag && other.turn == turn) return true;
    return turn >= turns_begun[{taken.from, taken.tag}];
  };
  auto &queue = world->queues[{taken.from, table.rank, taken.tag}];
  while (!queue.messages.empty() && !waiting(queue.first)) {
    queue.messages.pop_front();
    ++queue.first;
  }
}

bool Rank::test(std::span<outcrop_request> requests) {
  const std::lock_guard lock(world->mutex);
  bool all = true;
  for (outcrop_request &request : requests) all = take(request) && all;
  return all;
}

void Rank::wait_for_change(std::unique_lock<std::mutex> &lock, Clock::time_point begin) {
  if (table.seconds_most == 0) return world->changed.wait(lock);
  const std::chrono::duration<double> left(std::chrono::duration<double>(table.seconds_most) - (Clock::now() - begin));
  if (left.count() <= 0 || world->changed.wait_for(lock, left) == std::cv_status::timeout)
    throw std::runtime_error("other ranks have not come in time, which the setting seconds_most gives them");
}

void Rank::wait(std::span<outcrop_request> requests) {
  std::unique_lock lock(world->mutex);
  const Clock::time_point begin = Clock::now();
  for (outcrop_request &request : requests)
    while (!take(request)) wait_for_change(lock, begin);
}

void Rank::gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all) {
  std::unique_lock lock(world->mutex);
  const Clock::time_point begun = Clock::now();
  const auto wait_until = [&](auto &&ready) {
    while (!world->failed && !ready()) wait_for_change(lock, begun);
    check(0);
  };
  const auto number = static_cast<std::size_t>(table.rank);
  wait_until([&] { return world->left == 0; });  // in the collective call before
  const auto *begin = static_cast<const std::byte *>(mine);
  world->gathered[number].assign(begin, begin + sizes[number]);
  const std::uint64_t round = world->round;
  if (++world->arrived == world->ranks.size()) {
    world->arrived = 0;
    world->left = world->ranks.size();
    ++world->round;
    world->changed.notify_all();
  }
  wait_until([&] { return world->round != round; });
  auto *target = static_cast<std::byte *>(all);
  for (std::size_t i = 0; i < world->gathered.size(); target += sizes[i++])
    if (sizes[i] > 0) std::memcpy(target, world->gathered[i].data(), sizes[i]);
  if (--world->left == 0) world->changed.notify_all();
}

void Rank::gather_all(const void *mine, std::size_t bytes, void *all) {
  const std::vector<std::uint64_t> sizes(world->ranks.size(), bytes);
  gather_all_sizes(mine, sizes.data(), all);
}

// Messages are copied when they are sent and when they are taken, so nothing uses memory in between.
bool Rank::abandon() {
  const std::lock_guard lock(world->mutex);
  receives.clear();
  return true;
}

void Rank::set_up(ThreadWorld &world_of_ranks, int rank, int node) {
  world = &world_of_ranks;
  table.rank = rank;
  table.size = static_cast<int>(world_of_ranks.ranks.size());
  table.node = node;
  const std::string host = "node" + std::to_string(node);
  host.copy(table.host, sizeof table.host - 1);
  std::string("threads").copy(table.name, sizeof table.name - 1);
  fill_table(table, this);
}

ThreadRanks::ThreadRanks(int size, int per_node) : world_(std::make_unique<ThreadWorld>(size, per_node)) {}
ThreadRanks::~ThreadRanks() = default;

outcrop_transport &ThreadRanks::transport(int rank) { return world_->ranks.at(static_cast<std::size_t>(rank)).table; }

void ThreadRanks::fail() {
  const std::lock_guard lock(world_->mutex);
  world_->failed = true;
  world_->changed.notify_all();
}

}  // namespace outcrop::aggregate
