// A store transfers bytes between memory and files.
//
//     submit(transfers) ──► at most depth() in flight ──► reap(completions)
//
// submit() and reap() of a store never throw. A failure is reported as the result of a completion. So the caller always
// knows which memory the system can still use. Transfers complete in any order. A transfer can be short: it moves fewer
// bytes than requested, as pread() can do. Only one thread may use a store at a time. A second thread may take over the
// store if no transfer is in flight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop {

/// Describes a file that a store opens. If `size` is not 0, the store uses only `size` bytes of the file, from byte
/// `begin` on. The file must exist and have its final size.
struct FileSpec {
  std::string path;
  bool writable = false;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;  ///< the value 0 means the whole file
  bool scratch = false;    ///< true if the file is never flushed, because its content is not needed after the run
  bool direct = true;      ///< true if transfers may bypass the page cache
  int folder = -1;         ///< if not -1, the path is relative to this open folder and must not lead outside
  std::string label = "";  ///< names the file in messages instead of the path
};

/// A transfer of `length` bytes between memory at `data` and file number `file` at `offset`. The completion of the
/// transfer has the same `tag` as the transfer.
///
/// If `parts` is not empty, the memory consists of these parts, and `data` is the beginning of the first part. The
/// parts have `length` bytes together. The list of parts must stay valid until the transfer is complete.
struct Transfer {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte *data = nullptr;
  std::size_t length = 0;
  std::uint64_t tag = 0;
  std::span<iovec> parts = {};
};

/// Copies the first `length` bytes of a transfer from its memory to `place`, or from `place` to its memory.
inline void copy(const Transfer &transfer, std::byte *place, std::size_t length) {
  iovec whole{transfer.data, transfer.length};
  for (const iovec &part : transfer.parts.empty() ? std::span(&whole, 1) : transfer.parts) {
    const std::size_t bytes = std::min(part.iov_len, length);
    std::memcpy(transfer.write ? place : begin_of(part), transfer.write ? begin_of(part) : place, bytes);
    place += bytes;
    length -= bytes;
  }
}

/// The end of a transfer. `result` is the number of bytes transferred, or -errno. After a short transfer, the caller
/// submits the remaining bytes. After EAGAIN and EINTR, the caller repeats the transfer. A store can return EAGAIN for
/// a transfer that has not begun. A result of 0 means that the file ends before the transfer, which is a failure.
struct Completion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;
};

class Store {
 public:
  explicit Store(std::vector<File> files) : files_(std::move(files)) {}
  virtual ~Store() = default;

  /// Returns the name of the backend in the table of store.cpp.
  virtual const char *name() const = 0;

  /// Returns the maximum number of transfers in flight. The caller must not exceed this number.
  virtual std::size_t depth() const = 0;

  /// Starts the transfers. Later, reap() reports the end of each transfer exactly once.
  virtual void submit(std::span<const Transfer> transfers) = 0;

  /// Writes up to completions.size() results to `completions` and returns their number. If `wait` is true, waits until
  /// at least one result exists. Does not wait if no transfer is in flight.
  virtual std::size_t reap(std::span<Completion> completions, bool wait) = 0;

  /// Makes all completed writes durable. No transfer may be in flight. Throws StorageError.
  virtual void flush();

  /// Replaces file number `file` by another open file and closes the old one. No transfer of this file may be in
  /// flight. Transfers of other files may be in flight. Stores that map their files do not support this function.
  virtual void replace(std::uint32_t file, File opened) { files_.at(file) = std::move(opened); }

  /// Closes all files. No transfer may be in flight. Later transfers fail with EBADF.
  virtual void close() { files_.clear(); }

  virtual const std::vector<File> &files() const { return files_; }
  const std::string &path(std::uint32_t file) const { return files().at(file).path(); }

  bool direct() const;  ///< true if aligned transfers of every file bypass the page cache

  /// Returns the alignment, in bytes, that O_DIRECT requires for the offset, the length and the address. Returns 1 if
  /// no file is direct.
  std::size_t alignment() const;
  /// Returns the alignment, in bytes, that O_DIRECT requires for the address. This alignment can be smaller than the
  /// result of alignment(). Returns 1 if no file is direct.
  std::size_t memory_alignment() const;

  /// Returns an empty text if the store uses the preferred backend and the preferred mode. If not, returns the reason
  /// why the store uses another backend or mode.
  const std::string &note() const { return note_; }
  void add_note(const std::string &text) { note_ += (note_.empty() ? "" : "; ") + text; }

  /// read() and write() transfer `length` bytes, and return when all bytes are transferred. Any thread may call read()
  /// and write(), but not while a pump uses the store. The functions throw StorageError.
  void read(std::uint32_t file, std::uint64_t offset, std::byte *data, std::size_t length);
  void write(std::uint32_t file, std::uint64_t offset, const std::byte *data, std::size_t length);

 protected:
  /// The descriptor and the offset for the system call of a transfer. A transfer is impossible in three cases: the
  /// store has no file with this number, the file is read-only and the transfer is a write, or the transfer goes beyond
  /// the part of the file that the store uses. If the transfer is impossible, the descriptor is -1, and the system call
  /// fails with EBADF.
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

/// A queue of at most `size` elements. The queue allocates no memory after its construction.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t size) : ring_(size) {}
  std::size_t size() const { return ring_.size(); }
  std::size_t count() const { return count_; }
  const T &front() const { return ring_[first_]; }
  const T &at(std::size_t place) const { return ring_[(first_ + place) % ring_.size()]; }
  void push(const T &value) { ring_[(first_ + count_++) % ring_.size()] = value; }
  T pop() {
    const T value = front();
    first_ = (first_ + 1) % ring_.size();
    --count_;
    return value;
  }

 private:
  std::vector<T> ring_;
  std::size_t first_ = 0, count_ = 0;
};

// --- opening --------------------------------------------------------------------------------------------------------

/// Deliberate faults for tests. Two stores with the same seed have the same faults. A rate is the probability of a
/// fault in a transfer.
struct Faults {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t seed = 0;
  double error_rate = 0;                   ///< rate of transfers that fail with EIO
  double again_rate = 0;                   ///< rate of transfers that fail with EAGAIN
  double short_rate = 0;                   ///< rate of transfers with fewer bytes than requested
  double flip_rate = 0;                    ///< rate of reads after which one bit of the data is flipped
  std::uint64_t full_after_bytes = never;  ///< after this number of written bytes, writes fail with ENOSPC
  std::uint64_t error_at = never;          ///< the transfer with this number (from 0) fails with EIO
  std::uint64_t flip_at = never;           ///< one bit is flipped in the read with this number (from 0)
  std::uint64_t flush_error_at = never;    ///< the flush with this number (from 0) fails with EIO
  std::uint64_t latency_microseconds = 0;  ///< minimum delay of each completion

  bool any() const { return *this != Faults{.seed = seed}; }
  bool operator==(const Faults &) const = default;
};

struct StoreOptions {
  bool direct = true;      ///< true if transfers bypass the page cache for files that support direct I/O
  std::size_t depth = 64;  ///< maximum number of transfers in flight
  Faults faults;
};

/// Says whether a backend works on this machine. If the backend does not work, `reason` says why. If the backend works,
/// `reason` is empty.
struct Probe {
  std::string name;
  std::string reason;
};

/// Tries each backend with a transfer of a few bytes. Returns one result for each backend. The first result is for the
/// backend that "auto" prefers.
std::vector<Probe> probe_backends();

/// Opens the files with the backend that `backend` names. The name "auto" chooses the first backend that works. note()
/// of the new store names the backends that do not work. note() also names a file for which the system refuses
/// O_DIRECT. Throws InputError for a backend that is unknown or does not work, and StorageError for a file that cannot
/// be opened.
std::unique_ptr<Store> open_store(const std::string &backend, const std::vector<FileSpec> &files,
                                  const StoreOptions &options = {});

/// Makes a store of `count` closed files. The caller must replace the closed files by open files (Store::replace()).
/// Throws InputError for a backend that is unknown, does not work, or maps its files.
std::unique_ptr<Store> open_empty_store(const std::string &backend, std::size_t count,
                                        const StoreOptions &options = {});

/// Wraps a store and adds faults. If `faults` contains no fault, the result behaves exactly like the wrapped store.
std::unique_ptr<Store> make_faulty_store(std::unique_ptr<Store> inside, const Faults &faults);

}  // namespace outcrop
