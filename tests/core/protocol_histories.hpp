// Lives of protocols over a model of storage: processes that begin, recover what others have left, write, and end somehow.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "model_storage.hpp"

namespace outcrop::model {

struct History {
  std::string trouble;  ///< what is wrong; empty when nothing is
  std::uint64_t operations = 0;
};

/// An array in slots with two records by turns, as committed arrays have them.
History live_of_slots(std::uint64_t seed, Mutation mutation);
/// Steps staged for a target by two writers, drained, recovered.
History live_of_stages(std::uint64_t seed, Mutation mutation);
/// Files of nodes, their index, and the one file that is made of them.
History live_of_listings(std::uint64_t seed, Mutation mutation);

/// Something is wrong with a protocol; not what the world may cause.
struct Wrong {
  std::string what;
};

/// What came of a life on this storage; what it throws is what is wrong.
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

/// What the next processes meet.
inline Weather weather_of(Random &random) {
  Weather weather;
  weather.power_cuts = random.below(2) == 0;
  weather.keeps_order = random.below(2) == 0;
  weather.error_rate = random.below(3) == 0 ? 0.02 : 0;
  weather.kill_within = random.below(5) == 0 ? 0 : 4 + random.below(150);
  return weather;
}

}  // namespace outcrop::model
