// How an aggregator reaches its file: around the page cache or through it.
//
// Around it, whole pages go from the buffer to the device without a copy, and a step leaves nothing to flush and no pages
// behind; what is less than a page always goes through the cache (file.hpp of storage says why). That is the faster way
// where the device keeps up with copying. Where it has been measured not to, and nobody asked for durability, the cache is
// tried, and whichever was faster last is taken. Reading goes through the cache where the pages are there already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "outcrop/aggregate/path.hpp"
#include "outcrop/aggregate/sink.hpp"
#include "outcrop/storage/faulty.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

/// One thread at a time.
class Access final : public Sink {
 public:
  Access(const std::string &path, bool writable, Path way, bool durable, const Faults &faults);

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
  double seconds_per_byte_direct_ = 0, seconds_per_byte_buffered_ = 0;  // measured last; 0: not yet
};

}  // namespace outcrop::aggregate
