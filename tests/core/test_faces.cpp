// These tests check how jobs of faces are transferred together.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/faces.hpp"
#include "outcrop/exec/transfers.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/store.hpp"
#include "relay.hpp"

namespace outcrop {
namespace {

// The faces of rank 0. Rank 0 has only one link, `own`. `own` is connected to `other`, the link of rank 1.
struct Linked {
  std::vector<std::byte> memory = std::vector<std::byte>(100'000);
  SocketPair sockets;
  Link own{sockets.first.get(), "rank 1"}, other{sockets.second.get(), "rank 0"};
  std::unique_ptr<Store> store = open_store("memory", {{.path = "one", .writable = true, .size = 4096}}, {});
  Pump pump{*store};
  Faces faces{{nullptr, &own}, pump, 1000};

  std::span<std::byte> rows(std::size_t first, std::size_t count) { return std::span(memory).subspan(first, count); }
  Ticket send(std::span<std::byte> rows) { return faces.send(1, std::vector{Faces::Job{rows}}); }
  Ticket receive(std::span<std::byte> rows) { return faces.receive(1, std::vector{Faces::Job{rows}}); }
};

std::vector<std::byte> message(std::size_t length, unsigned value) {
  return std::vector<std::byte>(length, static_cast<std::byte>(value));
}

// Several messages can be received into the same rows, one after another. The checksum of each message is verified
// before the next message overwrites it.
TEST(Faces, MessagesMayBeReceivedIntoTheSameRows) {
  Linked one;
  std::vector<std::vector<std::byte>> sent;
  Ticket last = no_ticket;
  for (unsigned i = 0; i < 150; ++i) {
    sent.push_back(message(3000, i));
    last = one.receive(one.rows(1000 * (i % 40), 3000));
  }
  // the first job waits for its message, so all other jobs are in the queue before the first job is finished
  for (const std::vector<std::byte> &bytes : sent) one.other.send(bytes);
  one.faces.wait_until_received(1, last);
  EXPECT_EQ(one.faces.bytes_received(), 150 * 3000);
  for (unsigned i = 120; i < 150; ++i) EXPECT_EQ(one.memory[1000 * (i % 40)], static_cast<std::byte>(i)) << i;
}

// The test submits more jobs than the queue can hold. The jobs must be transferred in order, and their numbers must be
// consecutive.
TEST(Faces, ManyJobsCanBeHandedOverTogether) {
  Linked one;
  Faces small({nullptr, &one.own}, one.pump, 4);
  std::vector<Faces::Job> jobs;
  for (std::size_t i = 0; i < 50; ++i) jobs.push_back({one.rows(100 * i, 100)});
  std::thread other([&] {
    for (unsigned i = 0; i < 50; ++i) one.other.send(message(100, i));
  });
  const Ticket first = small.receive(1, jobs);
  for (std::size_t i = 0; i < 50; ++i) {
    small.wait_until_received(1, first + i);
    EXPECT_EQ(one.memory[100 * i + 99], static_cast<std::byte>(i)) << i;
  }
  other.join();
  const std::vector<Faces::Job> one_more{{one.rows(0, 100)}};
  EXPECT_EQ(small.send(1, one_more), first) << "jobs of the two directions are counted separately";
  EXPECT_EQ(small.send(1, one_more), first + 1);
  std::vector<std::byte> bytes(100);
  for (int i = 0; i < 2; ++i) one.other.receive(bytes);
}

// A job is finished when its message is transferred, even if later jobs of the same batch are not finished.
TEST(Faces, JobsDoNotWaitForLaterJobs) {
  Linked one;
  std::vector<Ticket> received, sent;
  for (std::size_t i = 0; i < 10; ++i) received.push_back(one.receive(one.rows(100 * i, 100)));
  for (unsigned i = 0; i < 10; ++i) {
    one.other.send(message(100, i));
    one.faces.wait_until_received(1, received[i]);
    EXPECT_EQ(one.memory[100 * i], static_cast<std::byte>(i));
  }
  for (std::size_t i = 0; i < 100; ++i) sent.push_back(one.send(one.rows(0, 100'000)));
  std::vector<std::byte> bytes(100'000);
  for (std::size_t i = 0; i < 90; ++i) {
    one.other.receive(bytes);
    one.faces.wait_until_sent(1, sent[i]);
    EXPECT_EQ(bytes, one.memory);
  }
}

TEST(Faces, AllJobsOfABatchEndWhenTheNeighbourGoes) {
  Linked one;
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < 50; ++i) tickets.push_back(one.receive(one.rows(100 * i, 100)));
  for (unsigned i = 0; i < 20; ++i) one.other.send(message(100, i));
  one.faces.wait_until_received(1, tickets[19]);
  one.other.cancel();
  EXPECT_THROW(one.faces.wait_until_received(1, tickets[20]), CommunicationError);
  EXPECT_THROW(one.faces.wait_until_received(1, tickets[49]), CommunicationError);
  EXPECT_THROW(one.faces.drain(), CommunicationError);
  EXPECT_EQ(one.faces.bytes_received(), 2000);
}

// `SlotFaces` waits only for jobs that transfer the given rows.
TEST(Faces, OtherRowsOfASlotDoNotWait) {
  Linked one;
  SlotFaces slot;
  slot.add_received(1, 0, 10, one.receive(one.rows(0, 100)));
  slot.add_received(1, 20, 30, one.receive(one.rows(200, 100)));
  slot.wait_until_received(one.faces, 10, 20);  // must return without waiting: the job cannot finish now
  slot.wait_until_sent(one.faces, 0, 30);
  one.other.send(message(100, 7));
  slot.wait_until_received(one.faces, 9, 20);
  EXPECT_EQ(one.memory[0], std::byte{7});
  one.other.send(message(100, 8));
  slot.wait(one.faces);
  EXPECT_EQ(one.memory[200], std::byte{8});
  slot.wait(one.faces);
}

// A slot of a second copy must not get a new plane before all faces of the old plane are transferred.
TEST(Faces, ASlotGetsANewPlaneWhenItsFacesAreTransferred) {
  Grid grid;
  grid.nz = 20, grid.ny = 8, grid.nx = 16;
  grid.item_bytes = 4, grid.pitch_bytes = 64, grid.plane_bytes = 512, grid.record_bytes = 4096;
  const Fields fields({Field{.two_copies = true, .flips = true}});
  const Window window(grid, {{5, 4096, false}, {5, 4096, false}});
  const SocketPair sockets;
  Link own(sockets.first.get(), "rank 1"), other(sockets.second.get(), "rank 0");
  const std::unique_ptr<Store> store = open_store("memory", {{.path = "one", .writable = true, .size = 81920}}, {});
  Transfers transfers(grid, window, fields, store.get(), {nullptr, &own}, 4);
  transfers.receive({{Array::stairs, 0, 1}}, 3, 4, {0, 4, 0, 16}, 1);
  std::atomic<bool> has_begun{false};
  std::thread next([&] {
    transfers.wait_for_received(1, 8, 0, 8);  // this call does not wait, because the slot does not hold plane 8 yet
    transfers.begin_plane(1, 8);
    has_begun = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_begun);
  other.send(message(256, 1));
  next.join();
  transfers.begin_plane(1, 8);  // this call does not wait
}

}  // namespace
}  // namespace outcrop
