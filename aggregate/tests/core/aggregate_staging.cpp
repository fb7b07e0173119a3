// These tests check the decision between staging steps and writing them directly. The predicted costs with and without
// a stage must follow the model. The library must choose the lower cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

// A node with two disks. The slow disk holds the file, writes at 1 GiB/s and reads at 2 GiB/s. The fast disk can hold a
// stage, writes at 4 GiB/s and reads at 8 GiB/s.
struct Scene {
  Machine machine;
  Placement placement;

  explicit Scene(std::uint64_t room = 8 * gib, bool is_shared = false, Persistence lasts = Persistence::job) {
    machine.node_of_rank = {0};
    machine.distance_to_target = {1};
    machine.distances = [](std::size_t, std::span<double> row) { row[0] = 0; };
    machine.target = {0, 1.0 * gib, is_shared};
    machine.target_read = {0, 2.0 * gib, is_shared};
    machine.tiers = {{"dram", 0, 1e15, 1e15, Persistence::process}, {"fast", 0, 4.0 * gib, 8.0 * gib, lasts, true}};
    machine.room_bytes = {gib, room};
    PlacementOptions options;
    options.tier = "dram";
    const std::vector<Tally> tallies = {{0, 0, gib}};
    placement = place(machine, tallies, 1, options);
  }

  Staging decide(const StepUsage &usage, const StagingRates &rates = {UNLIMITED, UNLIMITED}) const {
    return decide_staging(machine, placement, usage, rates);
  }
};

constexpr double near = 1e-3;

TEST(AggregateStaging, AddsUpWhatTheProgramWaitsFor) {
  const Staging staging = Scene().decide({.seconds_between = 0.5, .reads_back = 3, .durable = true});
  EXPECT_NEAR(staging.straight.write, 1, near);
  EXPECT_NEAR(staging.straight.read, 0.5, near);
  EXPECT_NEAR(staging.straight.total(staging.usage), 2.5, 2 * near);
  ASSERT_EQ(staging.options.size(), 1);
  const StageOption &option = staging.options[0];
  EXPECT_NEAR(option.seconds_drain, 1.125, near);
  EXPECT_NEAR(option.forecast.write, 0.25, near);
  EXPECT_NEAR(option.forecast.wait, 0.625, near);
  EXPECT_NEAR(option.forecast.read, 0.125, near);
  EXPECT_EQ(staging.chosen, 0);
}

TEST(AggregateStaging, DependsOnHowStepsAreUsed) {
  const auto is_staged = [](const StepUsage &usage) { return Scene().decide(usage).chosen.has_value(); };
  EXPECT_FALSE(is_staged({.durable = true})) << "the drain is waited for: 1.375 against 1 s";
  EXPECT_TRUE(is_staged({.seconds_between = 0.4, .durable = true})) << "0.975 against 1 s";
  EXPECT_FALSE(is_staged({.seconds_between = 0.3, .durable = true})) << "1.075 against 1 s";
  EXPECT_TRUE(is_staged({.reads_back = 1.1, .durable = true})) << "1.5125 against 1.55 s";
  EXPECT_FALSE(is_staged({.reads_back = 0.9, .durable = true})) << "1.4875 against 1.45 s";
}

TEST(AggregateStaging, CountsTheWorkOfTheThreadThatStages) {
  const Staging staging = Scene().decide({.durable = true}, {2.0 * gib, 4.0 * gib});
  EXPECT_NEAR(staging.options[0].forecast.write, 0.25 + 0.5, near);
  EXPECT_NEAR(staging.options[0].forecast.read, 0.125 + 0.25, near);
  EXPECT_NEAR(staging.options[0].seconds_drain, 1.125 + 0.25, near);
}

TEST(AggregateStaging, OffersOnlyWhatKeepsStepsAndHasRoom) {
  const StepUsage long_between{.seconds_between = 10, .reads_back = 1, .durable = true};
  const auto refusal = [](const Scene &scene, const StepUsage &usage) {
    const Staging staging = scene.decide(usage);
    EXPECT_EQ(staging.chosen.has_value(), staging.options[0].refusal.empty());
    return staging.options[0].refusal;
  };
  EXPECT_EQ(refusal(Scene(), long_between), "");
  EXPECT_NE(refusal(Scene(gib), long_between).find("on node 0, where it has room for 1 GiB"), std::string::npos);
  StepUsage limited = long_between;
  limited.room_bytes = gib / 2;
  EXPECT_NE(refusal(Scene(), limited).find("room for 512 MiB"), std::string::npos);
  EXPECT_NE(refusal(Scene(8 * gib, false, Persistence::reboot), long_between).find("persistence is reboot"),
            std::string::npos);
  StepUsage brief = long_between;
  brief.persistence = Persistence::reboot;
  EXPECT_EQ(refusal(Scene(8 * gib, false, Persistence::reboot), brief), "");
  StepUsage cached = long_between;
  cached.durable = false;
  EXPECT_NE(refusal(Scene(), cached).find("page cache"), std::string::npos);
  EXPECT_EQ(refusal(Scene(8 * gib, true), cached), "") << "a target that nodes share has no such cache";
}

// Steps are staged on all nodes or on no node. Therefore a tier cannot be used if one node lacks it, even if this node
// has no aggregators.
TEST(AggregateStaging, UsesNoTierThatANodeLacks) {
  Scene scene;
  scene.machine.node_of_rank = {0, 1};
  scene.machine.distance_to_target = {1, 1};
  scene.machine.distances = [](std::size_t, std::span<double> row) { std::ranges::fill(row, 1); };
  scene.machine.room_bytes = {gib, 8 * gib, gib, 0};
  const Staging staging = scene.decide({.seconds_between = 10, .reads_back = 1, .durable = true});
  EXPECT_FALSE(staging.chosen.has_value());
  EXPECT_NE(staging.options[0].refusal.find("no room on node 1"), std::string::npos) << staging.options[0].refusal;
}

TEST(AggregateStaging, SaysBothWays) {
  const Scene scene;
  const std::string text =
      explain(scene.decide({.seconds_between = 2, .reads_back = 1, .durable = true}), scene.machine);
  EXPECT_NE(text.find("staging: on fast, for steps 2 s apart, read back 1 times\n"), std::string::npos) << text;
  EXPECT_NE(text.find("straight: 1.5 s = write 1 s + read back 500 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("on fast: 375 ms = write 250 ms + read back 125 ms, drained in 1.125 s"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace outcrop::aggregate
