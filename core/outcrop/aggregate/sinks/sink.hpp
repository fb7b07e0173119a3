// What the rounds of an aggregator go to and come from:
//
//     Access       the file of all ranks                                            (access.hpp)
//     StagedFile   a stage on a tier of this node, which is drained into that file  (staged_file.hpp)
//     NodeFile     one of several files, one for each node                          (node_file.hpp)
//
//     begin_step ─► write, write, ... ─► end_step    or, when something failed, drop_step
#pragma once

#include <cstddef>
#include <cstdint>

namespace outcrop::aggregate {

/// One thread at a time. All functions that do something throw StorageError or CorruptionError.
class Sink {
 public:
  virtual ~Sink() = default;

  /// A step of writing at `base` begins; `step` is higher than the last one.
  virtual void begin_step([[maybe_unused]] std::uint64_t step, [[maybe_unused]] std::uint64_t base) {}
  virtual void end_step() {}
  virtual void drop_step() {}

  /// `data` lies as far beyond a page as `offset`, if it is to go around the cache.
  virtual void write(std::uint64_t offset, const std::byte *data, std::size_t length) = 0;
  virtual void read(std::uint64_t offset, std::byte *data, std::size_t length) = 0;

  /// Whether one read may go over bytes that the plan has not, which saves calls.
  virtual bool reads_holes() const { return true; }

  /// All that was written is durable in its file.
  virtual void flush() = 0;
  /// Whether a flush of one sink of a node flushes what all of its sinks have written.
  virtual bool flushes_for_node() const { return true; }

  /// Whether the next transfer goes through the page cache, from wherever it lies in memory, and needs no step.
  virtual bool writes_buffered() const { return false; }
  virtual bool reads_buffered([[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::uint64_t length) const {
    return false;
  }

  /// Other bytes than those of before will be written in the same places, by other sinks: nothing may be kept of them.
  virtual void forget() {}
};

}  // namespace outcrop::aggregate
