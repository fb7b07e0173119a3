// Runs histories of protocols on a model of storage. In a history, each process first recovers the state of earlier
// processes, and then writes. A process can be killed at any point.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "model_storage.hpp"

namespace outcrop::model {

struct History {
  std::string trouble;  ///< the first mistake that was found; empty if no mistake was found
  std::uint64_t operations = 0;
};

/// Runs a history of an array. The array has two slots for each tile, and two records that are written alternately,
/// like all committed arrays.
History live_of_slots(std::uint64_t seed, Mutation mutation);
/// Runs a history in which one or two writers stage steps, drain the steps to a target, and recover staged steps after
/// a failure.
History live_of_stages(std::uint64_t seed, Mutation mutation);
/// Runs a history in which a process writes one file for each node and an index, and merges these files into a single
/// file.
History live_of_listings(std::uint64_t seed, Mutation mutation);

/// The exception for a mistake of a protocol. Errors of the modelled storage have the type StorageError.
struct Wrong {
  std::string what;
};

/// Runs `live`, and counts the operations on `storage`. Stores the message of an exception in `trouble` of the history.
inline History history_of(Storage &storage, const std::function<void()> &live) {
  History history;
  try {
    live();
  } catch (const Wrong &wrong) {
    history.trouble = wrong.what;
  } catch (const std::exception &error) {
    history.trouble = error.what();
  }
  history.operations = storage.operations();
  return history;
}

/// Returns random faults for the next processes.
inline Weather weather_of(Random &random) {
  Weather weather;
  weather.power_cuts = random.below(2) == 0;
  weather.keeps_order = random.below(2) == 0;
  weather.error_rate = random.below(3) == 0 ? 0.02 : 0;
  weather.kill_within = random.below(5) == 0 ? 0 : 4 + random.below(150);
  return weather;
}

}  // namespace outcrop::model
