#include "outcrop/aggregate/sinks/sink.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/available_memory.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

// --- the store -----------------------------------------------------------------------------------------------------

namespace {

// A store in which submit() performs each transfer before it returns. This store needs no thread of its own, because
// each aggregator already has a thread.
class CallStore final : public Store {
 public:
  using Store::Store;

  const char *name() const override { return "calls"; }
  std::size_t depth() const override { return 1; }

  void submit(std::span<const Transfer> transfers) override {
    for (const Transfer &transfer : transfers) {
      assert(!ready_ && transfer.parts.empty());
      const Location found = locate(transfer);
      const auto offset = static_cast<off_t>(found.offset);
      const ssize_t moved = transfer.write ? pwrite(found.descriptor, transfer.data, transfer.length, offset)
                                           : pread(found.descriptor, transfer.data, transfer.length, offset);
      completion_ = {transfer.tag, moved < 0 ? -errno : moved};
      ready_ = true;
    }
  }

  std::size_t reap(std::span<Completion> completions, bool) override {
    if (!ready_ || completions.empty()) return 0;
    completions[0] = completion_;
    ready_ = false;
    return 1;
  }

 private:
  Completion completion_;
  bool ready_ = false;
};

}  // namespace

// --- how a file is opened ------------------------------------------------------------------------------------------

// The page cache has enough room for a step if the step needs at most 1/ample_share of the available memory. Linux
// slows down writers when 15 % of the memory waits to be written to storage. Therefore 1/ample_share is less than 15 %.
constexpr std::uint64_t ample_share = 8;

constexpr const char *identity_name = "user.outcrop.identity";

FileIdentity new_identity() {
  FileIdentity identity{};
  std::random_device random;
  for (std::size_t i = 0; i + 1 < identity.size(); ++i) identity[i] = "0123456789abcdef"[random() % 16];
  return identity;
}

void store_identity(int descriptor, const FileIdentity &identity) {
  static_cast<void>(fsetxattr(descriptor, identity_name, identity.data(), identity.size() - 1, 0));
}

FileIdentity identity_of(const std::string &path) {
  FileIdentity identity{};
  const auto is_digit = [](char each) { return (each >= '0' && each <= '9') || (each >= 'a' && each <= 'f'); };
  const ssize_t length = getxattr(path.c_str(), identity_name, identity.data(), identity.size() - 1);
  const bool valid = length + 1 == std::ssize(identity) && std::all_of(identity.begin(), identity.end() - 1, is_digit);
  return valid ? identity : FileIdentity{};
}

bool has_ample_room(std::uint64_t node_bytes) { return node_bytes <= available_bytes() / ample_share; }

OpenMode agree_on_open_mode(const Link &link, const OpenMode &mine) {
  const std::vector<OpenMode> all = link.gather(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].staged != all[0].staged || all[rank].node_files != all[0].node_files)
      throw InputError("ranks 0 and " + std::to_string(rank) +
                       " differ in whether they stage or write node files; give all ranks the same options");
  OpenMode agreed = all[0];
  agreed.ample_room = std::ranges::all_of(all, &OpenMode::ample_room);
  return agreed;
}

// --- the shared file -----------------------------------------------------------------------------------------------

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t page = AlignedMemory::page_bytes;

// If direct writes to a device are slower than this, writes through the page cache may be faster.
constexpr double fast_bytes_per_second = 1.5e9;
// Only the rates of transfers with at least this size are measured. The time of a smaller transfer depends more on the
// latency than on the bandwidth.
constexpr std::size_t min_measured_bytes = std::size_t{1} << 20;
// Buffered reads are split into parts of this size. While this thread copies a part, the system reads the next part
// from the device. A part fits into the cache of the processor.
constexpr std::uint64_t buffered_read_bytes = 128 << 10;
// Durable writes copy the bytes to the page cache in parts of `written_back_bytes`. After each copy, the device begins
// to write the copied part. If the last part is shorter than `min_written_back`, the device writes this part only at
// the flush.
constexpr std::size_t written_back_bytes = std::size_t{2} << 20, min_written_back = std::size_t{64} << 10;

std::unique_ptr<Store> open_store(const std::string &path, bool writable, bool direct, const Faults &faults,
                                  bool follows_links) {
  std::vector<outcrop::File> files;
  files.push_back(follows_links ? open_named(path, writable, direct) : open_without_links(path, writable, direct));
  if (direct && !files.front().direct()) return nullptr;
  std::unique_ptr<Store> store = std::make_unique<CallStore>(std::move(files));
  return faults.any() ? make_faulty_store(std::move(store), faults) : std::move(store);
}

// Returns the number of pages of a range that are in the page cache. Returns 0 if the system does not report this
// number.
std::uint64_t cached_pages([[maybe_unused]] int descriptor, [[maybe_unused]] std::uint64_t offset,
                           [[maybe_unused]] std::uint64_t length) {
#ifdef SYS_cachestat
  constexpr long number = SYS_cachestat;
#else
  constexpr long number = 451;  // the same number on all architectures; Linux before 6.5 refuses this system call
#endif
  const std::uint64_t range[2] = {offset, length};
  std::uint64_t counts[5] = {};
  return syscall(number, descriptor, range, counts, 0) == 0 ? counts[0] : 0;
}

// The measured rates of devices exist until the process ends, because later files on the same device also use these
// rates.
std::mutex rates_mutex;
std::map<dev_t, DeviceRates> rates_of_devices;

// Returns the measured rates of the device that holds the file.
DeviceRates &rates_of(const std::string &path) {
  struct stat status {};
  const dev_t device = stat(path.c_str(), &status) == 0 ? status.st_dev : 0;
  const std::lock_guard lock(rates_mutex);
  return rates_of_devices[device];
}

// Calls move(begin, end) three times: for the incomplete page at the start of a range, for the whole pages, and for the
// incomplete page at the end. The calls are separate, so that the transfer of the whole pages can bypass the page
// cache.
template <typename Move>
void move_by_pages(std::uint64_t offset, std::size_t length, Move &&move) {
  const std::uint64_t end = offset + length;
  const std::uint64_t whole_begin = round_up(offset, page), whole_end = round_down(end, page);
  if (whole_begin >= whole_end) return move(offset, end);
  if (offset < whole_begin) move(offset, whole_begin);
  move(whole_begin, whole_end);
  if (whole_end < end) move(whole_end, end);
}

}  // namespace

SharedFile::SharedFile(const std::string &path, bool writable, CacheMode mode, bool durable, const Traffic &traffic,
                       const Faults &faults, bool follows_links)
    : durable_(durable), traffic_(traffic), rates_(rates_of(path)) {
  if (mode != CacheMode::buffered) direct_ = open_store(path, writable, true, faults, follows_links);
  if (mode != CacheMode::direct || !direct_) buffered_ = open_store(path, writable, false, faults, follows_links);
}

Store *SharedFile::choose_for_writing() const {
  if (!direct_) return buffered_.get();
  if (!buffered_) return direct_.get();
  if (traffic_.writes_cached()) return buffered_.get();
  const double direct = rates_.direct.load(), buffered = rates_.buffered.load();
  const bool bypasses = durable_ || direct < 1 / fast_bytes_per_second || direct <= buffered;
  return bypasses ? direct_.get() : buffered_.get();
}

Store *SharedFile::choose_for_reading(std::uint64_t offset, std::uint64_t length) const {
  if (!direct_) return buffered_.get();
  if (!buffered_) return direct_.get();
  if (traffic_.ample_room) return buffered_.get();
  const std::uint64_t cached = cached_pages(buffered_->files().front().buffered_descriptor(), offset, length);
  return 2 * cached * page >= length ? buffered_.get() : direct_.get();
}

// Writes bytes to the page cache. If the bytes must become durable, the device begins to write the bytes immediately.
// A later flush waits for the device, and reports errors of the device.
void SharedFile::write_through_cache(std::uint64_t offset, const std::byte *data, std::size_t length) {
  if (!durable_) return buffered_->write(0, offset, data, length);
  const int descriptor = buffered_->files().front().buffered_descriptor();
  for (std::size_t done = 0; done < length; done += written_back_bytes) {
    const std::size_t part = std::min(written_back_bytes, length - done);
    buffered_->write(0, offset + done, data + done, part);
    if (part >= min_written_back)
      static_cast<void>(sync_file_range(descriptor, static_cast<off_t>(offset + done), static_cast<off_t>(part),
                                        SYNC_FILE_RANGE_WRITE));
  }
}

void SharedFile::write(std::uint64_t offset, const std::byte *data, std::size_t length) {
  const bool aligned = (reinterpret_cast<std::uintptr_t>(data) - offset) % page == 0;
  Store &store = aligned || !buffered_ ? *choose_for_writing() : *buffered_;
  const bool direct = &store == direct_.get();
  const Clock::time_point begin = Clock::now();
  if (direct)
    move_by_pages(offset, length, [&](std::uint64_t from, std::uint64_t to) {
      store.write(0, from, data + (from - offset), to - from);
    });
  else
    write_through_cache(offset, data, length);
  if (length < min_measured_bytes || traffic_.writes_cached()) return;
  std::atomic<double> &rate = direct ? rates_.direct : rates_.buffered;
  rate.store(std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(length));
}

void SharedFile::read(std::uint64_t offset, std::byte *data, std::size_t length) {
  Store &store = *choose_for_reading(offset, length);
  const auto part = [&](std::uint64_t from, std::uint64_t to) {
    store.read(0, from, data + (from - offset), to - from);
  };
  if (&store == direct_.get()) return move_by_pages(offset, length, part);
  const std::uint64_t end = offset + length;
  for (std::uint64_t at = offset; at < end; at += buffered_read_bytes)
    part(at, std::min(at + buffered_read_bytes, end));
}

void SharedFile::flush() { (direct_ ? direct_ : buffered_)->flush(); }

}  // namespace outcrop::aggregate
