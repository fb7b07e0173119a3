// These tests check links between neighbours. Messages must arrive whole and in order. Damage must be detected. A rank
// must notice that its neighbour has ended. A blocked call must end soon after cancel().
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/link.hpp"
#include "relay.hpp"

namespace outcrop {
namespace {

std::vector<std::byte> noise(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte &byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Calls `work`. If `work` throws an error of the type `Error`, returns the message of the error. If `work` throws no
// such error, returns "".
template <typename Error, typename Work>
std::string message_of(const Work &work) {
  try {
    work();
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

// Sends messages of many lengths in both directions at the same time.
void exchange(Link &left, Link &right) {
  const std::size_t lengths[] = {0, 1, 5, 4096, 70'000, 0, 262'144, 262'145, 1'500'000, 3};
  const auto send = [&](Link &link, unsigned seed) {
    for (const std::size_t length : lengths) link.send(noise(length, seed++));
  };
  const auto receive = [&](Link &link, unsigned seed) {
    for (const std::size_t length : lengths) {
      std::vector<std::byte> bytes(length);
      link.receive(bytes);
      EXPECT_EQ(bytes, noise(length, seed++));
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { send(left, 1); });
  threads.emplace_back([&] { send(right, 100); });
  threads.emplace_back([&] { receive(left, 100); });
  receive(right, 1);
  for (std::thread &thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const std::size_t length : lengths) sum += length;
  for (const Link *link : {&left, &right}) {
    EXPECT_EQ(link->bytes_sent(), sum);
    EXPECT_EQ(link->bytes_received(), sum);
  }
}

// Divides the messages into batches of random length, and calls `transfer` for each batch. Returns the number of
// complete messages.
template <typename Transfer>
std::size_t in_batches(std::vector<std::vector<std::byte>> &messages, unsigned seed, const Transfer &transfer) {
  std::mt19937 random(seed);
  std::size_t complete = 0;
  for (std::size_t first = 0; first < messages.size();) {
    const std::size_t most = random() % 3 == 0 ? Link::max_batch : 1 + random() % 7;
    std::vector<std::span<std::byte>> batch;
    for (std::size_t i = first; i < std::min(messages.size(), first + most); ++i) batch.emplace_back(messages[i]);
    transfer(batch, [&](std::size_t count) { complete += count; });
    first += batch.size();
    EXPECT_EQ(complete, first);
  }
  return complete;
}

// Returns many messages. Most messages are short, and some messages are empty.
std::vector<std::vector<std::byte>> many_messages(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<std::byte>> messages;
  for (unsigned i = 0; i < 300; ++i) {
    const std::size_t most = random() % 20 == 0 ? 300'000 : 3000;
    messages.push_back(noise(random() % 9 == 0 ? 0 : random() % most, seed + i));
  }
  return messages;
}

// The sender and the receiver divide the messages into different batches.
void exchange_batches(Link &left, Link &right, unsigned seed) {
  const auto send = [](Link &link, unsigned first, unsigned division) {
    std::vector<std::vector<std::byte>> messages = many_messages(first);
    in_batches(messages, division, [&](const auto &batch, const auto &done) { link.send(batch, done); });
  };
  const auto receive = [](Link &link, unsigned first, unsigned division) {
    const std::vector<std::vector<std::byte>> expected = many_messages(first);
    std::vector<std::vector<std::byte>> messages = expected;
    for (std::vector<std::byte> &one : messages) std::ranges::fill(one, std::byte{0});
    in_batches(messages, division, [&](const auto &batch, const auto &done) { link.receive(batch, done); });
    EXPECT_EQ(messages, expected);
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { send(left, seed, seed + 1); });
  threads.emplace_back([&] { send(right, seed + 50, seed + 2); });
  threads.emplace_back([&] { receive(left, seed + 50, seed + 3); });
  receive(right, seed, seed + 4);
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(left.bytes_sent(), right.bytes_received());
  EXPECT_EQ(right.bytes_sent(), left.bytes_received());
}

TEST(Link, TakesBatches) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const SocketPair sockets;
    for (const int one : {sockets.first.get(), sockets.second.get()})
      ASSERT_EQ(fcntl(one, F_SETFL, seed % 2 == 0 ? 0 : O_NONBLOCK), 0);
    Link left(sockets.first.get(), "rank 1"), right(sockets.second.get(), "rank 0");
    exchange_batches(left, right, 100 * seed);
  }
}

TEST(Link, TakesBatchesThatArriveInParts) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const Relay relay(seed, std::chrono::microseconds(200));
    Link left(relay.left(), "rank 1"), right(relay.right(), "rank 0");
    exchange_batches(left, right, 100 * seed);
  }
}

// A message is reported as soon as it is complete, although later messages of the batch have not arrived.
TEST(Link, ReportsMessagesBeforeTheirBatchIsComplete) {
  const SocketPair sockets;
  Link left(sockets.first.get(), "rank 1"), right(sockets.second.get(), "rank 0");
  std::vector<std::vector<std::byte>> sent{noise(1000, 1), noise(50, 2), noise(70, 3)}, received = sent;
  std::atomic<std::size_t> complete{0};
  std::thread receiving([&] {
    std::vector<std::span<std::byte>> batch(received.begin(), received.end());
    right.receive(batch, [&](std::size_t count) { complete += count; });
  });
  for (std::size_t i = 0; i < sent.size(); ++i) {
    left.send(sent[i]);
    while (complete <= i) std::this_thread::yield();
    EXPECT_EQ(complete, i + 1);
  }
  receiving.join();
  EXPECT_EQ(received, sent);
}

TEST(Link, NoticesDamageInABatch) {
  constexpr std::size_t length = 1000, count = 10;
  for (const std::int64_t damaged : {0L, 1003L, 4500L, 10039L}) {
    const Relay relay(1, std::chrono::microseconds(0), damaged);
    Link left(relay.left(), "rank 4"), right(relay.right(), "rank 3");
    std::vector<std::vector<std::byte>> sent, received(count, std::vector<std::byte>(length));
    for (unsigned i = 0; i < count; ++i) sent.push_back(noise(length, i));
    left.send(std::vector<std::span<std::byte>>(sent.begin(), sent.end()), [](std::size_t) {});
    const std::vector<std::span<std::byte>> batch(received.begin(), received.end());
    EXPECT_EQ(message_of<CorruptionError>([&] { right.receive(batch, [](std::size_t) {}); }),
              "a message from rank 3 is damaged: checksum mismatch");
    EXPECT_EQ(right.bytes_received(), static_cast<std::uint64_t>(damaged) / (length + 4) * length);
  }
}

// The neighbour ends in the middle of a batch. The messages that have arrived before the end are complete.
TEST(Link, NoticesThatTheNeighbourGoesDuringABatch) {
  constexpr std::size_t length = 1000, count = 10;
  for (const std::size_t arrived : {0UL, 1UL, 999UL, 1002UL, 1004UL, 1005UL, 5500UL, 10'039UL}) {
    SocketPair sockets, wire;
    std::vector<std::vector<std::byte>> sent, received(count, std::vector<std::byte>(length));
    for (unsigned i = 0; i < count; ++i) sent.push_back(noise(length, i));
    {
      Link sender(wire.first.get(), "rank 3");
      sender.send(std::vector<std::span<std::byte>>(sent.begin(), sent.end()), [](std::size_t) {});
    }
    std::vector<std::byte> bytes(arrived);
    ASSERT_EQ(recv(wire.second.get(), bytes.data(), arrived, MSG_WAITALL), static_cast<ssize_t>(arrived));
    ASSERT_EQ(::send(sockets.second.get(), bytes.data(), arrived, 0), static_cast<ssize_t>(arrived));
    sockets.second.reset();
    Link left(sockets.first.get(), "rank 3");
    std::size_t complete = 0;
    const std::vector<std::span<std::byte>> batch(received.begin(), received.end());
    EXPECT_EQ(message_of<CommunicationError>([&] { left.receive(batch, [&](std::size_t more) { complete += more; }); }),
              "rank 3 has gone");
    EXPECT_EQ(complete, arrived / (length + 4));
    for (std::size_t i = 0; i < complete; ++i) EXPECT_EQ(received[i], sent[i]);
    EXPECT_EQ(message_of<CommunicationError>([&] { left.send(batch, [](std::size_t) {}); }), "rank 3 has gone");
  }
}

TEST(Link, BatchesEndWhenCancelled) {
  const SocketPair sockets;
  Link left(sockets.first.get(), "rank 3"), right(sockets.second.get(), "rank 2");
  std::vector<std::vector<std::byte>> sent(20, std::vector<std::byte>(1'000'000)), received(20, noise(10, 1));
  const auto batch = [](std::vector<std::vector<std::byte>> &messages) {
    return std::vector<std::span<std::byte>>(messages.begin(), messages.end());
  };
  const std::string expected = "the connection to rank 3 was cancelled";
  auto sending = std::async(std::launch::async,
                            [&] { return message_of<Cancelled>([&] { left.send(batch(sent), [](std::size_t) {}); }); });
  auto receiving = std::async(std::launch::async, [&] {
    return message_of<Cancelled>([&] { left.receive(batch(received), [](std::size_t) {}); });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  left.cancel();
  EXPECT_EQ(sending.get(), expected);
  EXPECT_EQ(receiving.get(), expected);
}

TEST(Link, TakesMessagesInBothDirectionsAtOnce) {
  std::optional<SocketPair> sockets(std::in_place);
  Link left(sockets->first.get(), "rank 1"), right(sockets->second.get(), "rank 0");
  sockets.reset();  // each link has its own duplicate of the descriptor
  exchange(left, right);
}

TEST(Link, TakesMessagesThatArriveInParts) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const Relay relay(seed, std::chrono::microseconds(200));
    Link left(relay.left(), "rank 1"), right(relay.right(), "rank 0");
    exchange(left, right);
  }
}

TEST(Link, TakesSocketsThatDoNotBlock) {
  const SocketPair sockets;
  for (const int one : {sockets.first.get(), sockets.second.get()}) ASSERT_EQ(fcntl(one, F_SETFL, O_NONBLOCK), 0);
  Link left(sockets.first.get(), "rank 1"), right(sockets.second.get(), "rank 0");
  exchange(left, right);
}

// Connects two sockets over the network of this machine. Returns false if this machine has no network.
bool connect_by_tcp(Descriptor &first, Descriptor &second) {
  Descriptor listening(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto *const any = reinterpret_cast<sockaddr *>(&address);
  if (bind(listening.get(), any, length) != 0 || listen(listening.get(), 1) != 0) return false;
  if (getsockname(listening.get(), any, &length) != 0) return false;
  first.reset(socket(AF_INET, SOCK_STREAM, 0));
  if (connect(first.get(), any, length) != 0) return false;
  second.reset(accept(listening.get(), nullptr, nullptr));
  return second.get() >= 0;
}

TEST(Link, TakesSocketsOfTheNetwork) {
  Descriptor first, second;
  if (!connect_by_tcp(first, second)) GTEST_SKIP() << "this machine has no network";
  Link left(first.get(), "rank 1"), right(second.get(), "rank 0");
  exchange(left, right);
}

TEST(Link, NoticesDamageOnTheWay) {
  constexpr std::size_t length = 300'000;
  for (const std::int64_t damaged : {0L, 150'000L, 299'999L, 300'000L, 300'003L}) {
    const Relay relay(1, std::chrono::microseconds(0), damaged);
    Link left(relay.left(), "rank 4"), right(relay.right(), "rank 3");
    const std::vector<std::byte> sent = noise(length, 1);
    std::thread sender([&] { left.send(sent); });
    std::vector<std::byte> bytes(length);
    EXPECT_EQ(message_of<CorruptionError>([&] { right.receive(bytes); }),
              "a message from rank 3 is damaged: checksum mismatch")
        << damaged;
    EXPECT_EQ(right.bytes_received(), 0);
    sender.join();
  }
}

TEST(Link, NoticesThatTheNeighbourHasGone) {
  SocketPair sockets;
  Link left(sockets.first.get(), "rank 3");
  {
    Link right(sockets.second.get(), "rank 2");
    sockets.second.reset();
    right.send(noise(100, 1));
  }
  std::vector<std::byte> bytes(100);
  left.receive(bytes);  // this message was complete
  EXPECT_EQ(bytes, noise(100, 1));
  EXPECT_EQ(message_of<CommunicationError>([&] { left.receive(bytes); }), "rank 3 has gone");
  EXPECT_EQ(message_of<CommunicationError>([&] { left.send(bytes); }), "rank 3 has gone");
}

TEST(Link, NoticesThatTheNeighbourGoesDuringAMessage) {
  SocketPair sockets;
  Link left(sockets.first.get(), "rank 3");
  std::vector<std::byte> bytes(100'000'000);
  auto sending =
      std::async(std::launch::async, [&] { return message_of<CommunicationError>([&] { left.send(bytes); }); });
  std::vector<std::byte> some(1'000'000);
  ASSERT_GT(recv(sockets.second.get(), some.data(), some.size(), 0), 0);
  sockets.second.reset();
  EXPECT_EQ(sending.get(), "rank 3 has gone");
}

TEST(Link, CallsEndWhenCancelled) {
  for (const bool blocking : {true, false}) {
    const SocketPair sockets;
    ASSERT_EQ(fcntl(sockets.first.get(), F_SETFL, blocking ? 0 : O_NONBLOCK), 0);
    Link left(sockets.first.get(), "rank 3"), right(sockets.second.get(), "rank 2");
    std::vector<std::byte> sent(100'000'000), received(1);
    const std::string expected = "the connection to rank 3 was cancelled";
    auto sending = std::async(std::launch::async, [&] { return message_of<Cancelled>([&] { left.send(sent); }); });
    auto receiving =
        std::async(std::launch::async, [&] { return message_of<Cancelled>([&] { left.receive(received); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    left.cancel();
    EXPECT_EQ(sending.get(), expected);
    EXPECT_EQ(receiving.get(), expected);
    EXPECT_EQ(message_of<Cancelled>([&] { left.send(received); }), expected);
    EXPECT_EQ(message_of<Cancelled>([&] { left.receive(received); }), expected);
    EXPECT_EQ(message_of<CommunicationError>([&] { right.receive(sent); }), "rank 2 has gone");
  }
}

// The neighbour cancels its link, but does not close its socket. A rank that only sends must also get an error.
TEST(Link, SendsEndWhenTheNeighbourCancels) {
  for (const bool by_tcp : {false, true}) {
    SocketPair sockets;
    if (by_tcp && !connect_by_tcp(sockets.first, sockets.second)) GTEST_SKIP() << "this machine has no network";
    Link left(sockets.first.get(), "rank 3"), right(sockets.second.get(), "rank 2");
    const std::vector<std::byte> sent(100'000'000);
    auto sending =
        std::async(std::launch::async, [&] { return message_of<CommunicationError>([&] { left.send(sent); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    right.cancel();
    EXPECT_EQ(sending.get(), "rank 3 has gone");
  }
}

TEST(Link, RefusesOtherDescriptors) {
  const Descriptor file(open("/dev/null", O_RDWR)), unconnected(socket(AF_UNIX, SOCK_STREAM, 0));
  for (const int one : {-1, file.get(), unconnected.get()}) EXPECT_THROW(Link(one, "rank 1"), InputError) << one;
}

}  // namespace
}  // namespace outcrop
