// Functions that run random histories of protocols on a model of storage. In a history, each process first recovers the
// state that earlier processes have left, and then writes. A process can be killed at any point.
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

/// Runs a history of an array. Like all committed arrays, the array has two slots for each tile. The array also has two
/// records, which are written alternately.
History live_of_slots(std::uint64_t seed, Mutation mutation);
/// Runs a history of staging. One or two writers stage steps and drain the steps to a target. After a failure, the
/// writers recover staged steps.
History live_of_stages(std::uint64_t seed, Mutation mutation);
/// Runs a history of files for each node. A process writes one file for each node and an index, and merges the files
/// into a single file.
History live_of_listings(std::uint64_t seed, Mutation mutation);

/// The exception for a mistake of a protocol. Errors that the model of storage simulates have the type StorageError.
struct Wrong {
  std::string what;
};

/// Runs `live`, and counts the operations on `storage`. If `live` throws an exception, stores its message in `trouble`
/// of the history.
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

/// Returns random faults that can happen to the next processes.
inline Weather weather_of(Random &random) {
  Weather weather;
  weather.power_cuts = random.below(2) == 0;
  weather.keeps_order = random.below(2) == 0;
  weather.error_rate = random.below(3) == 0 ? 0.02 : 0;
  weather.kill_within = random.below(5) == 0 ? 0 : 4 + random.below(150);
  return weather;
}

}  // namespace outcrop::model
