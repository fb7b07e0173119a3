// The interface between planes in memory and bytes in files.
//
//     submit(transfers) ──► at most depth() in flight ──► reap(completions)
//
// A store never throws from submit or reap: a failure is the result of a completion, so the caller always knows which
// buffers the system may still write to. Transfers complete in any order and may be short, as with pread. One thread at a
// time drives a store; another thread may take over while nothing is in flight.
//
// A new backend is one file beside this one and one line in the table of store.cpp.
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

/// A file for a store to open, or the `size` bytes of it from byte `begin` on. It must exist with its final size.
struct FileSpec {
  std::string path;
  bool writable = false;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;  ///< 0: the whole file
  bool scratch = false;    ///< never flushed: its content is not needed after the run
  bool direct = true;      ///< may bypass the page cache
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

/// `result`: bytes moved (maybe fewer than asked, 0 at the end of the file) or -errno.
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

  /// The name in the table of backends.
  virtual const char *name() const = 0;

  /// The maximum number of transfers in flight. The caller must not submit more.
  virtual std::size_t depth() const = 0;

  /// Starts the transfers. reap() reports each of them exactly once.
  virtual void submit(std::span<const Transfer> transfers) = 0;

  /// Returns up to completions.size() results and their number; with `wait` at least one if any transfer is in flight.
  virtual std::size_t reap(std::span<Completion> completions, bool wait) = 0;

  /// Makes completed writes durable. Nothing may be in flight. Throws StorageError.
  virtual void flush();

  /// Closes all files. Nothing may be in flight. Later transfers fail with EBADF.
  virtual void close() { files_.clear(); }

  virtual const std::vector<File> &files() const { return files_; }
  const std::string &path(std::uint32_t file) const { return files().at(file).path(); }

  /// True if aligned transfers of every file bypass the page cache.
  bool direct() const;

  /// Alignment in bytes of offset, length and address for O_DIRECT; 1 if no file is direct.
  std::size_t alignment() const;

  /// Why this is not the preferred backend or mode; empty if it is.
  const std::string &note() const { return note_; }
  void add_note(const std::string &text) { note_ += (note_.empty() ? "" : "; ") + text; }

  /// Moves `length` bytes and waits. Any thread may call these, but not while a pump uses the store. Throws StorageError.
  void read(std::uint32_t file, std::uint64_t offset, std::byte *data, std::size_t length);
  void write(std::uint32_t file, std::uint64_t offset, const std::byte *data, std::size_t length);

 protected:
  /// The descriptor and the offset for the system call of a transfer. The descriptor is -1 (which gives EBADF) if there is no
  /// such file, it was not opened for writing, or the transfer would leave its part.
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

/// Faults on purpose, repeatable by their seed, for tests. Rates are probabilities per transfer, from 0 to 1.
struct Faults {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t seed = 0;
  double error_rate = 0;                   ///< fails with EIO
  double again_rate = 0;                   ///< fails with EAGAIN
  double short_rate = 0;                   ///< moves fewer bytes than asked
  double flip_rate = 0;                    ///< flips one bit of what was read
  std::uint64_t full_after_bytes = never;  ///< writes fail with ENOSPC after that many bytes
  std::uint64_t error_at = never;          ///< the transfer with this number (from 0) fails with EIO
  std::uint64_t flip_at = never;           ///< one bit of the read with this number is flipped
  std::uint64_t flush_error_at = never;    ///< the flush with this number fails with EIO
  std::uint64_t latency_microseconds = 0;  ///< minimum delay of each completion

  bool any() const { return *this != Faults{.seed = seed}; }
  bool operator==(const Faults &) const = default;
};

struct StoreOptions {
  bool direct = true;      ///< bypass the page cache where files support it
  std::size_t depth = 64;  ///< maximum number of transfers in flight
  Faults faults;
};

/// The result of trying a backend: why it does not work on this machine, or an empty reason if it does.
struct Probe {
  std::string name;
  std::string reason;
};

/// Sets each backend up and moves a few bytes with it, in the order in which "auto" prefers them.
std::vector<Probe> probe_backends();

/// Opens the files with the backend of that name; "auto" takes the first that works. The store's note() says what "auto" or
/// O_DIRECT could not use. Throws InputError for an unknown or unavailable backend, StorageError for a file that cannot be
/// opened.
std::unique_ptr<Store> open_store(const std::string &backend, const std::vector<FileSpec> &files,
                                  const StoreOptions &options = {});

/// Wraps a store. Without faults it behaves exactly as the store inside.
std::unique_ptr<Store> make_faulty_store(std::unique_ptr<Store> inside, const Faults &faults);

}  // namespace outcrop
