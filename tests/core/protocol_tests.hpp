// These tests check that protocols survive power cuts, kills and errors. The tests run random histories on a model of
// storage (model_storage.hpp). After each history, the storage must contain a complete state: the last state that was
// announced, or a later state. Error messages must name the lost data.
//
// The tests of the core and the tests of aggregation include this file. Each program of tests lists its own protocols.
//
// OUTCROP_SOAK=n multiplies the number of histories by n. OUTCROP_SEED=n begins with seed n. OUTCROP_TRACE=1 prints all
// operations.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "protocol_histories.hpp"

namespace outcrop::model {

inline std::uint64_t soak() {
  const char *factor = std::getenv("OUTCROP_SOAK");
  return factor == nullptr ? 1 : std::max(1UL, std::strtoul(factor, nullptr, 10));
}

inline std::uint64_t first_seed() {
  const char *given = std::getenv("OUTCROP_SEED");
  return given == nullptr ? 1 : std::strtoul(given, nullptr, 10);
}

struct Protocol {
  const char *name;
  History (*live)(std::uint64_t seed, Mutation mutation);
  std::uint64_t seeds;
};

class Protocols : public ::testing::TestWithParam<Protocol> {};
inline std::string name_of(const ::testing::TestParamInfo<Protocol> &info) { return info.param.name; }

TEST_P(Protocols, AreRightInEveryHistory) {
  const auto &[name, live, seeds] = GetParam();
  std::uint64_t operations = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds * soak(); ++seed) {
    const History history = live(seed, Mutation::none);
    operations += history.operations;
    ASSERT_EQ(history.trouble, "") << name << ", seed " << seed;
  }
  std::printf("%s: %lu histories, %lu operations, nothing wrong\n", name, seeds * soak(), operations);
  EXPECT_GT(operations, 10 * seeds);
}

// The same seed must always give the same history, so that a history with a mistake can be repeated.
TEST_P(Protocols, FollowFromTheSeed) {
  for (const std::uint64_t seed : {3, 17, 40}) {
    const History one = GetParam().live(seed, Mutation::none), other = GetParam().live(seed, Mutation::none);
    EXPECT_EQ(one.operations, other.operations) << seed;
  }
}

struct Mistake {
  const char *name;
  Mutation mutation;
  Protocol protocol;
};

class Mistakes : public ::testing::TestWithParam<Mistake> {};
inline std::string name_of_mistake(const ::testing::TestParamInfo<Mistake> &info) {
  return std::string(info.param.name) + "Of" + info.param.protocol.name;
}

TEST_P(Mistakes, AreFound) {
  const auto &[name, mutation, protocol] = GetParam();
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const History history = protocol.live(seed, mutation);
    if (history.trouble.empty()) continue;
    std::printf("%s of %s: found by seed %lu: %s\n", name, protocol.name, seed, history.trouble.c_str());
    return;
  }
  FAIL() << name << " of " << protocol.name << " is not found";
}

}  // namespace outcrop::model
