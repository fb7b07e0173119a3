// These tests check the pump. Every byte must arrive, even after short or interrupted transfers. If a request names
// another request, it must wait until the other request is finished. The first error must stop the pump. The error
// message must name the place in the file.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/pump.hpp"
#include "scripted_store.hpp"

namespace outcrop {
namespace {

constexpr std::size_t file_bytes = 1 << 16;

Request read_of(std::vector<std::byte> &memory, std::size_t offset, Ticket after = no_ticket) {
  return Request{false, 0, offset, memory.data(), memory.size(), after};
}

Request write_of(std::vector<std::byte> &memory, std::size_t offset, Ticket after = no_ticket) {
  return Request{true, 0, offset, memory.data(), memory.size(), after};
}

std::vector<std::byte> part(const std::vector<std::byte> &bytes, std::size_t begin, std::size_t length) {
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(length)};
}

// This test reads and writes at random places. Each request waits for the previous request at the same place. The bytes
// must be the same as after the same operations on a plain array.
void move_at_random(ScriptedStore &store, const PumpOptions &options) {
  constexpr std::size_t places = 8, place_bytes = file_bytes / places;
  std::vector<std::byte> expected = store.bytes();
  std::vector<std::vector<std::byte>> memory(places, std::vector<std::byte>(place_bytes));
  std::vector<Ticket> last_use(places, no_ticket);
  std::mt19937 random(3);
  std::uint64_t read = 0, written = 0;
  Pump pump(store, options);
  for (int step = 0; step < 200; ++step) {
    const std::size_t place = random() % places;
    if (random() % 2 == 0) {
      pump.wait(last_use[place]);
      for (std::byte &byte : memory[place]) byte = static_cast<std::byte>(random());
      std::ranges::copy(memory[place], expected.begin() + static_cast<std::ptrdiff_t>(place * place_bytes));
      last_use[place] = pump.submit(write_of(memory[place], place * place_bytes));
      written += place_bytes;
    } else {
      last_use[place] = pump.submit(read_of(memory[place], place * place_bytes, last_use[place]));
      read += place_bytes;
    }
  }
  pump.drain();
  EXPECT_EQ(store.bytes(), expected);
  for (std::size_t place = 0; place < places; ++place) {
    ASSERT_NE(last_use[place], no_ticket);
    EXPECT_EQ(memory[place], part(expected, place * place_bytes, place_bytes));
  }
  EXPECT_EQ(pump.bytes_read(), read);
  EXPECT_EQ(pump.bytes_written(), written);
}

TEST(Pump, MovesEveryByteInPieces) {
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{4096}, std::size_t{1} << 20}) {
    ScriptedStore store(file_bytes);
    move_at_random(store, {.chunk_bytes = piece, .in_flight_bytes = 4 * piece, .capacity = 5});
  }
}

TEST(Pump, GoesOnAfterShortTransfers) {
  std::mt19937 random(5);
  ScriptedStore store(file_bytes, 3, [&](const Transfer &transfer, std::size_t) {
    return static_cast<std::int64_t>(1 + random() % transfer.length);
  });
  move_at_random(store, {.chunk_bytes = 4096, .in_flight_bytes = 1 << 15, .capacity = 16});
}

TEST(Pump, RepeatsWhatWasOnlyInterrupted) {
  ScriptedStore store(file_bytes, 64, [](const Transfer &transfer, std::size_t number) -> std::int64_t {
    if (number % 5 == 1) return -EINTR;
    if (number % 7 == 1) return -EAGAIN;
    return static_cast<std::int64_t>(transfer.length);
  });
  move_at_random(store, {.chunk_bytes = 4096, .in_flight_bytes = 1 << 15, .capacity = 16});
}

TEST(Pump, JoinsShortRequestsThatFollowEachOther) {
  ScriptedStore store(file_bytes);
  store.hold();
  std::vector<std::byte> blocker(512), memory(8 * 1024);
  const auto short_read = [&](std::size_t offset, std::size_t place, Ticket after = no_ticket) {
    return Request{false, 0, offset, memory.data() + place, 1024, after};
  };
  Pump pump(store, {.chunk_bytes = 4096, .in_flight_bytes = 1 << 15, .capacity = 16});
  const Ticket first = pump.submit(read_of(blocker, 0));
  store.started(1);  // while `first` is in flight, the pump collects the following requests
  // the pump joins four requests into one chunk
  for (std::size_t i = 0; i < 5; ++i) pump.submit(short_read(i * 1024, i * 1024));
  pump.submit(short_read(5 * 1024 + 512, 5 * 1024));  // this request is not adjacent in the file
  // The next three requests are adjacent in the file, but not in memory. The pump joins the three requests, because the
  // request `first` is complete.
  pump.submit(short_read(8 * 1024, 7 * 1024));
  pump.submit(short_read(9 * 1024, 6 * 1024));
  pump.submit(short_read(10 * 1024, 5 * 1024, first));
  store.allow();
  pump.drain();
  std::vector<std::size_t> lengths;
  for (const Transfer &transfer : store.started()) lengths.push_back(transfer.length);
  EXPECT_EQ(lengths, (std::vector<std::size_t>{512, 4096, 1024, 1024, 3072}));
  EXPECT_EQ(part(memory, 0, 5 * 1024), part(store.bytes(), 0, 5 * 1024));
  EXPECT_EQ(part(memory, 7 * 1024, 1024), part(store.bytes(), 8 * 1024, 1024));
  EXPECT_EQ(part(memory, 6 * 1024, 1024), part(store.bytes(), 9 * 1024, 1024));
  EXPECT_EQ(part(memory, 5 * 1024, 1024), part(store.bytes(), 10 * 1024, 1024));
}

TEST(Pump, JoinsARequestWithTheRequestThatItWaitsFor) {
  ScriptedStore store(file_bytes);
  store.hold();
  std::vector<std::byte> blocker(512), memory(8 * 1024);
  Pump pump(store, {.chunk_bytes = 4096, .in_flight_bytes = 1 << 15, .capacity = 16});
  pump.submit(read_of(blocker, 0));
  store.started(1);
  const Ticket first = pump.submit({false, 0, 0, memory.data() + 2048, 1024, no_ticket});
  const Ticket second = pump.submit({false, 0, 1024, memory.data(), 1024, first});
  pump.submit({false, 0, 2048, memory.data() + 512, 1024, second});  // uses memory of the second request
  store.allow();
  pump.drain();
  std::vector<std::size_t> lengths;
  for (const Transfer &transfer : store.started()) lengths.push_back(transfer.length);
  EXPECT_EQ(lengths, (std::vector<std::size_t>{512, 2048, 1024}));
  EXPECT_EQ(part(memory, 2048, 1024), part(store.bytes(), 0, 1024));
  EXPECT_EQ(part(memory, 0, 512), part(store.bytes(), 1024, 512));
  EXPECT_EQ(part(memory, 512, 1024), part(store.bytes(), 2048, 1024));
}

TEST(Pump, CompletesJoinedRequestsByTheirOwnBytes) {
  constexpr std::size_t length = 128, count = file_bytes / length;
  std::mt19937 random(11);
  ScriptedStore store(file_bytes, 4, [&](const Transfer &transfer, std::size_t number) -> std::int64_t {
    if (number % 6 == 1) return -EAGAIN;
    return static_cast<std::int64_t>(1 + random() % transfer.length);
  });
  const std::vector<std::byte> expected = store.bytes();
  std::vector<std::byte> memory(file_bytes);
  Pump pump(store, {.chunk_bytes = 1000, .in_flight_bytes = 4096, .capacity = count});
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < count; ++i)
    tickets.push_back(pump.submit(Request{false, 0, i * length, memory.data() + i * length, length, no_ticket}));
  for (std::size_t i = 0; i < count; ++i) {
    pump.wait(tickets[i]);
    ASSERT_EQ(part(memory, i * length, length), part(expected, i * length, length)) << "request " << i;
  }
  pump.drain();
  EXPECT_EQ(pump.bytes_read(), file_bytes);
}

// A plane and the bytes behind it are adjacent in the file and in memory, but only the plane consists of whole pages.
// If the pump joined the two requests, the whole plane would go through the page cache.
TEST(Pump, DoesNotJoinDirectAndBufferedRequests) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("outcrop_pump_" + std::to_string(getpid()));
  File::create(path.string(), file_bytes);
  std::vector<File> files;
  files.push_back(File::open(path.string(), true, true));
  std::filesystem::remove(path);
  ScriptedStore store(file_bytes, 64, {}, std::move(files));
  if (!store.direct()) GTEST_SKIP() << "no direct I/O here";
  const AlignedMemory memory(file_bytes);
  store.hold();
  Pump pump(store, {.chunk_bytes = 1 << 15, .in_flight_bytes = 1 << 16, .capacity = 16});
  pump.submit({false, 0, 32768, memory.data() + 32768, 512, no_ticket});
  store.started(1);
  const Ticket pages = pump.submit({false, 0, 0, memory.data(), 8192, no_ticket});
  pump.submit({false, 0, 8192, memory.data() + 8192, 100, pages});
  store.allow();
  pump.drain();
  std::vector<std::size_t> lengths;
  for (const Transfer &transfer : store.started()) lengths.push_back(transfer.length);
  EXPECT_EQ(lengths, (std::vector<std::size_t>{512, 8192, 100}));
}

// The requests of this test are adjacent in the file. In memory, the requests are in reverse order. Each transfer moves
// fewer bytes than requested, so the pump must continue in the middle of a part of the memory.
TEST(Pump, ContinuesJoinedRequestsWithScatteredMemory) {
  constexpr std::size_t length = 96, count = file_bytes / length;
  for (const bool write : {false, true}) {
    std::mt19937 random(12);
    ScriptedStore store(file_bytes, 4, [&](const Transfer &transfer, std::size_t number) -> std::int64_t {
      if (number % 5 == 1) return -EINTR;
      return static_cast<std::int64_t>(1 + random() % transfer.length);
    });
    std::vector<std::byte> memory(count * length, std::byte{3}), expected = store.bytes();
    if (write)
      for (std::byte &byte : memory) byte = static_cast<std::byte>(random());
    Pump pump(store, {.chunk_bytes = 5000, .in_flight_bytes = 20000, .capacity = count});
    for (std::size_t i = 0; i < count; ++i)
      pump.submit(Request{write, 0, i * length, memory.data() + (count - 1 - i) * length, length, no_ticket});
    pump.drain();
    const std::vector<std::byte> bytes = store.bytes();
    if (!write) {
      EXPECT_EQ(bytes, expected);
    }
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(part(memory, (count - 1 - i) * length, length), part(bytes, i * length, length)) << "request " << i;
    EXPECT_EQ(pump.bytes_read() + pump.bytes_written(), count * length);
  }
}

TEST(Pump, KeepsToDepthAndBytesInFlight) {
  ScriptedStore store(file_bytes, 5);
  store.hold();
  std::vector<std::byte> memory(file_bytes);
  Pump pump(store, {.chunk_bytes = 1024, .in_flight_bytes = 4096, .capacity = 8});
  pump.submit(read_of(memory, 0));
  store.started(4);
  store.allow();
  pump.drain();
  EXPECT_LE(store.most_in_flight(), 5u);
  EXPECT_LE(store.most_bytes(), 4096u);
  EXPECT_GE(store.most_bytes(), 4096u) << "less than allowed was ever in flight";
}

TEST(Pump, StartsNothingBeforeWhatItMustFollow) {
  ScriptedStore store(file_bytes);
  store.hold();
  std::vector<std::byte> out(4096, std::byte{1}), in(4096), other(4096);
  Pump pump(store);
  const Ticket write = pump.submit(write_of(out, 0));
  store.started(1);
  const Ticket read = pump.submit(read_of(in, 0, write));
  const Ticket next = pump.submit(write_of(other, 8192));  // this request does not wait for the read before it
  store.allow(1);
  pump.wait(write);
  store.allow();
  pump.wait(read);
  pump.wait(next);
  EXPECT_EQ(in, out);
  const std::vector<Transfer> started = store.started();
  ASSERT_EQ(started.size(), 3u);
  EXPECT_TRUE(started[0].write);
}

TEST(Pump, ABlockedReadLetsWritesPass) {
  ScriptedStore store(file_bytes);
  std::vector<std::byte> first(4096), read(4096), second(4096);
  // only one transfer is in flight at a time
  Pump pump(store, {.chunk_bytes = 4096, .in_flight_bytes = 4096, .capacity = 8});
  store.hold();
  const Ticket blocker = pump.submit(write_of(first, 0));
  pump.submit(read_of(read, 0, blocker));
  pump.submit(write_of(second, 8192));
  store.allow(1);
  const std::vector<Transfer> two = store.started(2);
  store.allow();
  pump.drain();
  EXPECT_EQ(store.started().size(), 3u);
}

TEST(Pump, StartsRequestsOfADirectionInOrder) {
  ScriptedStore store(file_bytes);
  std::vector<std::vector<std::byte>> memory(16, std::vector<std::byte>(2048));
  Pump pump(store, {.chunk_bytes = 1024, .in_flight_bytes = 3072, .capacity = 4});
  for (std::size_t i = 0; i < memory.size(); ++i) pump.submit(read_of(memory[i], i * 2048));
  pump.drain();
  const std::vector<Transfer> started = store.started();
  ASSERT_EQ(started.size(), 32u);
  for (std::size_t i = 0; i < started.size(); ++i) EXPECT_EQ(started[i].offset, i * 1024);
}

TEST(Pump, NamesThePlaceOfTheFirstError) {
  ScriptedStore store(file_bytes, 1, [](const Transfer &transfer, std::size_t) -> std::int64_t {
    return transfer.offset == 8192 ? -EIO : static_cast<std::int64_t>(transfer.length);
  });
  std::vector<std::byte> memory(file_bytes), later(4096);
  Pump pump(store, {.chunk_bytes = 4096, .in_flight_bytes = 4096, .capacity = 8});
  const Ticket ticket = pump.submit(read_of(memory, 0));
  try {
    pump.wait(ticket);
    FAIL() << "the error was lost";
  } catch (const StorageError &error) {
    EXPECT_EQ(error.path, "scripted");
    EXPECT_EQ(error.offset, 8192u);
    EXPECT_EQ(error.length, 4096u);
    EXPECT_EQ(error.error, EIO);
    EXPECT_NE(std::string(error.what()).find("scripted"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("8192"), std::string::npos);
  }
  EXPECT_FALSE(pump.done(ticket));
  EXPECT_THROW(pump.submit(read_of(later, 0)), StorageError);
  EXPECT_THROW(pump.drain(), StorageError);
  EXPECT_EQ(store.started().size(), 3u) << "transfers were started after the error";
}

TEST(Pump, EveryErrorNumberArrives) {
  for (const int number : {EIO, ENOSPC, EBADF, EINVAL}) {
    ScriptedStore store(file_bytes, 4, [&](const Transfer &, std::size_t) { return std::int64_t{-number}; });
    std::vector<std::byte> memory(4096);
    Pump pump(store);
    try {
      pump.wait(pump.submit(write_of(memory, 0)));
      FAIL() << "the error was lost";
    } catch (const StorageError &error) {
      EXPECT_EQ(error.error, number);
    }
  }
}

TEST(Pump, TheEndOfAFileIsAnError) {
  ScriptedStore store(file_bytes);
  std::vector<std::byte> memory(8192);
  Pump pump(store);
  EXPECT_THROW(pump.wait(pump.submit(read_of(memory, file_bytes - 4096))), StorageError);
}

TEST(Pump, CancelWakesWaitersAtOnce) {
  ScriptedStore store(file_bytes);
  store.hold();
  std::vector<std::byte> memory(file_bytes);
  Pump pump(store, {.chunk_bytes = 4096, .in_flight_bytes = 8192, .capacity = 8});
  const Ticket ticket = pump.submit(read_of(memory, 0));
  store.started(2);
  auto waiter = std::async(std::launch::async, [&] { pump.wait(ticket); });
  pump.cancel();
  EXPECT_THROW(waiter.get(), Cancelled);  // wait() returns although no transfer has completed
  EXPECT_THROW(pump.submit(read_of(memory, 0)), Cancelled);
  store.allow();
  pump.cancel();  // a second call of this function has no effect
  EXPECT_THROW(pump.drain(), Cancelled);
  EXPECT_LE(store.started().size(), 2u) << "transfers were started after cancelling";
}

TEST(Pump, CancelWakesASubmitThatWaitsForRoom) {
  ScriptedStore store(file_bytes);
  store.hold();
  std::vector<std::byte> memory(4096);
  Pump pump(store, {.chunk_bytes = 4096, .in_flight_bytes = 4096, .capacity = 2});
  pump.submit(read_of(memory, 0));
  pump.submit(read_of(memory, 0));
  auto third = std::async(std::launch::async, [&] { pump.submit(read_of(memory, 0)); });
  pump.cancel();
  EXPECT_THROW(third.get(), Cancelled);
  store.allow();
}

TEST(Pump, DestructionNeverHangs) {
  for (std::size_t completed = 0; completed < 4; ++completed) {
    ScriptedStore store(file_bytes);
    std::vector<std::byte> memory(file_bytes), after(4096);
    store.hold();
    auto pump = std::make_unique<Pump>(store, PumpOptions{.chunk_bytes = 4096, .in_flight_bytes = 8192, .capacity = 8});
    const Ticket first = pump->submit(read_of(memory, 0));
    pump->submit(write_of(after, 0, first));
    store.started(2);
    store.allow(completed);
    auto destroyed = std::async(std::launch::async, [&] { pump.reset(); });
    store.allow();
    destroyed.get();
  }
}

TEST(Pump, OldTicketsStayDone) {
  ScriptedStore store(file_bytes);
  std::vector<std::byte> memory(512);
  Pump pump(store, {.chunk_bytes = 512, .in_flight_bytes = 512, .capacity = 3});
  std::vector<Ticket> tickets;
  for (int i = 0; i < 50; ++i) tickets.push_back(pump.submit(read_of(memory, 0, tickets.empty() ? 0 : tickets.back())));
  pump.drain();
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_EQ(tickets[i], i + 1) << "tickets are dense";
    EXPECT_TRUE(pump.done(tickets[i]));
    pump.wait(tickets[i]);
  }
  EXPECT_TRUE(pump.done(no_ticket));
  pump.wait(no_ticket);
}

TEST(Pump, ManyThreadsMaySubmit) {
  ScriptedStore store(file_bytes);
  Pump pump(store, {.chunk_bytes = 512, .in_flight_bytes = 2048, .capacity = 2});
  std::vector<std::thread> threads;
  std::vector<std::vector<std::byte>> memory(4, std::vector<std::byte>(1024));
  for (std::size_t number = 0; number < memory.size(); ++number)
    threads.emplace_back([&, number] {
      for (int i = 0; i < 50; ++i) pump.wait(pump.submit(read_of(memory[number], number * 1024)));
    });
  for (std::thread &thread : threads) thread.join();
  const std::vector<std::byte> bytes = store.bytes();
  for (std::size_t number = 0; number < memory.size(); ++number)
    EXPECT_EQ(memory[number], part(bytes, number * 1024, 1024));
  EXPECT_EQ(pump.bytes_read(), 4u * 50 * 1024);
}

}  // namespace
}  // namespace outcrop
