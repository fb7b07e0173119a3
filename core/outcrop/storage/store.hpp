// The interface between planes in memory and bytes in files.
//
//     submit(transfers) ──► at most depth() in flight ──► reap(completions)
//
// submit() and reap() of a store never throw. A failure is the result of a completion, so the caller always knows which
// buffers the system may still write to. Transfers complete in any order and may be short, as with pread. One thread at
// a time uses a store. Another thread may take over while nothing is in flight.
//
// A new backend needs one file in this folder, and a declaration and a line of the table in store.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop {

/// A file for a store to open, or its `size` bytes from byte `begin` on. The file must exist and have its final size.
struct FileSpec {
  std::string path;
  bool writable = false;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;  ///< 0: the whole file
  bool scratch = false;    ///< never flushed, because its content is not needed after the run
  bool direct = true;      ///< transfers may bypass the page cache
  int folder = -1;         ///< if not -1, the path is relative to this open folder and must not leave it
  std::string label = "";  ///< names the file in messages instead of the path
};

/// Moves `length` bytes between memory at `data` and file number `file` at `offset`. The completion has the same `tag`.
struct Transfer {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte *data = nullptr;
  std::size_t length = 0;
  std::uint64_t tag = 0;
};

/// `result` is the number of bytes moved, or -errno. It may be less than requested: the caller then asks for the rest, and
/// asks again after EAGAIN and EINTR. 0 means the end of the file, and the caller takes it for a failure. A store may
/// answer EAGAIN for a transfer that it has not begun.
struct Completion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;
};

class Store {
 public:
  explicit Store(std::vector<File> files) : files_(std::move(files)) {}
  virtual ~Store() = default;
  Store(const Store &) = delete;
  Store &operator=(const Store &) = delete;

  /// The name of the backend in the table of store.cpp.
  virtual const char *name() const = 0;

  /// The maximum number of transfers in flight. The caller must not submit more.
  virtual std::size_t depth() const = 0;

  /// Starts the transfers. reap() reports each of them exactly once.
  virtual void submit(std::span<const Transfer> transfers) = 0;

  /// Stores up to completions.size() results and returns their number. With `wait` it blocks until there is at least
  /// one result, unless nothing is in flight.
  virtual std::size_t reap(std::span<Completion> completions, bool wait) = 0;

  /// Makes all completed writes durable. Nothing may be in flight. Throws StorageError.
  virtual void flush();

  /// Closes all files. Nothing may be in flight. Later transfers fail with EBADF.
  virtual void close() { files_.clear(); }

  virtual const std::vector<File> &files() const { return files_; }
  const std::string &path(std::uint32_t file) const { return files().at(file).path(); }

  /// True if aligned transfers of every file bypass the page cache.
  bool direct() const;

  /// Alignment in bytes of offset, length and address for O_DIRECT; 1 if no file is direct.
  std::size_t alignment() const;

  /// The reason why this is not the preferred backend or mode; empty if it is.
  const std::string &note() const { return note_; }
  void add_note(const std::string &text) { note_ += (note_.empty() ? "" : "; ") + text; }

  /// Move `length` bytes and wait for them. Any thread may call these, but not while a pump uses the store. Throw
  /// StorageError.
  void read(std::uint32_t file, std::uint64_t offset, std::byte *data, std::size_t length);
  void write(std::uint32_t file, std::uint64_t offset, const std::byte *data, std::size_t length);

 protected:
  /// The descriptor and the offset for the system call of a transfer. The descriptor is -1, which leads to EBADF, if
  /// the store has no such file, if a write needs a file that was not opened for writing, or if the transfer would
  /// leave the part of the file.
  struct Location {
    int descriptor = -1;
    std::uint64_t offset = 0;
  };
  Location locate(const Transfer &transfer) const;

 private:
  void move(Transfer whole);

  std::vector<File> files_;
  std::string note_;
  std::mutex moving_;
};

// --- opening --------------------------------------------------------------------------------------------------------

/// Deliberate faults for tests. The same seed gives the same faults. Rates are probabilities per transfer, from 0 to 1.
struct Faults {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t seed = 0;
  double error_rate = 0;                   ///< the transfer fails with EIO
  double again_rate = 0;                   ///< the transfer fails with EAGAIN
  double short_rate = 0;                   ///< the transfer moves fewer bytes than requested
  double flip_rate = 0;                    ///< one bit of the data is flipped after a read
  std::uint64_t full_after_bytes = never;  ///< writes fail with ENOSPC once they have written this number of bytes
  std::uint64_t error_at = never;          ///< the transfer with this number (from 0) fails with EIO
  std::uint64_t flip_at = never;           ///< the read with this number (from 0) has one bit flipped
  std::uint64_t flush_error_at = never;    ///< the flush with this number (from 0) fails with EIO
  std::uint64_t latency_microseconds = 0;  ///< minimum delay of each completion

  bool any() const { return *this != Faults{.seed = seed}; }
  bool operator==(const Faults &) const = default;
};

struct StoreOptions {
  bool direct = true;      ///< bypass the page cache where files support it
  std::size_t depth = 64;  ///< maximum number of transfers in flight
  Faults faults;
};

/// The result of a trial of a backend. `reason` says why the backend does not work on this machine; empty if it works.
struct Probe {
  std::string name;
  std::string reason;
};

/// Tries each backend with a transfer of a few bytes, in the order of preference of "auto".
std::vector<Probe> probe_backends();

/// Opens the files with the named backend; "auto" takes the first backend that works. The store's note() names the
/// backends that do not work and a file for which O_DIRECT is refused. Throws InputError for an unknown or unavailable
/// backend, StorageError for a file that cannot be opened.
std::unique_ptr<Store> open_store(const std::string &backend, const std::vector<FileSpec> &files,
                                  const StoreOptions &options = {});

/// Wraps a store and adds faults. Without faults the result behaves exactly like the wrapped store.
std::unique_ptr<Store> make_faulty_store(std::unique_ptr<Store> inside, const Faults &faults);

}  // namespace outcrop
