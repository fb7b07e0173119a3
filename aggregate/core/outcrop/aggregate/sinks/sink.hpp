// A sink writes and reads the bytes of an aggregator's rounds. Three kinds of sinks exist:
//
//     SharedFile   the file of all ranks
//     StagedFile   a stage on a tier of this node, which is drained into that file    (stage.hpp)
//     NodeFile     one of several files, one for each node                            (node_files.hpp)
//
//     begin_step ─► write, write, ... ─► end_step    or, after a failure, drop_step
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

/// The user chooses between the page cache and direct transfers.
enum class CacheMode {
  automatic,  ///< SharedFile chooses for each step whether it uses the page cache
  buffered,   ///< all transfers use the page cache
  direct,     ///< whole pages bypass the page cache
};

/// The interface of all sinks. Only one thread at a time may use a sink. The functions throw StorageError and
/// CorruptionError.
class Sink {
 public:
  virtual ~Sink() = default;

  /// Begins to write a step with the base `base`. `step` must be higher than the number of the previous step.
  virtual void begin_step([[maybe_unused]] std::uint64_t step, [[maybe_unused]] std::uint64_t base) {}
  virtual void end_step() {}
  virtual void drop_step() {}

  /// Writes bytes. A write can bypass the page cache only if `data` and `offset` have the same offset within a page.
  virtual void write(std::uint64_t offset, const std::byte *data, std::size_t length) = 0;
  virtual void read(std::uint64_t offset, std::byte *data, std::size_t length) = 0;

  /// Returns true if a read may also include holes, which are bytes between the ranges of the plan. One long read with
  /// holes is faster than several short reads without holes.
  virtual bool reads_holes() const { return true; }

  /// Makes all bytes that were written with this sink durable in their file.
  virtual void flush() = 0;
  /// Returns true if a flush of this sink also flushes the bytes of all other sinks on the same node.
  virtual bool flushes_for_node() const { return true; }

  /// writes_buffered() and reads_buffered() return true if the next transfer uses the page cache. A transfer with the
  /// page cache needs no buffer, because write() and read() then accept memory at any address. A transfer with the page
  /// cache also needs no call of begin_step().
  virtual bool writes_buffered() const { return false; }
  virtual bool reads_buffered([[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::uint64_t length) const {
    return false;
  }

  /// A sink may keep copies of bytes that it has written. After a call of forget(), reads use only the file, and not
  /// these copies. The caller must call forget() before other sinks write to the same places of the file.
  virtual void forget() {}
};

// --- how a file is opened ------------------------------------------------------------------------------------------

/// A random text that File::create() stores with a file, in an extended attribute. A stage stores the identity of its
/// file. Therefore a step of an earlier file with the same path is not drained into the new file. The text is empty if
/// the file has no identity: another program has made the file, or the file system has no extended attributes.
using FileIdentity = std::array<char, 33>;

FileIdentity new_identity();
/// Stores the identity in the extended attributes of an open file. Does nothing if the file system has no extended
/// attributes.
void store_identity(int descriptor, const FileIdentity &identity);
FileIdentity identity_of(const std::string &path);

/// The mode in which ranks open a file. All ranks must use the same mode. The reason is that one rank must not bypass
/// the page cache while another rank uses the page cache for the same file.
struct OpenMode {
  bool staged = false, node_files = false;
  bool ample_room = false;  // true if the page cache has ample room for the bytes that a node transfers in a step
  FileIdentity identity{};  // only the value of rank 0 counts
};

/// Returns true if the page cache of this node has ample room for `node_bytes` bytes at present.
bool has_ample_room(std::uint64_t node_bytes);

/// All ranks must call this function. Returns the mode that all ranks must use. In the returned mode, `ample_room` is
/// true only if it is true on all ranks, and `identity` is the value of rank 0. Throws InputError if another member of
/// OpenMode differs between ranks.
OpenMode agree_on_open_mode(const Link &link, const OpenMode &mine);

// --- the shared file -----------------------------------------------------------------------------------------------
// A direct transfer moves whole pages between the buffer and the device without a copy. A direct transfer leaves no
// bytes that wait for a flush, and no pages in the cache. Incomplete pages are always transferred through the cache
// (outcrop/storage/file.hpp gives the reason). CacheMode::automatic uses these rules:
//
//     writing, each rank performs its own I/O,   buffered, from the rank's memory, because a direct write needs a copy;
//     ample room                                 if durable, the device begins to write each part during the next copy
//     writing, durable, all other cases          direct, because bytes in the cache must still be flushed
//     writing, not durable, all other cases      direct, if the device is as fast as copying
//     reading                                    buffered, if the pages are in the cache, or if a step has ample room
//
// If direct writes to a device are slow, the library also measures the speed of buffered writes to the device. Later
// writes to the device use the kind of write that was faster in the latest measurements. Ranks that perform their own
// I/O ignore the measurements. Ranks that perform their own I/O also decide together whether the cache has ample room.
// If each rank decided alone, the median time of a step was longer. A buffered read takes about as long as a direct
// read, because the system reads ahead of the requests. After a buffered read, the pages are in the cache for the next
// reader. If the cache has no ample room for a step, the step is read directly. Otherwise the pages of the step would
// displace other data from the cache.

/// The latest measured times of a device, in seconds per byte, for direct writes and for buffered writes. The value 0
/// means that no time has been measured yet.
struct DeviceRates {
  std::atomic<double> direct{0}, buffered{0};
};

/// The properties of a step that are known before the step begins.
struct Traffic {
  bool ample_room = false;  // true if the page caches of all nodes have ample room for a step
  bool own = false;         // true if each rank performs its own I/O

  /// Returns true if writes always use the page cache. In this case, measurements are ignored.
  bool writes_cached() const { return own && ample_room; }
};

/// The file of all ranks. Only one thread at a time may use a SharedFile.
class SharedFile final : public Sink {
 public:
  /// `follows_links` must be false if this library has chosen the file's name, because another user may have made a
  /// link with this name. A path that the user has given may be a link.
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

  std::unique_ptr<Store> direct_, buffered_;  // null if the file has no transfers of this kind
  const bool durable_;
  const Traffic traffic_;
  DeviceRates &rates_;
};

}  // namespace outcrop::aggregate
