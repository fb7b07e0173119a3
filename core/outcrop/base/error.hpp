// The errors the world can cause. Bugs assert; these are for files, devices, memory and input.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace outcrop {

/// What was asked for cannot be done; the message names the value and what would be right.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A transfer, flush or allocation on storage failed. The message holds path, offset, length and cause.
struct StorageError : std::runtime_error {
  StorageError(const std::string &doing, const std::string &path_, std::uint64_t offset_, std::uint64_t length_,
               int error);
  /// What the system was asked to open or do is refused; `reason` says why.
  StorageError(const std::string &doing, const std::string &path_, const std::string &reason, int error);
  std::string path;
  std::uint64_t offset;
  std::uint64_t length;
  int error;  ///< errno, or 0 when the system reported none (a transfer that ended early)
};

/// Bytes read are not the bytes that were written.
struct CorruptionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Another rank cannot be reached any more, or what carries bytes between ranks failed. Nothing collective works after it.
struct CommunicationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The run was cancelled from another thread.
struct Cancelled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace outcrop
