// The first thing that went wrong in an operation, in a form that can lie in shared memory and be sent.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <system_error>

#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

struct Failure {
  enum Doing : std::int32_t { nothing, write, read, flush, open, create, input, corruption };

  Doing doing = nothing;
  std::int32_t rank = 0, error = 0;
  std::uint32_t padding = 0;
  std::uint64_t offset = 0, length = 0;
  char text[400] = {};  ///< of input and corruption; of storage, the path

  bool happened() const { return doing != nothing; }
  static Failure of(Doing doing, int rank, const StorageError &error);
  static Failure of_input(int rank, const std::string &text);
  static Failure of_corruption(int rank, const std::string &text);

  /// Throws StorageError, InputError or CorruptionError if it happened.
  void raise() const;
};

/// What act() throws of what the world can cause, or nothing.
template <typename Act>
Failure attempt(Failure::Doing doing, int rank, Act &&act) {
  try {
    act();
  } catch (const StorageError &error) {
    return Failure::of(doing, rank, error);
  } catch (const InputError &error) {
    return Failure::of_input(rank, error.what());
  } catch (const CorruptionError &error) {
    return Failure::of_corruption(rank, error.what());
  } catch (const std::bad_alloc &) {
    return Failure::of_input(rank, "there is no memory left");
  } catch (const std::system_error &error) {  // of the standard library: file systems, threads
    return Failure::of_input(rank, error.what());
  }
  return {};
}

}  // namespace outcrop::aggregate
