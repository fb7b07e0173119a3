// These tests run a problem on several ranks, and compare every bit with the result of one rank. Each rank is a thread,
// and sockets connect the ranks. The connections can be slow, so that faces arrive late and in parts. The buffers of
// the sockets can be small, so that a rank can send only if its neighbour receives.
//
// If a rank fails, all ranks must end with an error.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/meters.hpp"
#include "rank_runs.hpp"
#include "relay.hpp"

namespace outcrop::ranks {
namespace {

using std::chrono::microseconds;

// How neighbours are connected.
struct Network {
  unsigned seed = 0;
  microseconds max_delay{-1};  // of a relay between neighbours; negative: no relay
  bool small_buffers = false;
  int damaged_link = -1;               // in the relay after this rank, one byte is changed
  std::uint64_t latency_of_files = 0;  // in microseconds
  bool one_way = false;                // only faces to higher rows are slow
  bool to_lower = false;               // faces to lower rows are slow or damaged instead of faces to higher rows
  bool commits = false;                // ranks commit after random delays
};

// The connection between a rank and the rank with the next higher number.
struct Connection {
  std::optional<SocketPair> sockets;
  std::optional<Relay> relay;
  std::optional<Link> lower, higher;  // the link of the lower rank, and the link of the higher rank

  Connection(const Network &network, std::size_t rank, std::size_t next) {
    const bool is_damaged = network.damaged_link == static_cast<int>(rank);
    if (network.max_delay.count() >= 0)
      relay.emplace(network.seed + static_cast<unsigned>(10 * rank), network.max_delay, is_damaged ? 5000 : -1,
                    network.one_way);
    else
      sockets.emplace();
    const int low = !relay ? sockets->first.get() : network.to_lower ? relay->right() : relay->left();
    const int high = !relay ? sockets->second.get() : network.to_lower ? relay->left() : relay->right();
    if (network.small_buffers)
      for (const int end : {low, high}) {
        const int bytes = 1;  // the system uses its minimum size instead
        setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
      }
    lower.emplace(low, "rank " + std::to_string(next));
    higher.emplace(high, "rank " + std::to_string(rank));
    sockets.reset();
  }
};

// The ranks and their connections.
struct World {
  World(
      const Problem &problem, const std::vector<long> &cuts, const Network &network,
      const std::function<Faults(std::size_t)> &faults = [](std::size_t) { return Faults(); })
      : passes(problem.passes.size()) {
    const std::vector<Part> parts = parts_of(problem, cuts);
    for (std::size_t i = 0; i < parts.size(); ++i)
      connections.push_back(parts[i].high == Side::neighbour
                                ? std::make_unique<Connection>(network, i, (i + 1) % parts.size())
                                : nullptr);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto &before = connections[(i + parts.size() - 1) % parts.size()], &after = connections[i];
      const Links links{before && parts[i].low == Side::neighbour ? &*before->higher : nullptr,
                        after ? &*after->lower : nullptr};
      ranks.push_back(std::make_unique<Rank>(problem, parts[i], links, faults(i), static_cast<unsigned>(i)));
    }
  }

  // Runs all ranks. Returns a text for each rank: the type and the message of its error, or "" if the rank has no
  // error.
  std::vector<std::string> run(const std::function<Hooks(std::size_t)> &hooks = [](std::size_t) { return Hooks(); }) {
    std::vector<std::string> errors(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          ranks[i]->run(hooks(i));
        } catch (const CommunicationError &error) {
          errors[i] = text_from("CommunicationError: ", error.what());
        } catch (const CorruptionError &error) {
          errors[i] = text_from("CorruptionError: ", error.what());
        } catch (const Cancelled &error) {
          errors[i] = text_from("Cancelled: ", error.what());
        } catch (const std::exception &error) {
          errors[i] = error.what();
        }
      });
    for (std::thread &thread : threads) thread.join();
    return errors;
  }

  const std::size_t passes;
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<std::unique_ptr<Rank>> ranks;
};

// The commits of all ranks. Ranks commit after random delays. In each pass, there is a rank that commits only after all
// other ranks have begun to read in the next pass.
class Commits {
 public:
  Commits(World &world, unsigned seed) : world_(world), seed_(seed), ranks_(world.ranks.size()) {}

  Hooks hooks(std::size_t rank) {
    return {[this, rank](std::size_t pass) { wait_for_all(rank, pass); },
            [this, rank](std::size_t pass) { commit(rank, pass); }};
  }
  std::size_t waits() const { return waits_; }

 private:
  struct Committed {
    std::size_t passes = 0;
    std::uint64_t bytes_read = 0, bytes_written = 0;  // when the rank ended its last pass
  };

  const Executor &executor(std::size_t rank) const { return world_.ranks[rank]->executor(); }

  void commit(std::size_t rank, std::size_t pass) {
    std::mt19937 random(seed_ + static_cast<unsigned>(100 * pass + rank));
    if (pass + 1 < world_.passes && rank == (seed_ + pass) % ranks_.size())
      for (std::size_t other = 0; other < ranks_.size(); ++other)
        while (other != rank && !has_begun(other, pass + 1)) std::this_thread::yield();
    std::this_thread::sleep_for(microseconds(random() % 2000));
    const std::lock_guard lock(mutex_);
    ranks_[rank] = {pass + 1, executor(rank).bytes_read(), executor(rank).bytes_written()};
    changed_.notify_all();
  }

  bool has_begun(std::size_t rank, std::size_t pass) {
    const std::lock_guard lock(mutex_);
    return ranks_[rank].passes >= pass && executor(rank).bytes_read() > ranks_[rank].bytes_read;
  }

  void wait_for_all(std::size_t rank, std::size_t pass) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::all_of(ranks_, [&](auto &one) { return one.passes >= pass; }); });
    EXPECT_EQ(executor(rank).bytes_written(), ranks_[rank].bytes_written) << "written before all ranks have committed";
    ++waits_;
  }

  World &world_;
  const unsigned seed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Committed> ranks_;
  std::size_t waits_ = 0;
};

std::ostream &operator<<(std::ostream &out, const Problem &one) {
  const char *const equations[] = {"heat", "wave", "pair"}, *const sides[] = {"fixed", "mirror", "periodic", "cut"};
  const auto name = [&](Side side) { return sides[static_cast<int>(side)]; };
  out << equations[static_cast<int>(one.equation)] << " " << one.nz << "x" << one.ny << " radii " << one.radius_z << ","
      << one.radius_y << " z " << name(one.z) << " y " << name(one.y_low) << "," << name(one.y_high) << " levels";
  for (const long levels : one.passes) out << " " << levels;
  out << " slab " << one.slab << " diamond " << one.tiling.diamond << " planes " << one.tiling.planes << " chunk "
      << one.tiling.chunk << " group " << one.group << (one.split ? " split" : "") << " nodes";
  for (const unsigned threads : one.node_threads) out << " " << threads;
  return out;
}

// Compares the states of all ranks with the state of a rank that has the whole grid.
void expect_same(const World &world, const Rank &whole) {
  for (const auto &rank : world.ranks) {
    EXPECT_EQ(rank->data().faults, 0) << "kernels need rows that do not exist";
    const auto first =
        static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank->part().first) * rank->grid().pitch_bytes);
    for (std::size_t array = 0; array < whole.states(); ++array)
      for (long z = 0; z < whole.grid().nz; ++z) {
        const std::vector<std::byte> expected = whole.plane(array, z), found = rank->plane(array, z);
        ASSERT_FALSE(found.empty()) << "wrong checksum of plane " << z;
        const auto end = found.begin() + static_cast<std::ptrdiff_t>(rank->grid().rows_bytes());
        ASSERT_TRUE(std::equal(found.begin(), end, expected.begin() + first))
            << "array " << array << " plane " << z << " rows from " << rank->part().first;
      }
  }
}

// Expects that each rank has sent and received exactly the rows of the halos. Also expects that each rank has read and
// written each of its records exactly once. The counts of bytes do not include the rows of zeros at the end of planes
// on disk.
void expect_bytes(const Problem &problem, const World &world, std::size_t states, std::size_t statics) {
  const long levels = std::accumulate(problem.passes.begin(), problem.passes.end(), 0L);
  for (const auto &rank : world.ranks) {
    const std::size_t records = problem.passes.size() * static_cast<std::size_t>(problem.nz);
    const std::size_t record_bytes = rank->grid().rows_bytes() + rank->grid().tail_bytes();
    EXPECT_EQ(rank->executor().bytes_read(), records * (states + statics) * record_bytes);
    EXPECT_EQ(rank->executor().bytes_written(), records * states * record_bytes);
    if (problem.split) continue;
    const long sides = (rank->part().low == Side::neighbour) + (rank->part().high == Side::neighbour);
    const long bytes =
        sides * levels * problem.radius_y * problem.pitch_bytes * problem.nz * static_cast<long>(states + statics);
    EXPECT_EQ(rank->executor().bytes_sent(), static_cast<std::uint64_t>(bytes));
    EXPECT_EQ(rank->executor().bytes_received(), static_cast<std::uint64_t>(bytes));
  }
}

void run_case(const Problem &problem, const std::vector<long> &cuts, const Network &network) {
  std::ostringstream text;
  text << problem << " cuts";
  for (const long cut : cuts) text << " " << cut;
  text << " seed " << network.seed;
  SCOPED_TRACE(text.str());
  Problem plain = problem;  // another tiling, so that the comparison does not depend on tiles
  plain.tiling = Tiling{};
  plain.node_threads = {1};
  plain.backend = "memory";
  Rank whole(plain, parts_of(plain, {})[0], {});
  whole.run();
  EXPECT_EQ(whole.data().faults, 0);
  World world(problem, cuts, network, [&](std::size_t rank) {
    return Faults{.latency_microseconds = rank % 2 == 0 ? network.latency_of_files : 0};
  });
  Commits commits(world, network.seed);
  const auto hooks = [&](std::size_t rank) { return network.commits ? commits.hooks(rank) : Hooks{}; };
  for (const std::string &error : world.run(hooks)) EXPECT_EQ(error, "");
  if (network.commits) {
    EXPECT_EQ(commits.waits(), world.passes * world.ranks.size());
  }
  if (testing::Test::HasFailure()) return;
  expect_same(world, whole);
  expect_bytes(problem, world, whole.states(), problem.equation == Equation::wave ? 1 : 0);
}

// Returns random cuts. Each part has at least `fewest` rows, plus the rows of the rim on its fixed sides.
std::vector<long> random_cuts(const Problem &problem, std::size_t ranks, long fewest, std::mt19937 &random) {
  std::vector<long> cuts;
  const long spare = problem.ny - static_cast<long>(ranks) * fewest - 2 * problem.radius_y;
  long before = 0;
  for (std::size_t i = 1; i < ranks; ++i)
    cuts.push_back(static_cast<long>(random() % static_cast<unsigned>(spare + 1)));
  std::ranges::sort(cuts);
  for (long &cut : cuts) cut += problem.radius_y + (before += fewest);
  return cuts;
}

template <typename Value>
Value one_of(std::mt19937 &random, std::initializer_list<Value> values) {
  return values.begin()[random() % values.size()];
}

// Returns a random problem for `ranks` ranks, and sets `cuts` to random cuts.
Problem random_problem(unsigned seed, std::vector<long> &cuts, bool split = false) {
  std::mt19937 random(seed);
  Problem one;
  one.split = split;
  one.equation = one_of(random, {Equation::heat, Equation::wave, Equation::pair});
  one.nz = one_of(random, {1L, 5L, 8L, 11L, 17L});
  one.radius_z = one_of(random, {0L, 1L, 1L, 2L});
  one.radius_y = one_of(random, {1L, 1L, 2L});
  one.z = one_of(random, {Side::fixed, Side::mirror, Side::periodic});
  if (one.z != Side::fixed && one.nz < 2 * one.radius_z + 1) one.nz = 5;
  if (random() % 3 == 0)
    one.y_low = one.y_high = Side::periodic;
  else
    one.y_low = one_of(random, {Side::fixed, Side::mirror}), one.y_high = one_of(random, {Side::fixed, Side::mirror});
  one.passes.clear();
  const long step = one.equation == Equation::pair ? 2 : 1, deepest = step * one_of(random, {1L, 2L, 3L, 4L});
  for (unsigned pass = 0; pass < 1 + random() % 3; ++pass) one.passes.push_back(deepest);
  if (random() % 2 == 0) one.passes.back() = step;
  one.slab = one_of(random, {1L, 2L, 3L, 7L, 40L});
  one.tiling = {one_of(random, {0L, 1L, 2L, 4L}), one_of(random, {1L, 3L, 16L}), one_of(random, {1L, 2L, 4L}),
                one_of(random, {0L, 0L, 3L})};
  one.node_threads = one_of<std::vector<unsigned>>(random, {{1}, {2}, {3}, {1, 1}, {2, 1}});
  one.group = one_of(random, {1L, 1L, 4L});
  one.pitch_bytes = one_of(random, {64L, 192L});
  one.nx = one_of(random, {1L, 5L, 16L});
  const std::size_t ranks = 2 + random() % 3;
  const long fewest = one.radius_y * deepest * (split ? 2 : 1);
  one.ny = static_cast<long>(ranks) * fewest + 2 * one.radius_y + static_cast<long>(random() % 12);
  cuts = random_cuts(one, ranks, fewest, random);
  return one;
}

unsigned random_count() {
  const char *const soak = std::getenv("OUTCROP_SOAK");
  return 120 * static_cast<unsigned>(soak == nullptr ? 1 : std::atoi(soak));
}

TEST(Ranks, GiveTheBitsOfOneRank) {
  for (unsigned seed = 0; seed < random_count() && !HasFailure(); ++seed) {
    std::vector<long> cuts;
    const Problem problem = random_problem(seed, cuts);
    run_case(problem, cuts, {.seed = seed, .small_buffers = seed % 2 == 0});
  }
}

TEST(Ranks, GiveTheBitsOfOneRankWithSplitTiling) {
  for (unsigned seed = 2000; seed < 2000 + random_count() && !HasFailure(); ++seed) {
    std::vector<long> cuts;
    const Problem problem = random_problem(seed, cuts, true);
    run_case(problem, cuts, {.seed = seed, .small_buffers = seed % 2 == 0});
  }
}

TEST(Ranks, GiveTheSameBitsWithSplitTilingOverSlowConnections) {
  for (unsigned seed = 3000; seed < 3000 + random_count() / 6 && !HasFailure(); ++seed) {
    std::vector<long> cuts;
    Problem problem = random_problem(seed, cuts, true);
    if (seed % 2 == 0) problem.pitch_bytes = 1024, problem.nx = 250;  // faces that do not fit the buffers
    const std::uint64_t latency = seed % 3 == 0 ? 300 : 0;
    run_case(problem, cuts, {seed, microseconds(500), true, -1, latency, seed % 5 == 0});
  }
}

TEST(Ranks, GiveTheSameBitsOverSlowConnections) {
  for (unsigned seed = 1000; seed < 1000 + random_count() / 6 && !HasFailure(); ++seed) {
    std::vector<long> cuts;
    Problem problem = random_problem(seed, cuts);
    if (seed % 2 == 0) problem.pitch_bytes = 1024, problem.nx = 250;  // faces that do not fit the buffers
    const std::uint64_t latency = seed % 3 == 0 ? 300 : 0;
    run_case(problem, cuts, {seed, microseconds(500), true, -1, latency});
  }
}

// A rank receives faces in time, but sends its own faces slowly. The rank must not overwrite its own faces before they
// are sent.
TEST(Ranks, KeepTheirFacesUntilTheyAreSent) {
  for (const Equation equation : {Equation::heat, Equation::wave, Equation::pair})
    for (const long slab : {2L, 20L})
      for (const bool split : {false, true}) {
        Problem one;
        one.equation = equation, one.slab = slab, one.split = split;
        one.pitch_bytes = 4096, one.nx = 1000;  // the faces are larger than the buffers of the sockets
        one.passes = {4, 4};
        for (const bool to_lower : {false, true})
          run_case(one, {15}, {1, microseconds(3000), true, -1, 0, true, to_lower});
      }
}

// Transfers can bypass the page cache only if they consist of whole pages. But if the frame contains rows of a
// neighbour, rows of the neighbour lie in memory between the last own row and the end of the record.
TEST(Ranks, GiveTheSameBitsWithFilesOnDisk) {
  const std::filesystem::path folder = std::filesystem::current_path() / "ranks.tmp";
  std::filesystem::create_directory(folder);
  for (const Side side : {Side::fixed, Side::periodic})
    for (const long rows : {32L, 38L}) {  // the parts end at a page boundary, or within a page
      Problem one;
      one.backend = "threads", one.folder = folder.string();
      one.pitch_bytes = 1024, one.nx = 200, one.group = 4;
      one.ny = 3 * rows + 2, one.y_low = one.y_high = side;
      one.passes = {3, 3, 2};
      run_case(one, {rows, 2 * rows}, {});
    }
  std::filesystem::remove_all(folder);
}

// Returns a problem with so many passes that each rank sends many messages.
Problem long_problem(bool split = false) {
  Problem one;
  one.equation = Equation::wave, one.split = split;
  one.nz = 40, one.ny = 60;
  one.passes = {4, 4, 4, 4};
  one.tiling.diamond = 2;
  return one;
}

bool begins_with(const std::string &text, const std::string &begin) { return text.rfind(begin, 0) == 0; }

// Expects that the error of rank `first` begins with `text`. The errors of all other ranks must say that a neighbour
// has gone.
void expect_all_fail(const std::vector<std::string> &errors, std::size_t first, const std::string &text) {
  for (std::size_t i = 0; i < errors.size(); ++i)
    EXPECT_TRUE(begins_with(errors[i], i == first ? text : "CommunicationError: rank ")) << i << ": " << errors[i];
}

TEST(Ranks, AllEndWhenFacesAreDamaged) {
  for (const bool split : {false, true})
    for (int link = 0; link < 3; ++link) {
      for (const int to_lower : {0, 1}) {
        World world(long_problem(split), {14, 29, 44},
                    {.max_delay = microseconds(10), .damaged_link = link, .to_lower = to_lower == 1});
        const std::string text =
            "CorruptionError: a message from rank " + std::to_string(link + to_lower) + " is damaged";
        expect_all_fail(world.run(), static_cast<std::size_t>(link + 1 - to_lower), text);
      }
    }
}

// With split tiling, a neighbour updates the lowest rows of a rank. But the rank itself must verify the checksums of
// its lowest rows.
TEST(Ranks, AllEndWhenARowOnDiskIsDamaged) {
  for (const bool split : {false, true})
    for (const std::size_t array : {0UL, 1UL, 4UL})  // the newest values, the previous values and the static field
      for (const long row : {0L, 1L, 8L, 13L, 14L})
        for (const long plane : {0L, 20L}) {
          World world(long_problem(split), {14, 29, 44}, {});
          world.ranks[1]->damage(array, plane, row);
          expect_all_fail(world.run(), 1, "CorruptionError: plane " + std::to_string(plane) + " is damaged");
        }
}

TEST(Ranks, AllEndWhenTheStorageOfOneFails) {
  for (std::size_t bad = 0; bad < 8; ++bad) {
    const auto faults = [&](std::size_t rank) {
      Faults one;
      if (rank == bad % 4) one.error_at = 80 + 2 * 40 + 150;  // later than the transfers that make the files
      return one;
    };
    World world(long_problem(bad >= 4), {14, 29, 44}, {}, faults);
    const std::vector<std::string> errors = world.run();
    // the error may come from the request or from a face that waits for it
    for (std::size_t i = 0; i < errors.size(); ++i)
      EXPECT_NE(errors[i].find(i == bad % 4 ? "failed: " : "has gone"), std::string::npos) << i << ": " << errors[i];
  }
}

// Prepares an event, for example an error. The event happens in the kernel call number `call` of the rank.
void run_with_event(World &world, std::size_t rank, long call, std::function<void()> event) {
  world.ranks[rank]->data().event_at = call;
  world.ranks[rank]->data().event = std::move(event);
}

TEST(Ranks, AllEndWhenOneIsCancelled) {
  for (const std::size_t rank : {0UL, 1UL, 3UL})
    for (const long call : {0L, 500L, 1500L}) {
      World world(long_problem(call == 500), {14, 29, 44}, {.small_buffers = true});
      run_with_event(world, rank, call, [&] { world.ranks[rank]->executor().cancel(); });
      expect_all_fail(world.run(), rank, "Cancelled: ");
    }
}

TEST(Ranks, BothEndWhenTheirConnectionFails) {
  for (const long call : {0L, 100L, 500L, 501L, 1000L, 1500L}) {
    World world(long_problem(call % 500 != 0), {14, 29, 44}, {.max_delay = microseconds(10)});
    run_with_event(world, 1, call, [&] { world.connections[1]->relay->cut(); });
    const std::vector<std::string> errors = world.run();
    EXPECT_EQ(errors[1], "CommunicationError: rank 2 has gone");
    EXPECT_EQ(errors[2], "CommunicationError: rank 1 has gone");
    EXPECT_EQ(errors[0], "CommunicationError: rank 1 has gone");
    EXPECT_EQ(errors[3], "CommunicationError: rank 2 has gone");
  }
}

TEST(Ranks, BeginAPassBeforeAllHaveCommittedAndThenWaitToWrite) {
  for (unsigned seed = 4000; seed < 4000 + random_count() / 6 && !HasFailure(); ++seed) {
    std::vector<long> cuts;
    Problem problem = random_problem(seed, cuts, seed % 2 == 0);
    problem.passes.assign(4, problem.passes.front());
    run_case(problem, cuts, {.seed = seed, .small_buffers = seed % 3 == 0, .commits = true});
  }
}

TEST(Ranks, AllEndWhenTheWaitOfOneFails) {
  for (const bool split : {false, true})
    for (const std::size_t rank : {0UL, 2UL, 3UL}) {
      World world(long_problem(split), {14, 29, 44}, {});
      const auto fail = [](std::size_t pass) {
        if (pass == 2) throw StorageError("agree", "the ranks", EIO);
      };
      const std::vector<std::string> errors =
          world.run([&](std::size_t i) { return i == rank ? Hooks{fail, {}} : Hooks{}; });
      expect_all_fail(errors, rank, "agree failed: the ranks");
    }
}

// After one rank has ended all its passes, the other ranks continue, even if the executor of that rank is destroyed.
TEST(Ranks, LinksServeSeveralExecutors) {
  Problem one;
  one.passes = {2};
  const std::vector<Part> parts = parts_of(one, {15});
  Connection connection({}, 0, 1);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    std::atomic<int> ended{0};
    for (std::size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        const Links links{i == 0 ? nullptr : &*connection.higher, i == 0 ? &*connection.lower : nullptr};
        Rank(one, parts[i], links).run();
        ++ended;
      });
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(ended, 2);
  }
}

TEST(Ranks, PlansWithoutALinkAreRefused) {
  const Problem one;
  const std::vector<Part> parts = parts_of(one, {15});
  EXPECT_THROW(Rank(one, parts[0], {}).run(), InputError);
  const SocketPair sockets;
  Link link(sockets.first.get(), "rank 1");
  EXPECT_THROW(Rank(one, parts[0], {&link, nullptr}).run(), InputError);
}

// The meter measures frames that contain rows of neighbours, with and without the region of a pass.
TEST(Ranks, TheirUpdatesCanBeMeasured) {
  Problem one;
  one.passes = {6};
  for (const Part &part : parts_of(one, {10, 20})) {
    KernelData data;
    KernelData *const pointer = &data;
    data.low = part.low, data.high = part.high;
    Stages stages = stages_of(Equation::heat);
    const auto *first = reinterpret_cast<const std::byte *>(&pointer);
    stages.scalars.values = {first, first + sizeof pointer};
    UpdateMeter meter(grid_of(one, part), stages, unbound(2), 2, 40);
    const Pass pass = make_pass(one, part, 6);
    for (const Action &action : pass.actions) {
      const auto *update = std::get_if<UpdateAction>(&action);
      if (update == nullptr) continue;
      for (const long diamond : {0, 2})
        for (const UpdateRegion &region : {update->region, UpdateRegion{}})
          for (const double rate : meter.measure({diamond}, 6, 4, frame_of(one, part, 6), region, 2))
            EXPECT_GT(rate, 0);
      break;
    }
    EXPECT_EQ(data.faults, 0);
  }
}

}  // namespace
}  // namespace outcrop::ranks
