#include "transport_contract.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace outcrop::aggregate {
namespace {

using Bytes = std::vector<std::byte>;

void require(bool kept, const std::string &promise) {
  if (!kept) throw std::runtime_error("broken promise: " + promise);
}

/// Returns random bytes that are different for each seed.
Bytes content(std::size_t bytes, unsigned seed) {
  std::minstd_rand random(seed + 1);
  Bytes made(bytes);
  for (std::byte &one : made) one = static_cast<std::byte>(random() >> 8);
  return made;
}

/// Calls the functions of a transport. The test case fails if a function of the transport fails.
class Rank {
 public:
  explicit Rank(outcrop_transport &transport)
      : rank(transport.rank), size(transport.size), ranks(static_cast<std::size_t>(size)), transport_(transport) {}

  const int rank, size;
  const std::size_t ranks;

  outcrop_request send(const Bytes &data, int to, int tag = 0) {
    outcrop_request request = 0;
    succeed(transport_.send(transport_.self, data.data(), data.size(), to, tag, &request));
    return request;
  }
  outcrop_request receive(Bytes &data, int from, int tag = 0) {
    outcrop_request request = 0;
    succeed(transport_.receive(transport_.self, data.data(), data.size(), from, tag, &request));
    return request;
  }
  void wait(std::span<outcrop_request> requests) {
    succeed(transport_.wait(transport_.self, requests.data(), requests.size()));
    require(std::ranges::count(requests, 0U) == std::ssize(requests), "wait() sets all requests to 0");
  }
  bool test(std::span<outcrop_request> requests) {
    int done = -1;
    succeed(transport_.test(transport_.self, requests.data(), requests.size(), &done));
    const bool all = std::ranges::count(requests, 0U) == std::ssize(requests);
    require(done == (all ? 1 : 0), "test() returns true when all requests are 0");
    return all;
  }
  Bytes gather_all(const Bytes &mine) {
    Bytes all(mine.size() * ranks);
    succeed(transport_.gather_all(transport_.self, mine.data(), mine.size(), all.data()));
    return all;
  }
  Bytes gather_all_sizes(const Bytes &mine, const std::vector<std::uint64_t> &sizes) {
    std::uint64_t sum = 0;
    for (const std::uint64_t size_of_rank : sizes) sum += size_of_rank;
    Bytes all(sum);
    succeed(transport_.gather_all_sizes(transport_.self, mine.data(), sizes.data(), all.data()));
    return all;
  }
  void barrier() { succeed(transport_.barrier(transport_.self)); }

  int other(int steps) const { return (rank + steps % size + size) % size; }

 private:
  void succeed(int failed) {
    if (failed != 0)
      throw std::runtime_error(std::string("the transport failed: ") + transport_.error(transport_.self));
  }
  outcrop_transport &transport_;
};

template <typename Value>
std::vector<Value> gather_values(Rank &rank, const Value &mine) {
  Bytes bytes(sizeof mine);
  std::memcpy(bytes.data(), &mine, sizeof mine);
  const Bytes all = rank.gather_all(bytes);
  std::vector<Value> values(rank.ranks);
  std::memcpy(values.data(), all.data(), all.size());
  return values;
}

void says_who_it_is(outcrop_transport &transport) {
  Rank rank(transport);
  require(rank.size > 0 && rank.rank >= 0 && rank.rank < rank.size, "ranks are 0 to size - 1");
  require(transport.name[0] != 0, "the transport has a name");
  const std::vector<int> found = gather_values(rank, rank.rank), nodes = gather_values(rank, transport.node);
  std::array<char, sizeof transport.host> host{};
  std::memcpy(host.data(), transport.host, host.size() - 1);
  const auto hosts = gather_values(rank, host);
  for (std::size_t i = 0; i < rank.ranks; ++i) {
    require(found[i] == static_cast<int>(i), "values are gathered in the order of ranks");
    require(nodes[i] >= 0 && nodes[i] <= found[i], "the number of a node is its lowest rank");
    const std::size_t first = static_cast<std::size_t>(nodes[i]);
    require(nodes[first] == nodes[i] && std::string(hosts[first].data()) == hosts[i].data(), "ranks of a node agree");
    require(hosts[i][0] != 0, "nodes have names");
  }
}

void messages_keep_their_order(outcrop_transport &transport) {
  Rank rank(transport);
  constexpr int count = 40;
  std::vector<Bytes> sent, received;
  std::vector<outcrop_request> requests;
  sent.reserve(rank.ranks * count);
  received.reserve(rank.ranks * count);
  const auto bytes_of = [](int message) {
    return static_cast<std::size_t>(message % 7 == 3 ? 0 : message * message * 20);
  };
  const auto seed_of = [&](int from, int to, int message) {
    return static_cast<unsigned>((from * rank.size + to) * count + message);
  };
  for (int message = 0; message < count; ++message) {
    for (int one = 0; one < rank.size; ++one) {
      requests.push_back(
          rank.send(sent.emplace_back(content(bytes_of(message), seed_of(rank.rank, one, message))), one));
      requests.push_back(rank.receive(received.emplace_back(bytes_of(message)), one));
    }
  }
  rank.wait(requests);
  for (int message = 0; message < count; ++message)
    for (int one = 0; one < rank.size; ++one)
      require(received[static_cast<std::size_t>(message * rank.size + one)] ==
                  content(bytes_of(message), seed_of(one, rank.rank, message)),
              "messages of one tag arrive in the order in which they were sent, empty ones among them");
}

void tags_are_apart(outcrop_transport &transport) {
  Rank rank(transport);
  const std::vector<int> tags = {0, 1, 77, 32767};
  std::vector<Bytes> sent(tags.size()), received(tags.size());
  std::vector<outcrop_request> requests;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    sent[i] = content(1000 * (i + 1), static_cast<unsigned>(tags[i]));
    requests.push_back(rank.send(sent[i], rank.other(1), tags[i]));
  }
  for (std::size_t i = tags.size(); i-- > 0;) {
    received[i].resize(1000 * (i + 1));
    requests.push_back(rank.receive(received[i], rank.other(-1), tags[i]));
  }
  rank.wait(requests);
  require(sent == received, "a receive takes only messages with its tag");
}

void many_may_be_under_way(outcrop_transport &transport) {
  Rank rank(transport);
  constexpr std::size_t count = 600;
  std::vector<Bytes> sent(count), received(count);
  std::vector<outcrop_request> requests(2 * count, 0);
  std::minstd_rand random(7);  // the values are the same on all ranks
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    order[i] = i;
    received[i].resize(random() % 3000);
    sent[i] = content(received[i].size(), static_cast<unsigned>(i));
  }
  std::ranges::shuffle(order, random);
  for (const std::size_t i : order)
    requests[2 * i] = rank.receive(received[i], rank.other(-static_cast<int>(i)), static_cast<int>(i));
  std::ranges::shuffle(order, random);
  for (const std::size_t i : order)
    requests[2 * i + 1] = rank.send(sent[i], rank.other(static_cast<int>(i)), static_cast<int>(i));
  std::ranges::shuffle(requests, random);
  rank.wait(std::span(requests).first(count / 2));
  rank.wait(requests);
  require(sent == received, "messages are complete for any order of begins and waits");
}

void large_messages_are_whole(outcrop_transport &transport) {
  Rank rank(transport);
  for (const std::size_t bytes : {std::size_t{999}, std::size_t{1000}, std::size_t{1001}, std::size_t{5'000'001}}) {
    const Bytes sent = content(bytes, static_cast<unsigned>(rank.rank));
    Bytes received(bytes);
    outcrop_request both[] = {rank.send(sent, rank.other(1)), rank.receive(received, rank.other(-1))};
    rank.wait(both);
    require(received == content(bytes, static_cast<unsigned>(rank.other(-1))), "large messages are complete");
  }
}

void looking_does_not_wait(outcrop_transport &transport) {
  Rank rank(transport);
  const Bytes sent = content(3000, 1);
  Bytes early(3000), late(3000);
  require(rank.test({}), "a test of no requests returns true");
  std::array<outcrop_request, 2> requests = {rank.receive(early, rank.other(-1), 1),
                                             rank.receive(late, rank.other(-1), 2)};
  require(!rank.test(requests), "a message cannot arrive before it was sent");
  rank.barrier();
  outcrop_request sending = rank.send(sent, rank.other(1), 1);
  while (requests[0] != 0) require(!rank.test(requests), "a finished request becomes 0 while another is in progress");
  rank.wait({&sending, 1});
  require(requests[1] != 0 && early == sent, "one request is finished, the other is not");
  rank.barrier();
  sending = rank.send(sent, rank.other(1), 2);
  while (!rank.test(requests)) {
  }
  while (!rank.test({&sending, 1})) {
  }
  require(late == sent, "a message is complete after test()");
  require(rank.test(requests), "finished requests stay finished");
  rank.wait(requests);
}

void all_is_gathered(outcrop_transport &transport) {
  Rank rank(transport);
  for (const std::size_t bytes : {0UL, 1UL, 8UL, 333UL, 100'000UL}) {
    const Bytes all = rank.gather_all(content(bytes, static_cast<unsigned>(rank.rank)));
    for (std::size_t i = 0; i < rank.ranks; ++i)
      require(std::ranges::equal(std::span(all).subspan(i * bytes, bytes), content(bytes, static_cast<unsigned>(i))),
              "everyone gets the bytes of every rank");
  }
}

void sizes_may_differ(outcrop_transport &transport) {
  Rank rank(transport);
  for (const std::size_t most : {0UL, 3UL, 500UL, 50'000UL}) {
    std::vector<std::uint64_t> sizes(rank.ranks);
    for (std::size_t i = 0; i < rank.ranks; ++i) sizes[i] = i % 3 == 1 ? 0 : most * (i + 1) / rank.ranks;
    const Bytes all = rank.gather_all_sizes(
        content(sizes[static_cast<std::size_t>(rank.rank)], static_cast<unsigned>(rank.rank)), sizes);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < rank.ranks; begin += sizes[i++])
      require(std::ranges::equal(std::span(all).subspan(begin, sizes[i]), content(sizes[i], static_cast<unsigned>(i))),
              "parts of different sizes follow one another in the order of ranks");
  }
}

void no_rank_leaves_a_barrier_before_all_have_come(outcrop_transport &transport) {
  Rank rank(transport);  // all ranks are on one machine, so they have the same clock
  using Clock = std::chrono::steady_clock;
  for (int late = 0; late < rank.size; ++late) {
    if (rank.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto came = Clock::now().time_since_epoch().count();
    rank.barrier();
    const auto left = Clock::now().time_since_epoch().count();
    require(std::ranges::max(gather_values(rank, came)) <= std::ranges::min(gather_values(rank, left)),
            "no rank leaves a barrier before all have come");
  }
}

void collective_calls_and_messages_do_not_meet(outcrop_transport &transport) {
  Rank rank(transport);
  const Bytes sent = content(100'000, 5);
  Bytes received(sent.size());
  outcrop_request receiving = rank.receive(received, rank.other(-1), 0);
  all_is_gathered(transport);
  sizes_may_differ(transport);
  outcrop_request sending = rank.send(sent, rank.other(1), 0);
  all_is_gathered(transport);
  sizes_may_differ(transport);
  rank.barrier();
  rank.wait({&receiving, 1});
  rank.wait({&sending, 1});
  require(received == sent, "messages are independent of collective calls");
}

void require_failure(outcrop_transport &transport, int returned, const std::string &words) {
  require(returned != 0, words + ": a failure is reported");
  const std::string text = transport.error(transport.self);
  require(text.find("rank " + std::to_string(transport.rank)) != std::string::npos,
          "a failure names the rank: " + text);
  require(text.find('\n') == std::string::npos, "a failure is described in one line: " + text);
  require(text.find(words) != std::string::npos, "the text of a failure contains " + words + ": " + text);
}

void no_rank_sends_beyond_the_last_rank(outcrop_transport &transport) {
  outcrop_request request = 0;
  const Bytes data(10);
  require_failure(transport, transport.send(transport.self, data.data(), data.size(), transport.size, 0, &request),
                  "rank " + std::to_string(transport.size));
}

void receive_other_than_sent(outcrop_transport &transport, std::size_t sent_bytes, std::size_t received_bytes) {
  Rank rank(transport);
  const Bytes sent(sent_bytes);
  Bytes received(received_bytes);
  outcrop_request sending = rank.send(sent, rank.other(1)), receiving = rank.receive(received, rank.other(-1));
  require_failure(transport, transport.wait(transport.self, &receiving, 1),
                  "from rank " + std::to_string(rank.other(-1)));
  static_cast<void>(sending);
}

void longer_messages_are_refused(outcrop_transport &transport) { receive_other_than_sent(transport, 100, 10); }

void shorter_messages_are_refused(outcrop_transport &transport) { receive_other_than_sent(transport, 10, 100); }

void what_has_failed_can_be_freed_with_messages_under_way(outcrop_transport &transport) {
  Rank rank(transport);
  Bytes never(1000);
  rank.receive(never, rank.other(1), 3);
  no_rank_sends_beyond_the_last_rank(transport);
}

void what_is_abandoned_is_not_written_to(outcrop_transport &transport) {
  Rank rank(transport);
  {
    Bytes never(100'000);
    rank.receive(never, rank.other(1), 3);
    rank.barrier();
    require(transport.abandon(transport.self) == 0, "after abandon(), the memory of a receive can be freed");
  }
  require(transport.abandon(transport.self) == 0, "a second abandon() is harmless");
}

void a_limit_to_waiting_is_kept(outcrop_transport &transport) {
  Rank rank(transport);
  Bytes never(1000);
  transport.seconds_most = 0.05;
  outcrop_request receiving = rank.receive(never, rank.other(1), 3);
  require_failure(transport, transport.wait(transport.self, &receiving, 1), "seconds_most");
}

#define OUTCROP_CASE(function) \
  ContractCase { #function, function, false }
#define OUTCROP_FAILING_CASE(function) \
  ContractCase { #function, function, true }
constexpr ContractCase cases[] = {
    OUTCROP_CASE(says_who_it_is),
    OUTCROP_CASE(messages_keep_their_order),
    OUTCROP_CASE(tags_are_apart),
    OUTCROP_CASE(many_may_be_under_way),
    OUTCROP_CASE(large_messages_are_whole),
    OUTCROP_CASE(looking_does_not_wait),
    OUTCROP_CASE(all_is_gathered),
    OUTCROP_CASE(sizes_may_differ),
    OUTCROP_CASE(no_rank_leaves_a_barrier_before_all_have_come),
    OUTCROP_CASE(collective_calls_and_messages_do_not_meet),
    OUTCROP_FAILING_CASE(no_rank_sends_beyond_the_last_rank),
    OUTCROP_FAILING_CASE(longer_messages_are_refused),
    OUTCROP_FAILING_CASE(shorter_messages_are_refused),
    OUTCROP_FAILING_CASE(what_has_failed_can_be_freed_with_messages_under_way),
    OUTCROP_FAILING_CASE(what_is_abandoned_is_not_written_to),
    OUTCROP_FAILING_CASE(a_limit_to_waiting_is_kept),
};
#undef OUTCROP_CASE
#undef OUTCROP_FAILING_CASE

}  // namespace

std::span<const ContractCase> contract_cases() { return cases; }

}  // namespace outcrop::aggregate
