// How an aggregator reaches its file: around the page cache or through it.
//
// Around it, whole pages go from the buffer to the device without a copy, and a step leaves nothing to flush and no pages
// behind; what is less than a page always goes through the cache (file.hpp of storage says why). That is the faster way to
// write where the device keeps up with copying. Where it has been measured not to, and nobody asked for durability, the
// cache is tried, and whichever was faster last on that device is taken, for the next file, too.
//
// Reading goes through the cache where the pages are there already, or a step has ample room there: with the system reading
// ahead it takes about as long as around it, and the next one who reads finds them. A step that would drive out what else
// is in memory goes around it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "outcrop/aggregate/path.hpp"
#include "outcrop/aggregate/sink.hpp"
#include "outcrop/storage/faulty.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

/// Seconds per byte of what was measured last on a device; 0: not yet.
struct DeviceRates {
  std::atomic<double> direct{0}, buffered{0};
};

/// One thread at a time.
class Access final : public Sink {
 public:
  /// `node_bytes`: what this node moves in a step.
  Access(const std::string &path, bool writable, Path way, bool durable, std::uint64_t node_bytes,
         const Faults &faults);

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

  std::unique_ptr<Store> direct_, buffered_;  // one may be missing
  const bool durable_;
  const bool has_ample_room_;  // in the page cache, for a step
  DeviceRates &rates_;
};

}  // namespace outcrop::aggregate
