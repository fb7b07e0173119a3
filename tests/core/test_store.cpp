// These tests check that all backends give the same results, with direct transfers and with transfers through the page
// cache. A store from make_faulty_store() that simulates no faults must also give these results. If this machine does
// not support a backend, its tests are skipped, and the reason is printed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

#ifdef OUTCROP_HAVE_URING
// The linker replaces the function of liburing that is declared here by the function whose name begins with __wrap.
// While `rings_stall` is true, no new ring of io_uring completes its first transfer.
struct io_uring;
struct io_uring_cqe;
struct __kernel_timespec;
static std::atomic<bool> rings_stall{false};
extern "C" {
int __real_io_uring_wait_cqe_timeout(io_uring *, io_uring_cqe **, __kernel_timespec *);
int __wrap_io_uring_wait_cqe_timeout(io_uring *ring, io_uring_cqe **completion, __kernel_timespec *limit) {
  return rings_stall ? -ETIME : __real_io_uring_wait_cqe_timeout(ring, completion, limit);
}
}
#endif

namespace outcrop {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t file_bytes = 64 * page;

std::filesystem::path fresh_folder() {
  std::string name = (std::filesystem::current_path() / "outcrop_contract_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the tests: " + name);
  return name;
}

// (name of the backend, true if transfers are direct, true if a faulty store without faults wraps the backend)
using Case = std::tuple<std::string, bool, bool>;

class Contract : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto &[backend, direct, wrapped] = GetParam();
    static const std::vector<Probe> probes = probe_backends();  // only once, because closing libaio takes a long time
    for (const Probe &probe : probes)
      if (probe.name == backend && !probe.reason.empty()) GTEST_SKIP() << backend << ": " << probe.reason;
    for (const char *name : {"a", "b"}) {
      specs_.push_back({(folder_ / name).string(), true});
      File::create(specs_.back().path, file_bytes);
    }
    std::ofstream(folder_ / "read_only") << std::string(page, 'x');
    specs_.push_back({(folder_ / "read_only").string(), false});
    open();
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  void open() {
    const auto &[backend, direct, wrapped] = GetParam();
    store_ = open_store(backend, specs_, {.direct = direct, .depth = 8, .faults = {}});
    if (wrapped) store_ = make_faulty_store(std::move(store_), {});
  }
  bool in_memory() const { return std::get<0>(GetParam()) == "memory"; }

  void fill(std::byte *data, std::size_t length, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < length; ++i) data[i] = static_cast<std::byte>(random());
  }

  std::int64_t move_one(const Transfer &transfer) {
    Completion completion{};
    store_->submit({&transfer, 1});
    while (store_->reap({&completion, 1}, true) == 0) {
    }
    EXPECT_EQ(completion.tag, transfer.tag);
    return completion.result;
  }

  std::filesystem::path folder_ = fresh_folder();
  std::vector<FileSpec> specs_;
  std::unique_ptr<Store> store_;
  AlignedMemory memory_{2 * file_bytes};
  std::byte *const out_ = memory_.data(), *const in_ = memory_.data() + file_bytes;
};

TEST_P(Contract, KeepsWhatIsWritten) {
  fill(out_, file_bytes, 1);
  EXPECT_EQ(move_one({true, 0, 0, out_, file_bytes, 7}), static_cast<std::int64_t>(file_bytes));
  EXPECT_EQ(move_one({false, 0, 0, in_, file_bytes, 8}), static_cast<std::int64_t>(file_bytes));
  EXPECT_TRUE(std::equal(out_, out_ + file_bytes, in_));
  store_->flush();
  if (in_memory()) return;
  std::ifstream file(specs_[0].path, std::ios::binary);
  std::vector<char> seen(file_bytes);
  file.read(seen.data(), static_cast<std::streamsize>(seen.size()));
  EXPECT_EQ(std::memcmp(seen.data(), out_, file_bytes), 0) << "another program does not see what was written";
}

TEST_P(Contract, FilesAreApart) {
  fill(out_, 2 * page, 2);
  EXPECT_EQ(move_one({true, 0, page, out_, page, 1}), static_cast<std::int64_t>(page));
  EXPECT_EQ(move_one({true, 1, page, out_ + page, page, 2}), static_cast<std::int64_t>(page));
  EXPECT_EQ(move_one({false, 0, page, in_, page, 3}), static_cast<std::int64_t>(page));
  EXPECT_TRUE(std::equal(out_, out_ + page, in_));
  EXPECT_EQ(store_->files().size(), 3u);
  EXPECT_EQ(store_->path(1), specs_[1].path);
}

TEST_P(Contract, PartsAreReachedAndNothingBesideThem) {
  fill(out_, file_bytes, 5);
  EXPECT_EQ(move_one({true, 0, 0, out_, file_bytes, 1}), static_cast<std::int64_t>(file_bytes));
  store_.reset();
  specs_ = {{specs_[0].path, true, 2 * page, 3 * page}, {specs_[0].path, true, 5 * page, 2 * page + 100}};
  open();
  fill(in_, 3 * page, 6);
  EXPECT_EQ(move_one({true, 0, 0, in_, 3 * page, 2}), static_cast<std::int64_t>(3 * page));
  EXPECT_EQ(move_one({true, 1, 2 * page, in_, 100, 3}), 100) << "the end of a part need not be aligned";
  if (!in_memory()) {
    EXPECT_EQ(move_one({true, 0, 2 * page, out_, 2 * page, 4}), -EBADF) << "wrote behind a part";
    EXPECT_EQ(move_one({true, 0, ~std::uint64_t{0} - page + 1, out_, page, 5}), -EBADF) << "wrapped around";
  }
  EXPECT_EQ(move_one({false, 1, 0, in_ + 3 * page, page, 6}), static_cast<std::int64_t>(page));
  EXPECT_EQ(store_->files()[1].size(), 2 * page + 100);
  store_->flush();
  if (in_memory()) return;
  EXPECT_EQ(store_->path(1), specs_[0].path + " (from byte 20480)");
  EXPECT_EQ(std::memcmp(in_ + 3 * page, out_ + 5 * page, page), 0);
  std::memcpy(out_ + 2 * page, in_, 3 * page);
  std::memcpy(out_ + 7 * page, in_, 100);
  std::ifstream file(specs_[0].path, std::ios::binary);
  std::vector<char> seen(file_bytes);
  file.read(seen.data(), static_cast<std::streamsize>(seen.size()));
  EXPECT_EQ(std::memcmp(seen.data(), out_, file_bytes), 0) << "something beside the parts was changed";
}

TEST_P(Contract, TakesWhatIsNotAligned) {
  fill(out_, 3 * page, 3);
  EXPECT_EQ(move_one({true, 0, 0, out_, 3 * page, 1}), static_cast<std::int64_t>(3 * page));
  EXPECT_EQ(move_one({true, 0, 100, out_ + 1, 1001, 2}), 1001);
  EXPECT_EQ(move_one({false, 0, 99, in_ + 3, 1003, 3}), 1003);
  EXPECT_EQ(in_[3], out_[99]);
  EXPECT_TRUE(std::equal(out_ + 1, out_ + 1002, in_ + 4));
  EXPECT_EQ(in_[1005], out_[1101]);
}

TEST_P(Contract, TakesMemoryInParts) {
  fill(out_, file_bytes, 8);
  // first whole pages, which can be transferred directly, then parts of any length
  for (const std::size_t unit : {page, std::size_t{100}}) {
    const std::size_t total = 6 * unit;
    std::vector<iovec> from{{out_ + 4 * unit, 2 * unit}, {out_, unit}, {out_ + 8 * unit, 3 * unit}};
    std::vector<iovec> to{{in_ + 7 * unit, 3 * unit}, {in_, 3 * unit}};
    std::vector<std::byte> expected;
    for (const iovec &part : from) expected.insert(expected.end(), begin_of(part), begin_of(part) + part.iov_len);
    EXPECT_EQ(move_one({true, 0, page, out_ + 4 * unit, total, 1, from}), static_cast<std::int64_t>(total));
    EXPECT_EQ(move_one({false, 0, page, in_ + 7 * unit, total, 2, to}), static_cast<std::int64_t>(total));
    EXPECT_EQ(std::memcmp(in_ + 7 * unit, expected.data(), 3 * unit), 0);
    EXPECT_EQ(std::memcmp(in_, expected.data() + 3 * unit, 3 * unit), 0);
  }
  // the second part is not aligned, so the whole transfer goes through the page cache
  std::vector<iovec> to{{in_, page}, {in_ + 2 * page + 1, page}};
  EXPECT_EQ(move_one({true, 0, 0, out_, 2 * page, 3}), static_cast<std::int64_t>(2 * page));
  EXPECT_EQ(move_one({false, 0, 0, in_, 2 * page, 4, to}), static_cast<std::int64_t>(2 * page));
  EXPECT_EQ(std::memcmp(in_, out_, page), 0);
  EXPECT_EQ(std::memcmp(in_ + 2 * page + 1, out_ + page, page), 0);
}

TEST_P(Contract, ReadsAreShortAtTheEndAndNothingBehindIt) {
  EXPECT_EQ(move_one({false, 0, file_bytes - page, in_, 2 * page, 1}), static_cast<std::int64_t>(page));
  EXPECT_EQ(move_one({false, 0, file_bytes, in_, page, 2}), 0);
}

TEST_P(Contract, ErrorsAreCompletions) {
  EXPECT_EQ(move_one({false, 99, 0, in_, page, 1}), -EBADF);
  if (!in_memory()) {
    EXPECT_EQ(move_one({true, 2, 0, out_, page, 2}), -EBADF) << "wrote to a file that was opened for reading";
  }
  EXPECT_EQ(move_one({false, 0, 0, in_, page, 3}), static_cast<std::int64_t>(page)) << "useless after an error";
}

TEST_P(Contract, ReportsEveryTransferOnce) {
  ASSERT_GE(store_->depth(), 2u);
  std::set<std::uint64_t> expected, seen;
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < store_->depth(); ++i) {
    const std::uint64_t tag = i == 0 ? std::uint64_t{1} << 63 : i;
    transfers.push_back({i % 2 == 0, static_cast<std::uint32_t>(i % 2), i * page, out_ + i * page, page, tag});
    expected.insert(tag);
  }
  for (int round = 0; round < 20; ++round) {
    store_->submit(transfers);
    seen.clear();
    std::size_t reported = 0;
    while (reported < transfers.size()) {
      std::array<Completion, 3> completions;
      const std::size_t count = store_->reap(completions, true);
      reported += count;
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(completions[i].result, static_cast<std::int64_t>(page));
        seen.insert(completions[i].tag);
      }
    }
    EXPECT_EQ(seen, expected);
  }
}

TEST_P(Contract, ReapsNothingWhenNothingIsInFlight) {
  std::array<Completion, 2> completions;
  EXPECT_EQ(store_->reap(completions, false), 0u);
  // without a transfer in flight, this call must return even if `wait` is true
  EXPECT_EQ(store_->reap(completions, true), 0u);
}

TEST_P(Contract, MayChangeHands) {
  for (unsigned round = 0; round < 3; ++round)
    std::thread([&] {
      fill(out_, page, round);
      EXPECT_EQ(move_one({true, 0, 0, out_, page, 1}), static_cast<std::int64_t>(page));
    }).join();
  EXPECT_EQ(move_one({false, 0, 0, in_, page, 2}), static_cast<std::int64_t>(page));
  EXPECT_TRUE(std::equal(out_, out_ + page, in_));
}

TEST_P(Contract, SaysHowItMoves) {
  const auto &[backend, direct, wrapped] = GetParam();
  EXPECT_EQ(store_->name(), backend);
  if (!direct) {
    EXPECT_FALSE(store_->direct());
  }
  EXPECT_EQ(store_->direct(), store_->alignment() > 1);
  if (direct && !store_->direct() && (backend == "io_uring" || backend == "libaio" || backend == "threads")) {
    EXPECT_NE(store_->note(), "") << "fell back to the page cache without a word";
  }
}

TEST_P(Contract, ClosedFilesAreErrors) {
  store_->close();
  EXPECT_EQ(move_one({false, 0, 0, in_, page, 1}), -EBADF);
}

TEST_P(Contract, APumpMovesEveryByte) {
  fill(out_, file_bytes, 4);
  Pump pump(*store_, {.chunk_bytes = 3 * page, .in_flight_bytes = 16 * page, .capacity = 8});
  constexpr std::size_t length = 8 * page;
  for (std::size_t begin = 0; begin < file_bytes; begin += length) {
    const Ticket written = pump.submit({true, 0, begin, out_ + begin, length, no_ticket});
    pump.submit({false, 0, begin, in_ + begin, length, written});
  }
  pump.drain();
  store_->flush();
  EXPECT_TRUE(std::equal(out_, out_ + file_bytes, in_));
  EXPECT_EQ(pump.bytes_read(), file_bytes);
  EXPECT_EQ(pump.bytes_written(), file_bytes);
}

std::string name_of(const testing::TestParamInfo<Case> &info) {
  const auto &[backend, direct, wrapped] = info.param;
  return backend + (direct ? "_direct" : "_buffered") + (wrapped ? "_faultless" : "");
}

INSTANTIATE_TEST_SUITE_P(Backends, Contract,
                         testing::Combine(testing::Values("io_uring", "libaio", "threads", "mmap", "memory"),
                                          testing::Bool(), testing::Values(false)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Faultless, Contract,
                         testing::Combine(testing::Values("threads", "io_uring"), testing::Values(true),
                                          testing::Values(true)),
                         name_of);

TEST(OpenStore, AutoFindsOneThatWorks) {
  const std::filesystem::path folder = fresh_folder();
  const std::string path = (folder / "file").string();
  File::create(path, page);
  const std::unique_ptr<Store> store = open_store("auto", {{path, true}});
  EXPECT_TRUE(std::string(store->name()) == "io_uring" || !store->note().empty());
  std::filesystem::remove_all(folder);
}

#ifdef OUTCROP_HAVE_URING
// While an object of this type exists, new rings of io_uring stall.
struct StallRings {
  StallRings() { rings_stall = true; }
  ~StallRings() { rings_stall = false; }
};

bool has_uring() {
  for (const Probe &one : probe_backends())
    if (one.name == "io_uring") return one.reason.empty();
  return false;
}

TEST(OpenStore, AutoTakesAnotherBackendIfNewRingsStall) {
  if (!has_uring()) GTEST_SKIP() << "io_uring does not work here";
  const StallRings stall;
  const std::unique_ptr<Store> store = open_store("auto", {});
  EXPECT_NE(std::string(store->name()), "io_uring");
  EXPECT_NE(store->note().find("io_uring does not work here: first transfer failed: io_uring: Connection timed out"),
            std::string::npos)
      << store->note();
  EXPECT_THROW(open_store("io_uring", {}), InputError);
}

// When another thread begins to use an open store, the store makes a new ring for the thread. If the new ring stalls,
// transfers fail. After a failed transfer, the store makes another ring.
TEST(OpenStore, TransfersFailWhileNewRingsStall) {
  if (!has_uring()) GTEST_SKIP() << "io_uring does not work here";
  const std::filesystem::path folder = fresh_folder();
  const std::string path = (folder / "file").string();
  File::create(path, page);
  const std::unique_ptr<Store> store = open_store("io_uring", {{path, true}});
  std::thread([&] {
    std::vector<std::byte> bytes(page, std::byte{7});
    {
      const StallRings stall;
      try {
        store->write(0, 0, bytes.data(), page);
        ADD_FAILURE() << "wrote with a ring that stalls";
      } catch (const StorageError &error) {
        EXPECT_EQ(error.error, ETIMEDOUT);
      }
    }
    store->write(0, 0, bytes.data(), page);
    std::vector<std::byte> found(page);
    store->read(0, 0, found.data(), page);
    EXPECT_EQ(found, bytes);
  }).join();
  std::filesystem::remove_all(folder);
}
#endif

TEST(OpenStore, RefusesInOneLine) {
  EXPECT_THROW(open_store("tape", {}), InputError);
  try {
    open_store("threads", {{"/nowhere/at/all", false}});
    FAIL() << "opened a file that does not exist";
  } catch (const StorageError &error) {
    EXPECT_EQ(error.error, ENOENT);
    EXPECT_NE(std::string(error.what()).find("/nowhere/at/all"), std::string::npos);
  }
}

}  // namespace
}  // namespace outcrop
