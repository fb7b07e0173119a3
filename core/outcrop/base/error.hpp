// This file defines the errors that files, devices, memory, other processes and input can cause. Errors in the program
// itself do not have these types. Such errors fail assertions.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>

namespace outcrop {

/// Returns the given parts as one text. Each part is a text or a number.
template <typename... Parts>
std::string text_from(const Parts &...parts) {
  std::string text;
  const auto append = [&text]<typename Part>(const Part &part) {
    if constexpr (std::is_arithmetic_v<Part>)
      text += std::to_string(part);
    else
      text += part;
  };
  (append(parts), ...);
  return text;
}

/// The error for a request that the program cannot fulfil because of its input. The message names the wrong value and
/// says which values are valid.
struct InputError : std::runtime_error {
  template <typename... Parts>
  explicit InputError(const Parts &...parts) : std::runtime_error(text_from(parts...)) {}
};

/// The error for a failed transfer, flush or allocation on storage. The message names the path, the offset, the length
/// and the cause.
struct StorageError : std::runtime_error {
  StorageError(const std::string &doing, const std::string &path_, std::uint64_t offset_, std::uint64_t length_,
               int error_)
      : std::runtime_error(text_from(doing, " failed: ", path_,
                                     length_ > 0 ? text_from(", offset ", offset_, ", length ", length_) : "", ": ",
                                     error_ != 0 ? std::system_category().message(error_) : "the file ends early")),
        path(path_),
        offset(offset_),
        length(length_),
        error(error_) {}

  /// Makes a StorageError that has no offset and no length.
  StorageError(const std::string &doing, const std::string &path_, int error_)
      : StorageError(doing, path_, 0, 0, error_) {}

  /// Makes a StorageError whose message contains the text `reason`. Use this constructor if a failure has no errno, or
  /// if its errno does not explain the failure.
  StorageError(const std::string &doing, const std::string &path_, const std::string &reason, int error_)
      : std::runtime_error(text_from(doing, " failed: ", path_, ": ", reason)), path(path_), error(error_) {}

  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  int error;  ///< the errno of the failed call, or 0 if the file ended before the transfer was complete
};

/// The error for damaged stored data. The bytes that were read differ from the bytes that were written.
struct CorruptionError : std::runtime_error {
  template <typename... Parts>
  explicit CorruptionError(const Parts &...parts) : std::runtime_error(text_from(parts...)) {}
};

/// The error for failed communication between ranks. For example, another rank can no longer be reached. After a
/// CommunicationError, all later collective calls fail.
struct CommunicationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The error for a run that another thread has cancelled.
struct Cancelled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace outcrop
