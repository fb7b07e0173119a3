// The errors that files, devices, memory, other processes and input can cause. Bugs in the program cause no such error.
// Assertions detect bugs.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>

namespace outcrop {

/// Returns a text that consists of these parts. A part is a text or a number.
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

/// The request cannot be fulfilled. The message names the wrong value and says which values are valid.
struct InputError : std::runtime_error {
  template <typename... Parts>
  explicit InputError(const Parts &...parts) : std::runtime_error(text_from(parts...)) {}
};

/// A transfer, flush or allocation on storage failed. The message names the path, the offset, the length and the cause.
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

  /// Makes an error without an offset and a length.
  StorageError(const std::string &doing, const std::string &path_, int error_)
      : StorageError(doing, path_, 0, 0, error_) {}

  /// Makes an error whose message contains the text `reason`. This constructor is for failures without an errno, and
  /// for failures whose errno does not explain the reason.
  StorageError(const std::string &doing, const std::string &path_, const std::string &reason, int error_)
      : std::runtime_error(text_from(doing, " failed: ", path_, ": ", reason)), path(path_), error(error_) {}

  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  int error;  ///< errno, or 0 if a transfer ended early
};

/// The bytes that were read differ from the bytes that were written.
struct CorruptionError : std::runtime_error {
  template <typename... Parts>
  explicit CorruptionError(const Parts &...parts) : std::runtime_error(text_from(parts...)) {}
};

/// Another rank can no longer be reached, or communication between ranks failed. All later collective calls fail.
struct CommunicationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The run was cancelled from another thread.
struct Cancelled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace outcrop
