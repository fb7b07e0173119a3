// These tests check snapshot files that are written in parts. All bytes must be written, in any order of the parts and
// with few slots. If neighbouring parts arrive in time, one write must contain both parts. If some bytes of a page are
// written through the page cache, all bytes of the page must be written through the page cache. The computed checksum
// must be the checksum of the file. A failure must end all waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/snapshots.hpp"
#include "outcrop/storage/checksums.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {
namespace {

constexpr std::size_t page = 4096;

struct Scratch {
  std::string path = "staging-" + std::to_string(getpid()) + "-" + std::to_string(count++);
  explicit Scratch(std::uint64_t bytes) { File::create(path, bytes); }
  ~Scratch() { unlink(path.c_str()); }
  static inline std::atomic<int> count = 0;
};

// A store that records the transfers that bypass the page cache.
class Recorded final : public Store {
 public:
  explicit Recorded(std::unique_ptr<Store> inside) : Store({}), inside_(std::move(inside)) {}
  const char *name() const override { return "recorded"; }
  std::size_t depth() const override { return inside_->depth(); }
  void submit(std::span<const Transfer> transfers) override {
    {
      const std::lock_guard lock(mutex_);
      for (const Transfer &transfer : transfers) add(transfer);
    }
    inside_->submit(transfers);
  }
  std::size_t reap(std::span<Completion> completions, bool wait) override { return inside_->reap(completions, wait); }
  void flush() override { inside_->flush(); }
  const std::vector<File> &files() const override { return inside_->files(); }
  // If the pump has joined writes of several slots, the result has a separate transfer for each part of the memory. The
  // speed of the threads decides whether the pump joins writes.
  std::vector<Transfer> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void add(const Transfer &transfer) {
    if (transfer.parts.empty()) return seen_.push_back(transfer);
    std::uint64_t offset = transfer.offset;
    for (const iovec &part : transfer.parts) {
      seen_.push_back({transfer.write, transfer.file, offset, begin_of(part), part.iov_len});
      offset += part.iov_len;
    }
  }

  std::unique_ptr<Store> inside_;
  std::mutex mutex_;
  std::vector<Transfer> seen_;
};

Recorded open(const std::vector<std::string> &paths, bool direct = true, const Faults &faults = {}) {
  std::vector<FileSpec> files;
  for (const std::string &path : paths) files.push_back({.path = path, .writable = true, .direct = direct});
  return Recorded(make_faulty_store(open_store("threads", files), faults));
}

std::byte value(std::uint32_t file, std::uint64_t at) { return static_cast<std::byte>(at * 31 + at / 509 + file); }

void hand_on(StagingBuffer &staging, std::uint32_t file, std::uint64_t begin, std::uint64_t end) {
  while (begin < end) {
    const std::uint64_t next = std::min(end, (begin / staging.slot_bytes() + 1) * staging.slot_bytes());
    std::byte *to = staging.take(file, {begin, next});
    for (std::uint64_t at = begin; at < next; ++at) to[at - begin] = value(file, at);
    staging.put(file, {begin, next});
    begin = next;
  }
}

// Expects that the file has the right bytes, and that `sum` is the checksum of the bytes.
void expect_written(const Store &store, std::uint32_t file, ByteRange range, std::uint32_t sum) {
  std::vector<std::byte> found(range.end);
  const int descriptor = store.files()[file].buffered_descriptor();
  ASSERT_EQ(pread(descriptor, found.data(), found.size(), 0), static_cast<ssize_t>(found.size()));
  EXPECT_EQ(sum, crc32c(std::span(found).subspan(range.begin)));
  for (std::uint64_t at = 0; at < range.end; ++at)
    ASSERT_EQ(found[at], at < range.begin ? std::byte{0} : value(file, at)) << "byte " << at << " of file " << file;
}

// Writes parts of two files in random order, with several threads.
void write_in_parts(unsigned threads, StagingSizes sizes, bool direct, unsigned seed) {
  const std::vector<ByteRange> ranges{{0, 50 * page}, {100, 37 * page + 13}};
  const Scratch first(ranges[0].end), second(ranges[1].end);
  Recorded store = open({first.path, second.path}, direct);
  std::mt19937 random(seed);
  std::vector<std::pair<std::uint32_t, ByteRange>> parts;
  for (std::uint32_t file : {0u, 1u})
    for (std::uint64_t at = ranges[file].begin; at < ranges[file].end;) {
      const std::uint64_t end = std::min<std::uint64_t>(ranges[file].end, at + 1 + random() % (3 * page));
      parts.push_back({file, {at, end}});
      at = end;
    }
  std::shuffle(parts.begin(), parts.end(), random);
  StagingBuffer staging(store, ranges, sizes);
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> team;
  for (unsigned i = 0; i < threads; ++i)
    team.emplace_back([&] {
      for (std::size_t part = next++; part < parts.size(); part = next++)
        hand_on(staging, parts[part].first, parts[part].second.begin, parts[part].second.end);
    });
  for (std::thread &one : team) one.join();
  staging.flush();
  store.flush();
  for (std::uint32_t file : {0u, 1u}) expect_written(store, file, ranges[file], staging.sum(file));
  std::set<std::pair<std::uint32_t, std::uint64_t>> pages;
  for (const Transfer &one : store.seen()) {
    EXPECT_EQ(one.offset % page, 0u);
    EXPECT_EQ(one.length % page, 0u);
    for (std::uint64_t at = one.offset; at < one.offset + one.length; at += page)
      EXPECT_TRUE(pages.insert({one.file, at}).second) << "page at " << at << " is written twice";
  }
}

TEST(Staging, EveryByteArrivesInWhateverOrderAndHoweverFewSlots) {
  for (const unsigned threads : {1u, 4u})
    for (const StagingSizes sizes : {StagingSizes{2, page}, StagingSizes{3, 4 * page}, StagingSizes{64, 2 * page}})
      for (const bool direct : {true, false})
        for (unsigned seed = 0; seed < 5; ++seed) write_in_parts(threads, sizes, direct, seed);
}

TEST(Staging, StripsOfManyPlanesAreWrittenByWholeSlots) {
  constexpr std::uint64_t planes = 6, plane_bytes = 16 * page, strip = 3000;
  const Scratch scratch(planes * plane_bytes);
  Recorded store = open({scratch.path});
  if (!store.direct()) GTEST_SKIP() << "no direct I/O here";
  StagingBuffer staging(store, {{0, planes * plane_bytes}}, {16, 8 * page});
  for (std::uint64_t at = 0; at < plane_bytes; at += strip)
    for (std::uint64_t plane = 0; plane < planes; ++plane)
      hand_on(staging, 0, plane * plane_bytes + at, plane * plane_bytes + std::min(at + strip, plane_bytes));
  staging.flush();
  EXPECT_EQ(store.seen().size(), planes * 2);
  expect_written(store, 0, {0, planes * plane_bytes}, staging.sum(0));
}

// Returns the offset and the length of each transfer of file 0 that begins before `end`, in ascending order.
std::vector<std::pair<std::uint64_t, std::size_t>> transfers_before(Recorded &store, std::uint64_t end) {
  std::vector<std::pair<std::uint64_t, std::size_t>> found;
  for (const Transfer &one : store.seen())
    if (one.offset < end) found.emplace_back(one.offset, one.length);
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Staging, IfTooManySlotsAreOpenTheFullestIsSent) {
  constexpr std::uint64_t slot = 4 * page;
  const Scratch scratch(8 * slot);
  Recorded store = open({scratch.path});
  if (!store.direct()) GTEST_SKIP() << "no direct I/O here";
  StagingBuffer staging(store, {{0, 8 * slot}}, {4, slot});  // at most three slots may be open at the same time
  hand_on(staging, 0, 0, 2 * page + 5);
  hand_on(staging, 0, slot, slot + 5);
  hand_on(staging, 0, 2 * slot, 2 * slot + page);
  hand_on(staging, 0, slot + 5, slot + 6);
  hand_on(staging, 0, 3 * slot, 3 * slot + 5);  // this call writes slot 0, which has two pages and five bytes
  hand_on(staging, 0, 2 * page + 5, slot - 1);  // this call writes slot 2, which has one page
  hand_on(staging, 0, slot + 6, 2 * slot);      // slot 1 was open until this call
  hand_on(staging, 0, slot - 1, slot);
  hand_on(staging, 0, 2 * slot + page, 3 * slot);
  hand_on(staging, 0, 3 * slot + 5, 8 * slot);
  staging.flush();
  const std::vector<std::pair<std::uint64_t, std::size_t>> expected{
      {0, 2 * page}, {3 * page, page}, {slot, slot}, {2 * slot, page}, {2 * slot + page, 3 * page}};
  EXPECT_EQ(transfers_before(store, 3 * slot), expected);
  expect_written(store, 0, {0, 8 * slot}, staging.sum(0));
}

// If too many slots are open, some slots must be sent. A slot that no tile uses any more must be sent before a slot
// with more bytes. For example, no tile uses a slot any more if a block has filled the slot up to the edge of the
// block.
TEST(Staging, IfTooManySlotsAreOpenASlotOutOfUseIsSentBeforeAFullerOne) {
  constexpr std::uint64_t slot = 4 * page;
  const Scratch scratch(4 * slot);
  Recorded store = open({scratch.path});
  if (!store.direct()) GTEST_SKIP() << "no direct I/O here";
  StagingBuffer staging(store, {{0, 4 * slot}}, {4, slot});
  hand_on(staging, 0, 0, page);
  for (std::uint64_t part = 0; part < 20; ++part)
    for (const std::uint64_t begin : {slot, 2 * slot})
      hand_on(staging, 0, begin + part * 512, begin + (part + 1) * 512);
  hand_on(staging, 0, 3 * slot, 4 * slot);  // this call writes slot 0
  for (const std::uint64_t begin : {slot, 2 * slot}) hand_on(staging, 0, begin + 20 * 512, begin + slot);
  hand_on(staging, 0, page, slot);
  staging.flush();
  const std::vector<std::pair<std::uint64_t, std::size_t>> expected{
      {0, page}, {page, 3 * page}, {slot, slot}, {2 * slot, slot}, {3 * slot, slot}};
  EXPECT_EQ(transfers_before(store, 4 * slot), expected);
  expect_written(store, 0, {0, 4 * slot}, staging.sum(0));
}

TEST(Staging, AFailedWriteReachesEveryThread) {
  constexpr std::uint64_t bytes = 400 * page;
  const Scratch scratch(bytes);
  Recorded store = open({scratch.path}, true, {.full_after_bytes = 20 * page});
  if (!store.direct()) GTEST_SKIP() << "no direct I/O here";
  StagingBuffer staging(store, {{0, bytes}}, {2, page});
  std::atomic<int> failed = 0;
  std::vector<std::thread> team;
  for (std::uint64_t thread = 0; thread < 4; ++thread)
    team.emplace_back([&, thread] {
      try {
        hand_on(staging, 0, thread * bytes / 4, (thread + 1) * bytes / 4);
      } catch (const StorageError &) {
        ++failed;
      }
    });
  for (std::thread &one : team) one.join();
  EXPECT_EQ(failed, 4);
  EXPECT_THROW(staging.flush(), StorageError);
}

}  // namespace
}  // namespace outcrop
