#include "outcrop/aggregate/sinks/access.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>

#include "outcrop/aggregate/sinks/call_store.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/round.hpp"
#include "outcrop/storage/files.hpp"

namespace outcrop::aggregate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t page = AlignedMemory::page_bytes;

// Below this, copying to the page cache may well be faster than the device.
constexpr double fast_bytes_per_second = 1.5e9;
// Shorter transfers say more about latency than about which way is faster.
constexpr std::size_t telling_bytes = std::size_t{1} << 20;
// What comes through the page cache is copied while the system reads on, and while it is still in a processor's cache.
constexpr std::uint64_t cached_piece_bytes = 128 << 10;
// After so many bytes the device begins with what shall be durable; less than the least is not worth a transfer.
constexpr std::size_t written_back_bytes = std::size_t{2} << 20, written_back_least = std::size_t{64} << 10;

std::unique_ptr<Store> open_store(const std::string &path, bool writable, bool direct, const Faults &faults,
                                  bool follows_links) {
  std::vector<outcrop::File> files;
  files.push_back(follows_links ? open_named(path, writable, direct) : open_without_links(path, writable, direct));
  if (direct && !files.front().direct()) return nullptr;
  std::unique_ptr<Store> store = make_call_store(std::move(files));
  return faults.any() ? make_faulty_store(std::move(store), faults) : std::move(store);
}

// Pages of a range that are in the page cache; 0 where the system does not say.
std::uint64_t cached_pages([[maybe_unused]] int descriptor, [[maybe_unused]] std::uint64_t offset,
                           [[maybe_unused]] std::uint64_t length) {
#ifdef SYS_cachestat
  constexpr long number = SYS_cachestat;
#else
  constexpr long number = 451;  // the same everywhere; kernels before 6.5 do not know it
#endif
  const std::uint64_t range[2] = {offset, length};
  std::uint64_t counts[5] = {};
  return syscall(number, descriptor, range, counts, 0) == 0 ? counts[0] : 0;
}

// They stay as long as the process: files come and go.
std::mutex rates_mutex;
std::map<dev_t, DeviceRates> rates_of_devices;

// Of the device that a file is on.
DeviceRates &rates_of(const std::string &path) {
  struct stat status {};
  const dev_t device = stat(path.c_str(), &status) == 0 ? status.st_dev : 0;
  const std::lock_guard lock(rates_mutex);
  return rates_of_devices[device];
}

}  // namespace

Access::Access(const std::string &path, bool writable, Path way, bool durable, const Traffic &traffic,
               const Faults &faults, bool follows_links)
    : durable_(durable), traffic_(traffic), rates_(rates_of(path)) {
  if (way != Path::buffered) direct_ = open_store(path, writable, true, faults, follows_links);
  if (way != Path::direct || !direct_) buffered_ = open_store(path, writable, false, faults, follows_links);
}

Store *Access::choose_for_writing() const {
  if (!direct_) return buffered_.get();
  if (!buffered_) return direct_.get();
  if (traffic_.writes_cached()) return buffered_.get();
  const double direct = rates_.direct.load(), buffered = rates_.buffered.load();
  const bool is_direct = durable_ || direct < 1 / fast_bytes_per_second || direct <= buffered;
  return is_direct ? direct_.get() : buffered_.get();
}

Store *Access::choose_for_reading(std::uint64_t offset, std::uint64_t length) const {
  if (!direct_) return buffered_.get();
  if (!buffered_) return direct_.get();
  if (traffic_.ample_room) return buffered_.get();
  const std::uint64_t cached = cached_pages(buffered_->files().front().buffered_descriptor(), offset, length);
  return 2 * cached * page >= length ? buffered_.get() : direct_.get();
}

// What shall be durable is on its way to the device at once; the flush waits for it, and tells of errors.
void Access::write_through_cache(std::uint64_t offset, const std::byte *data, std::size_t length) {
  if (!durable_) return buffered_->write(0, offset, data, length);
  const int descriptor = buffered_->files().front().buffered_descriptor();
  for (std::size_t done = 0; done < length; done += written_back_bytes) {
    const std::size_t part = std::min(written_back_bytes, length - done);
    buffered_->write(0, offset + done, data + done, part);
    if (part >= written_back_least)
      static_cast<void>(sync_file_range(descriptor, static_cast<off_t>(offset + done), static_cast<off_t>(part),
                                        SYNC_FILE_RANGE_WRITE));
  }
}

void Access::write(std::uint64_t offset, const std::byte *data, std::size_t length) {
  const bool aligned = (reinterpret_cast<std::uintptr_t>(data) - offset) % page == 0;
  Store &store = aligned || !buffered_ ? *choose_for_writing() : *buffered_;
  const bool is_direct = &store == direct_.get();
  const Clock::time_point begin = Clock::now();
  // Apart, so that whole pages in between are taken as such.
  const std::uint64_t end = offset + length;
  std::uint64_t whole_begin = round_up(offset, page), whole_end = round_down(end, page);
  if (!is_direct) {
    write_through_cache(offset, data, length);
  } else if (whole_begin >= whole_end) {
    store.write(0, offset, data, length);
  } else {
    const auto part = [&](std::uint64_t from, std::uint64_t to) {
      if (from < to) store.write(0, from, data + (from - offset), to - from);
    };
    part(offset, whole_begin);
    part(whole_begin, whole_end);
    part(whole_end, end);
  }
  if (length < telling_bytes || traffic_.writes_cached()) return;
  std::atomic<double> &rate = is_direct ? rates_.direct : rates_.buffered;
  rate.store(std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(length));
}

void Access::read(std::uint64_t offset, std::byte *data, std::size_t length) {
  Store &store = *choose_for_reading(offset, length);
  const std::uint64_t end = offset + length;
  const std::uint64_t whole_begin = round_up(offset, page), whole_end = round_down(end, page);
  if (&store != direct_.get() || whole_begin >= whole_end) {
    for (std::uint64_t at = offset; at < end; at += cached_piece_bytes)
      store.read(0, at, data + (at - offset), std::min(cached_piece_bytes, end - at));
    return;
  }
  if (offset < whole_begin) store.read(0, offset, data, whole_begin - offset);
  store.read(0, whole_begin, data + (whole_begin - offset), whole_end - whole_begin);
  if (whole_end < end) store.read(0, whole_end, data + (whole_end - offset), end - whole_end);
}

void Access::flush() { (direct_ ? direct_ : buffered_)->flush(); }

}  // namespace outcrop::aggregate
