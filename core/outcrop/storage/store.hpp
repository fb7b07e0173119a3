// Store: the one narrow interface between planes in memory and bytes somewhere else.
//
//     submit(transfers) ──► [ in flight, at most depth() ] ──► reap(completions)
//
// A store owns a fixed set of open files, numbered in the order they were given, and moves bytes asynchronously. It knows
// nothing of planes, order or retries: a completion may be short, and it may be an error. The Pump (pump.hpp) puts
// those right; everybody but the Pump and tests should use that.
//
// submit() and reap() belong to one thread at a time; a store may change hands while nothing is in flight.
// wake() and flush() may be called from any thread at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace outcrop {

/// A file to open. It must exist; `size_bytes` counts only for memory that has no file behind it (empty path).
struct FileSpec {
  std::string path;
  bool writable = false;
  std::uint64_t size_bytes = 0;
};

/// One contiguous move between `data` and file number `file`. For direct stores `offset`, `length` and the address are
/// multiples of alignment(). `data` must stay valid until the transfer is reaped. Tags are the caller's; the
/// largest 64-bit value is reserved. At most 1 GiB.
struct Transfer {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte *data = nullptr;
  std::size_t length = 0;
  std::uint64_t tag = 0;
};

/// `result`: bytes moved, which may be fewer than asked for (0 at the end of the file), or -errno.
struct Completion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;
};

class Store {
 public:
  Store() = default;
  virtual ~Store() = default;
  Store(const Store &) = delete;
  Store &operator=(const Store &) = delete;

  /// Starts transfers. Together with those in flight there may be at most depth(). Every error, that of starting
  /// included, comes as a completion.
  virtual void submit(std::span<const Transfer> transfers) = 0;

  /// Takes finished transfers and returns how many. With `wait`, blocks until there is one, wake() is called or
  /// nothing is in flight; may also return 0 for no reason.
  virtual std::size_t reap(std::span<Completion> completions, bool wait) = 0;

  /// Makes a waiting reap() return soon, or the next one when none waits.
  virtual void wake() = 0;

  /// Returns when everything whose completion was reaped is on the device. Throws StorageError.
  virtual void flush() = 0;

  virtual std::size_t depth() const = 0;  ///< transfers that may be in flight
  virtual std::size_t files() const = 0;  ///< number of files
  virtual std::string path(std::uint32_t) const = 0;
  virtual std::string name() const = 0;       ///< backend, as `--io` calls it
  virtual bool direct() const = 0;            ///< every file bypasses the page cache
  virtual std::size_t alignment() const = 0;  ///< of offsets, lengths and addresses, in bytes; 1 when buffered
};

}  // namespace outcrop
