// What the rounds of an aggregator are written to and read from:
//
//     SharedFile   the file of all ranks                                            (shared_file.hpp)
//     StagedFile   a stage on a tier of this node, which is drained into that file  (stage.hpp)
//     NodeFile     one of several files, one for each node                          (node_files.hpp)
//
//     begin_step ─► write, write, ... ─► end_step    or, after a failure, drop_step
#pragma once

#include <cstddef>
#include <cstdint>

namespace outcrop::aggregate {

/// Through the page cache or around it, as users choose.
enum class CacheMode {
  automatic,  ///< what is best for the step (shared_file.hpp)
  buffered,   ///< through the page cache
  direct,     ///< around it, in whole pages
};

/// One thread at a time. The functions throw StorageError or CorruptionError.
class Sink {
 public:
  virtual ~Sink() = default;

  /// Begins a step of writing at `base`; `step` is higher than the last one.
  virtual void begin_step([[maybe_unused]] std::uint64_t step, [[maybe_unused]] std::uint64_t base) {}
  virtual void end_step() {}
  virtual void drop_step() {}

  /// `data` has the same offset within a page as `offset`, if it is to go around the page cache.
  virtual void write(std::uint64_t offset, const std::byte *data, std::size_t length) = 0;
  virtual void read(std::uint64_t offset, std::byte *data, std::size_t length) = 0;

  /// Whether one read may include bytes that are not in the plan, which saves calls.
  virtual bool reads_holes() const { return true; }

  /// Makes all that was written durable in its file.
  virtual void flush() = 0;
  /// Whether a flush of one sink of a node flushes what all of its sinks have written.
  virtual bool flushes_for_node() const { return true; }

  /// Whether the next transfer goes through the page cache and needs no step. Then its memory needs no alignment.
  virtual bool writes_buffered() const { return false; }
  virtual bool reads_buffered([[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::uint64_t length) const {
    return false;
  }

  /// Forgets the bytes that it holds, because other sinks will write the same places of the file.
  virtual void forget() {}
};

}  // namespace outcrop::aggregate
