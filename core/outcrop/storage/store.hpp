// The narrow interface between planes in memory and bytes in files.
//
//     submit(transfers) ──► at most depth() in flight ──► reap(completions)
//
// A store never throws from submit or reap: what goes wrong with a transfer is the result of its completion, so
// whoever submitted knows at any time which buffers the system may still write to. Transfers complete in any order
// and may be short, as with pread. One thread at a time drives a store; it may change hands while nothing is in flight.
// A backend is one file beside this one and one line in the table of backends.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop {

/// A file a store shall open, or the `size` bytes of it from byte `begin` on. It must exist with its final size.
struct FileSpec {
  std::string path;
  bool writable = false;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;  ///< 0: the whole file
  bool scratch = false;    ///< not to be made durable: nobody will look for its content later
  bool direct = true;      ///< may bypass the page cache
  int folder = -1;  ///< the path is relative to this open folder, which it must not leave; needed while opening only
  std::string label = "";  ///< names the file in messages instead of the path
};

/// `length` bytes between memory at `data` and file number `file` at `offset`. `tag` comes back with the completion.
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

  /// Name in the table of backends.
  virtual const char *name() const = 0;

  /// Transfers that may be in flight; more must not be submitted.
  virtual std::size_t depth() const = 0;

  /// Starts the transfers. Every one of them is reported by reap() exactly once.
  virtual void submit(std::span<const Transfer> transfers) = 0;

  /// Takes up to completions.size() results; with `wait` at least one if any transfer is in flight.
  virtual std::size_t reap(std::span<Completion> completions, bool wait) = 0;

  /// Makes completed writes durable. Nothing may be in flight. Throws StorageError.
  virtual void flush();

  /// Closes all files. Nothing may be in flight; later transfers end with EBADF.
  virtual void close() { files_.clear(); }

  virtual const std::vector<File> &files() const { return files_; }
  const std::string &path(std::uint32_t file) const { return files().at(file).path(); }

  /// True when every file bypasses the page cache (for aligned transfers; others go around it by the page cache).
  bool direct() const;

  /// Alignment in bytes of offset, length and address that O_DIRECT needs; 1 when no file is direct.
  std::size_t alignment() const;

  /// Why this is not the backend or the mode that was preferred; empty when it is.
  const std::string &note() const { return note_; }
  void add_note(const std::string &text) { note_ += (note_.empty() ? "" : "; ") + text; }

  /// Moves `length` bytes and waits. Throws StorageError. Callers exclude each other; a pump must not be at work.
  void read(std::uint32_t file, std::uint64_t offset, std::byte *data, std::size_t length);
  void write(std::uint32_t file, std::uint64_t offset, const std::byte *data, std::size_t length);

 protected:
  /// Where a system call makes this transfer. The descriptor is -1 (giving EBADF) when there is no such file, it was not
  /// opened for that, or the transfer would leave its part.
  struct Place {
    int descriptor = -1;
    std::uint64_t offset = 0;
  };
  Place place(const Transfer &transfer) const;

 private:
  void move(Transfer whole);

  std::vector<File> files_;
  std::string note_;
  std::mutex moving_;
};

}  // namespace outcrop
