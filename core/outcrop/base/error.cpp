#include "outcrop/base/error.hpp"

#include <system_error>

namespace outcrop {
namespace {

std::string message(const std::string &doing, const std::string &path, std::uint64_t offset, std::uint64_t length,
                    int error) {
  std::string text = doing + " failed: " + path;
  if (length > 0) text += ", offset " + std::to_string(offset) + ", length " + std::to_string(length);
  return text + ": " + (error != 0 ? std::system_category().message(error) : "the file ends early");
}

}  // namespace

StorageError::StorageError(const std::string &doing, const std::string &path_, std::uint64_t offset_,
                           std::uint64_t length_, int error_)
    : std::runtime_error(message(doing, path_, offset_, length_, error_)),
      path(path_),
      offset(offset_),
      length(length_),
      error(error_) {}

StorageError::StorageError(const std::string &doing, const std::string &path_, const std::string &reason, int error_)
    : std::runtime_error(doing + " failed: " + path_ + ": " + reason),
      path(path_),
      offset(0),
      length(0),
      error(error_) {}

}  // namespace outcrop
