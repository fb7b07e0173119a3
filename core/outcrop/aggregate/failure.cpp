#include "outcrop/aggregate/failure.hpp"

#include <array>

namespace outcrop::aggregate {

Failure Failure::of(Doing doing, int rank, const StorageError &error) {
  return {doing, rank, error.error, 0, error.offset, error.length, {}};
}

Failure Failure::of_input(int rank, const std::string &text) {
  Failure failure{input, rank, 0, 0, 0, 0, {}};
  text.copy(failure.text, sizeof failure.text - 1);
  return failure;
}

void Failure::raise(const std::string &path) const {
  static constexpr std::array names{"", "write", "read", "flush", "open", "create", "input"};
  if (!happened()) return;
  const std::string by = " by rank " + std::to_string(rank);
  if (doing == input) throw InputError("rank " + std::to_string(rank) + ": " + text);
  throw StorageError(names.at(static_cast<std::size_t>(doing)) + by, path, offset, length, error);
}

}  // namespace outcrop::aggregate
