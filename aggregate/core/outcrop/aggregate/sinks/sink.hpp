// A sink writes and reads the rounds of an aggregator. There are three kinds:
//
//     SharedFile   the file of all ranks
//     StagedFile   a stage on a tier of this node, which is drained into that file    (stage.hpp)
//     NodeFile     one of several files, one for each node                            (node_files.hpp)
//
//     begin_step ─► write, write, ... ─► end_step    or, after a failure, drop_step
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

/// The user's choice whether transfers use the page cache.
enum class CacheMode {
  automatic,  ///< SharedFile decides for each step
  buffered,   ///< they use the page cache
  direct,     ///< whole pages bypass the page cache
};

/// One thread at a time may use a sink. The functions throw StorageError or CorruptionError.
class Sink {
 public:
  virtual ~Sink() = default;

  /// Begins a step of writing at `base`. `step` must be higher than the previous one.
  virtual void begin_step([[maybe_unused]] std::uint64_t step, [[maybe_unused]] std::uint64_t base) {}
  virtual void end_step() {}
  virtual void drop_step() {}

  /// A write bypasses the page cache only if `data` and `offset` have the same offset within a page.
  virtual void write(std::uint64_t offset, const std::byte *data, std::size_t length) = 0;
  virtual void read(std::uint64_t offset, std::byte *data, std::size_t length) = 0;

  /// Returns whether one read may include bytes that are not in the plan. This saves calls.
  virtual bool reads_holes() const { return true; }

  /// Makes all written bytes durable in their file.
  virtual void flush() = 0;
  /// Returns whether a flush of one sink of a node also flushes the bytes that the other sinks of the node have written.
  virtual bool flushes_for_node() const { return true; }

  /// Returns whether the next transfer uses the page cache and needs no step. Then its memory needs no alignment.
  virtual bool writes_buffered() const { return false; }
  virtual bool reads_buffered([[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::uint64_t length) const {
    return false;
  }

  /// Discards the bytes that the sink keeps for reading, because other sinks will write to the same places of the file.
  virtual void forget() {}
};

// --- how a file is opened ------------------------------------------------------------------------------------------

/// How ranks open a file together. All ranks must agree, because one rank must not bypass the page cache while another rank
/// uses it for the same file.
struct OpenMode {
  bool staged = false, node_files = false;
  bool ample_room = false;  // in the page cache, for the bytes that a node moves in a step
};

/// Returns whether the page cache of this node has ample room for a step at this moment.
bool has_ample_room(std::uint64_t node_bytes);

/// Collective. In the result, there is ample room if all ranks have it. Throws InputError if ranks differ in the other modes.
OpenMode agree_on_open_mode(const Link &link, const OpenMode &mine);

// --- the shared file -----------------------------------------------------------------------------------------------
// A direct transfer moves whole pages between the buffer and the device without a copy, leaves nothing to flush, and leaves no
// pages in the cache. Parts of pages always use the cache (file.hpp of storage gives the reason). CacheMode::automatic chooses:
//
//     writing, each rank performs its own I/O,   buffered, straight from the memory of the rank; a direct write would need a
//     ample room                                 copy. If durable, the device begins to write each part during the next copy
//     writing, durable, otherwise                direct, because bytes in the cache must still be flushed
//     writing, otherwise                         direct, if the device is as fast as copying
//     reading                                    buffered, if the pages are in the cache or there is ample room for a step
//
// If the device has been measured to be slow, the buffered way is tried, too. Later writes to this device take the way that was
// faster in its last measurement, also for other files. Measurements do not count if ranks perform their own I/O, and all
// ranks agree on whether there is ample room: the median time was longer when ranks chose for themselves.
// A buffered read takes about as long as a direct one, because the system reads ahead, and the next reader finds the pages in
// the cache. Steps without ample room are read directly, because they would displace other data in memory.

/// Seconds per byte of the last measurement on a device. 0: none.
struct DeviceRates {
  std::atomic<double> direct{0}, buffered{0};
};

/// Properties of a step that are known before it begins.
struct Traffic {
  bool ample_room = false;  // in the page caches of all nodes
  bool own = false;         // each rank performs its own I/O

  /// Returns whether writes use the page cache without regard to measurements.
  bool writes_cached() const { return own && ample_room; }
};

/// The file of all ranks. One thread at a time may use it.
class SharedFile final : public Sink {
 public:
  /// `follows_links`: true if the user has given the path. A path that was derived from another one could be a link that
  /// another user has made.
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
