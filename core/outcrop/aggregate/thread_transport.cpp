#include "outcrop/aggregate/thread_transport.hpp"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

namespace outcrop::aggregate {
namespace {

struct Receive {
  std::byte *data = nullptr;
  std::size_t bytes = 0;
  int from = 0, tag = 0;
  std::uint64_t turn = 0;  // of the receives from there with that tag
};

}  // namespace

// Everything is guarded by one mutex: tests are about order and content, not about speed.
class ThreadWorld {
 public:
  struct Rank {
    ThreadWorld *world = nullptr;
    outcrop_transport table{};
    std::map<outcrop_request, Receive> receives;
    std::map<std::pair<int, int>, std::uint64_t> turns_begun;
    outcrop_request last = 0;
    std::string error;
  };

  ThreadWorld(int size, int per_node) : ranks(static_cast<std::size_t>(size)), gathered(ranks.size()) {
    for (int rank = 0; rank < size; ++rank) set_up(rank, per_node > 0 ? rank / per_node * per_node : 0);
  }

  void set_up(int rank, int node);

  struct Queue {
    std::uint64_t first = 0;  // turn of the first message
    std::deque<std::vector<std::byte>> messages;
  };

  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
  std::vector<Rank> ranks;
  std::map<std::tuple<int, int, int>, Queue> queues;  // from, to, tag
  // The collective under way: who has come, and the round number.
  std::vector<std::vector<std::byte>> gathered;
  std::size_t arrived = 0, left = 0;
  std::uint64_t round = 0;
};

namespace {

using Rank = ThreadWorld::Rank;

Rank &rank_of(void *self) { return *static_cast<Rank *>(self); }

int refuse(Rank &rank, const std::string &text) {
  rank.error = "rank " + std::to_string(rank.table.rank) + ": " + text;
  return 1;
}

int send(void *self, const void *data, std::size_t bytes, int to, int tag, outcrop_request *request) {
  Rank &rank = rank_of(self);
  const std::lock_guard lock(rank.world->mutex);
  *request = 0;
  if (rank.world->failed) return refuse(rank, "the connection is lost");
  if (to < 0 || to >= rank.table.size) return refuse(rank, "there is no rank " + std::to_string(to));
  const auto *begin = static_cast<const std::byte *>(data);
  rank.world->queues[{rank.table.rank, to, tag}].messages.emplace_back(begin, begin + bytes);
  rank.world->changed.notify_all();
  return 0;
}

int receive(void *self, void *data, std::size_t bytes, int from, int tag, outcrop_request *request) {
  Rank &rank = rank_of(self);
  const std::lock_guard lock(rank.world->mutex);
  if (rank.world->failed) return refuse(rank, "the connection is lost");
  if (from < 0 || from >= rank.table.size) return refuse(rank, "there is no rank " + std::to_string(from));
  *request = ++rank.last;
  rank.receives[*request] = {static_cast<std::byte *>(data), bytes, from, tag, rank.turns_begun[{from, tag}]++};
  return 0;
}

// Takes what has come for this request: 0 not yet, 1 done, -1 failed.
int take(Rank &rank, outcrop_request &request) {
  if (request == 0) return 1;
  if (rank.world->failed) return -refuse(rank, "the connection is lost");
  const Receive wanted = rank.receives.at(request);
  auto &queue = rank.world->queues[{wanted.from, rank.table.rank, wanted.tag}];
  const std::uint64_t index = wanted.turn - queue.first;
  if (index >= queue.messages.size()) return 0;
  std::vector<std::byte> &message = queue.messages[index];
  if (message.size() != wanted.bytes)
    return -refuse(rank, "a message from rank " + std::to_string(wanted.from) + " has " +
                             std::to_string(message.size()) + " bytes, expected " + std::to_string(wanted.bytes));
  if (wanted.bytes > 0) std::memcpy(wanted.data, message.data(), wanted.bytes);
  message.clear();
  message.shrink_to_fit();
  rank.receives.erase(request);
  request = 0;
  // Messages are forgotten from the front; one taken early waits, empty, for those before it.
  const auto waiting = [&](std::uint64_t turn) {
    for (const auto &[number, other] : rank.receives)
      if (other.from == wanted.from && other.tag == wanted.tag && other.turn == turn) return true;
    return turn >= rank.turns_begun[{wanted.from, wanted.tag}];
  };
  while (!queue.messages.empty() && !waiting(queue.first)) {
    queue.messages.pop_front();
    ++queue.first;
  }
  return 1;
}

int test(void *self, outcrop_request *requests, std::size_t count, int *done) {
  Rank &rank = rank_of(self);
  const std::lock_guard lock(rank.world->mutex);
  *done = 1;
  for (std::size_t i = 0; i < count; ++i) {
    const int taken = take(rank, requests[i]);
    if (taken < 0) return 1;
    if (taken == 0) *done = 0;
  }
  return 0;
}

int wait(void *self, outcrop_request *requests, std::size_t count) {
  Rank &rank = rank_of(self);
  std::unique_lock lock(rank.world->mutex);
  for (std::size_t i = 0; i < count; ++i)
    for (int taken = 0; (taken = take(rank, requests[i])) != 1; rank.world->changed.wait(lock))
      if (taken < 0) return 1;
  return 0;
}

int gather_all_sizes(void *self, const void *mine, const std::uint64_t *sizes, void *all) {
  Rank &rank = rank_of(self);
  ThreadWorld &world = *rank.world;
  std::unique_lock lock(world.mutex);
  const auto wait_until = [&](auto &&ready) {
    world.changed.wait(lock, [&] { return world.failed || ready(); });
    return !world.failed;
  };
  const auto number = static_cast<std::size_t>(rank.table.rank);
  if (!wait_until([&] { return world.left == 0; })) return refuse(rank, "the connection is lost");  // the last one's
  const auto *begin = static_cast<const std::byte *>(mine);
  world.gathered[number].assign(begin, begin + sizes[number]);
  const std::uint64_t round = world.round;
  if (++world.arrived == world.ranks.size()) {
    world.arrived = 0;
    world.left = world.ranks.size();
    ++world.round;
    world.changed.notify_all();
  }
  if (!wait_until([&] { return world.round != round; })) return refuse(rank, "the connection is lost");
  auto *target = static_cast<std::byte *>(all);
  for (std::size_t i = 0; i < world.gathered.size(); target += sizes[i++])
    if (sizes[i] > 0) std::memcpy(target, world.gathered[i].data(), sizes[i]);
  if (--world.left == 0) world.changed.notify_all();
  return 0;
}

int gather_all(void *self, const void *mine, std::size_t bytes, void *all) {
  const std::vector<std::uint64_t> sizes(rank_of(self).world->ranks.size(), bytes);
  return gather_all_sizes(self, mine, sizes.data(), all);
}

int barrier(void *self) { return gather_all(self, "", 0, nullptr); }

const char *error(void *self) { return rank_of(self).error.c_str(); }

}  // namespace

void ThreadWorld::set_up(int rank, int node) {
  Rank &made = ranks[static_cast<std::size_t>(rank)];
  made.world = this;
  outcrop_transport &table = made.table;
  table.self = &made;
  table.rank = rank;
  table.size = static_cast<int>(ranks.size());
  table.node = node;
  const std::string host = "node" + std::to_string(node);
  host.copy(table.host, sizeof table.host - 1);
  std::string("threads").copy(table.name, sizeof table.name - 1);
  table.send = send;
  table.receive = receive;
  table.wait = wait;
  table.test = test;
  table.gather_all = gather_all;
  table.gather_all_sizes = gather_all_sizes;
  table.barrier = barrier;
  table.error = error;
  table.free = [](void *) {};
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
