// The file of all ranks, as an aggregator reaches it: around the page cache or through it.
//
// Around the cache, whole pages go from the buffer to the device without a copy. Nothing is left to flush, and no pages stay
// in the cache. Less than a page always goes through the cache (file.hpp of storage says why). With CacheMode::automatic:
//
//     writing, each rank its own bytes, ample room   through it, straight from their memory: around it they would be copied.
//                                                    Durable: the device begins with each part while the next one is copied
//     writing, durable, else                         around it: what is in the cache has still to be flushed
//     writing, else                                  around it, if the device keeps up with copying
//     reading                                        through it, if pages are there already or a step has ample room
//
// If the device has been measured to be slow, the cache is tried, and the way that was faster last time on that device is
// taken, also for the next file. Ranks that write their own bytes go one way only, whatever was measured, and all ranks
// agree on whether there is ample room: ranks that chose each for itself were slower in the median.
// Reading through the cache takes about as long as around it, because the system reads ahead, and the next reader finds the
// pages. A step that would drive other data out of memory goes around the cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/aggregate/transport/link.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

/// How ranks open a file together. Ranks that write one file must not do so around the page cache and through it at the same
/// time, so all of them must agree.
struct OpenMode {
  bool staged = false, node_files = false;
  bool ample_room = false;  // in the page cache, for what a node moves in a step
};

/// Whether the page cache of this node has ample room for a step, at this moment.
bool has_ample_room(std::uint64_t node_bytes);

/// Collective. There is ample room if all ranks have it. Throws InputError if ranks differ in the other modes.
OpenMode agree_on_open_mode(const Link &link, const OpenMode &mine);

/// Seconds per byte of the last measurement on a device; 0: none yet.
struct DeviceRates {
  std::atomic<double> direct{0}, buffered{0};
};

/// What is known of a step before it begins.
struct Traffic {
  bool ample_room = false;  // all nodes have it in their page caches
  bool own = false;         // each rank moves its own bytes

  /// Whether writing goes through the cache, whatever has been measured.
  bool writes_cached() const { return own && ample_room; }
};

/// One thread at a time.
class SharedFile final : public Sink {
 public:
  /// `follows_links`: the user has named the file. Otherwise its name follows from another one, and may be a link that
  /// somebody else has put there.
  SharedFile(const std::string &path, bool writable, CacheMode mode, bool durable, const Traffic &traffic,
             const Faults &faults, bool follows_links = true);

  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override;
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  void flush() override;

  bool writes_buffered() const override { return choose_for_writing() == buffered_.get(); }
  bool reads_buffered(std::uint64_t offset, std::uint64_t length) const override {
    return choose_for_reading(offset, length) == buffered_.get();
  }

 private:
  Store *choose_for_writing() const;
  Store *choose_for_reading(std::uint64_t offset, std::uint64_t length) const;
  void write_through_cache(std::uint64_t offset, const std::byte *data, std::size_t length);

  std::unique_ptr<Store> direct_, buffered_;  // one may be missing
  const bool durable_;
  const Traffic traffic_;
  DeviceRates &rates_;
};

}  // namespace outcrop::aggregate
