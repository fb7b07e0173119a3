// How an aggregator reaches its file: around the page cache or through it.
//
// Around it, whole pages go from the buffer to the device without a copy, and a step leaves nothing to flush and no pages
// behind; what is less than a page always goes through the cache (file.hpp of storage says why).
//
//     writing, ranks their own bytes, ample room   through it, straight from their memory: around it they would be copied.
//                                                  Durable: the device begins with each part while the next one is copied
//     writing, durable, else                       around it: what is in the cache has still to be flushed
//     writing, else                                around it, if the device keeps up with copying
//     reading                                      through it, where pages are there already or a step has ample room
//
// Where a device has been measured to be slow, the cache is tried, and whichever was faster last on that device is taken, for the
// next file, too. Own bytes go one way only, whatever was measured, and all ranks agree on whether there is ample room: ranks
// that chose each for itself were slower in the median.
// Reading through the cache takes about as long as around it, for the system reads ahead,
// and the next one who reads finds the pages. A step that would drive out what else is in memory goes around it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "outcrop/aggregate/sinks/path.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/storage/faulty.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

/// Seconds per byte of what was measured last on a device; 0: not yet.
struct DeviceRates {
  std::atomic<double> direct{0}, buffered{0};
};

/// What a step brings.
struct Traffic {
  bool ample_room = false;  // all nodes have it in their page caches
  bool own = false;         // each rank moves its own bytes

  /// Whatever has been measured.
  bool writes_cached() const { return own && ample_room; }
};

/// One thread at a time.
class Access final : public Sink {
 public:
  /// `follows_links`: the user has named the file; else what it is called follows from another name.
  Access(const std::string &path, bool writable, Path way, bool durable, const Traffic &traffic, const Faults &faults,
         bool follows_links = true);

  /// `data` lies as far beyond a page as `offset`, if it is to go around the cache. Both throw StorageError.
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override;
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  void flush() override;

  /// Whether the next write goes through the cache, from wherever it lies in memory.
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
