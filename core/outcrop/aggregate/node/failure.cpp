#include "outcrop/aggregate/node/failure.hpp"

#include <array>

namespace outcrop::aggregate {
namespace {

void put(Failure &failure, const std::string &text) { text.copy(failure.text, sizeof failure.text - 1); }

}  // namespace

Failure Failure::of(Doing doing, int rank, const StorageError &error) {
  Failure failure{doing, rank, error.error, 0, error.offset, error.length, {}};
  put(failure, error.path);
  return failure;
}

Failure Failure::of_input(int rank, const std::string &text) {
  Failure failure{input, rank, 0, 0, 0, 0, {}};
  put(failure, text);
  return failure;
}

Failure Failure::of_corruption(int rank, const std::string &text) {
  Failure failure{corruption, rank, 0, 0, 0, 0, {}};
  put(failure, text);
  return failure;
}

void Failure::raise() const {
  static constexpr std::array names{"", "write", "read", "flush", "open", "create"};
  if (!happened()) return;
  const std::string who = "rank " + std::to_string(rank);
  if (doing == input) throw InputError(who + ": " + text);
  if (doing == corruption) throw CorruptionError(who + ": " + text);
  throw StorageError(std::string(names.at(static_cast<std::size_t>(doing))) + " by " + who, text, offset, length,
                     error);
}

}  // namespace outcrop::aggregate
