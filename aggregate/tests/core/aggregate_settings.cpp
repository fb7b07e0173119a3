// These tests check the source of each setting, the names that ROMIO uses for settings, and that errors have one line.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "outcrop/aggregate/placement/settings.hpp"
#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

std::string refusal(const Texts &arguments, const Texts &hints, const Texts &environment) {
  try {
    read_settings(arguments, hints, environment);
  } catch (const InputError &error) {
    return error.what();
  }
  return "";
}

TEST(AggregateSettings, ArgumentsWinOverHintsAndHintsOverTheEnvironment) {
  Texts arguments = {{"count", "3"}}, hints = {{"cb_nodes", "4"}, {"outcrop_agg_count", "5"}};
  const Texts environment = {{"OUTCROP_AGG_COUNT", "6"}};
  EXPECT_EQ(read_settings(arguments, hints, environment).count.value, 3U);
  EXPECT_EQ(read_settings({}, hints, environment).count.origin, "hint outcrop_agg_count");
  hints.erase("outcrop_agg_count");
  EXPECT_EQ(read_settings({}, hints, environment).count.value, 4U);
  EXPECT_EQ(read_settings({}, {}, environment).count.origin, "OUTCROP_AGG_COUNT");
  EXPECT_EQ(read_settings({}, {}, {}).count.origin, "default");
  EXPECT_EQ(read_settings({}, {}, {}).count.value, 0U);
}

TEST(AggregateSettings, EverySettingReachesThePlacement) {
  const Settings settings =
      read_settings({}, {{"cb_buffer_size", "33554432"}, {"romio_ds_write", "disable"}},
                    {{"OUTCROP_AGG_TIER", "hbm"}, {"OUTCROP_AGG_PERSISTENCE", "job"}, {"OUTCROP_AGG_BUFFERS", "3"}});
  const PlacementOptions options = placement_options(settings, {});
  EXPECT_EQ(options.buffer_bytes, 32U << 20);
  EXPECT_EQ(options.tier, "hbm");
  EXPECT_EQ(options.persistence, Persistence::job);
  EXPECT_EQ(options.buffers, 3U);
}

TEST(AggregateSettings, BuffersOfAnySizeAreTakenFromRomiosHint) {
  EXPECT_EQ(read_settings({}, {{"cb_buffer_size", "100000"}}, {}).buffer_bytes.value, 102400U);
  EXPECT_EQ(read_settings({}, {{"outcrop_agg_buffer", "100000"}}, {}).buffer_bytes.value, 100000U) << "refused later";
}

TEST(AggregateSettings, TransportsAreMessagesUnlessRmaIsAskedFor) {
  EXPECT_EQ(read_settings({}, {}, {}).transport.value, "messages");
  EXPECT_EQ(read_settings({}, {{"outcrop_agg_transport", "rma"}}, {}).transport.value, "rma");
  EXPECT_EQ(read_settings({{"transport", "messages"}}, {}, {{"OUTCROP_AGG_TRANSPORT", "rma"}}).transport.value,
            "messages");
  EXPECT_NE(refusal({}, {}, {{"OUTCROP_AGG_TRANSPORT", "tcp"}}).find("OUTCROP_AGG_TRANSPORT = 'tcp' must be messages"),
            std::string::npos);
}

TEST(AggregateSettings, WhatPlansAreForMayBeSaidByHints) {
  const Settings none = read_settings({}, {}, {}),
                 given = read_settings({}, {{"outcrop_agg_reads_only", "true"}},
                                       {{"OUTCROP_AGG_OWN_RUN_BYTES", "0"}, {"OUTCROP_AGG_SECONDS_MOST", "1.5"}});
  EXPECT_FALSE(none.reads_only.value || none.own_run_bytes.is_set() || none.seconds_most.value > 0);
  EXPECT_TRUE(given.reads_only.value && given.own_run_bytes.is_set());
  EXPECT_EQ(given.own_run_bytes.value, 0U);
  EXPECT_EQ(given.seconds_most.value, 1.5);
  EXPECT_EQ(read_settings({{"own_run_bytes", "64KiB"}}, {}, {}).own_run_bytes.value, 65536U);
  EXPECT_EQ(refusal({}, {{"outcrop_agg_reads_only", "perhaps"}}, {}),
            "hint outcrop_agg_reads_only = 'perhaps' must be true or false");
  EXPECT_NE(alike(none), alike(given));
}

TEST(AggregateSettings, SizesAreReadAsPeopleWriteThem) {
  const std::vector<std::pair<std::string, std::uint64_t>> sizes = {
      {"1", 1}, {"64MiB", 64 << 20}, {"64M", 64 << 20}, {"1.5 GiB", 3U << 29}, {"2GB", 2000000000}, {"7 b", 7}};
  for (const auto &[text, bytes] : sizes) EXPECT_EQ(parse_bytes(text, "buffer"), bytes) << text;
  for (const char *text : {"", "0", "-1", "MiB", "1XB", "1MiBs", "nan", "inf", "1e300", "0.5"})
    EXPECT_THROW(parse_bytes(text, "buffer"), InputError) << text;
}

TEST(AggregateSettings, WrongValuesAreNamedWithTheirOrigin) {
  EXPECT_EQ(refusal({}, {{"cb_nodes", "many"}}, {}), "hint cb_nodes = 'many' must be a whole number of at least 1");
  EXPECT_EQ(refusal({}, {}, {{"OUTCROP_AGG_BUFFER", "big"}}),
            "OUTCROP_AGG_BUFFER = 'big' must be a size such as 64MiB");
  EXPECT_EQ(refusal({{"persistence", "ever"}}, {}, {}),
            "argument persistence = 'ever' must be process, reboot, job or permanent");
  EXPECT_NE(refusal({{"stage_bytes", "1G"}}, {}, {}).find("without a stage"), std::string::npos);
  EXPECT_NE(refusal({{"teir", "dram"}}, {}, {}).find("'teir' of aggregation is unknown"), std::string::npos);
  EXPECT_NE(
      refusal({}, {}, {{"OUTCROP_AGG_TEIR", "dram"}}).find("variable 'OUTCROP_AGG_TEIR' of aggregation is unknown"),
      std::string::npos);
  EXPECT_EQ(refusal({}, {{"outcrop_agg_teir", "dram"}}, {}), "") << "as MPI has it";
  EXPECT_NE(refusal({{"buffers", "1"}}, {}, {}).find("at least 2"), std::string::npos);
  EXPECT_NE(refusal({}, {{"cb_config_list", "a:b:c"}}, {}).find("cb_config_list"), std::string::npos);
}

TEST(AggregateSettings, HostsAreThoseOfRomio) {
  const std::vector<std::string> hosts = {"a", "b", "c"};
  EXPECT_EQ(max_on_nodes("*:1", hosts), (std::vector<std::uint32_t>{1, 1, 1}));
  EXPECT_EQ(max_on_nodes("b:3, *:2", hosts), (std::vector<std::uint32_t>{2, 3, 2}));
  EXPECT_EQ(max_on_nodes("a,c:0", hosts), (std::vector<std::uint32_t>{1, 0, 0}));
  EXPECT_EQ(max_on_nodes("*:*", hosts)[0], 0xffffffffU);
  EXPECT_THROW(max_on_nodes(":2", hosts), InputError);
  EXPECT_THROW(max_on_nodes("a:-1", hosts), InputError);
}

}  // namespace
}  // namespace outcrop::aggregate
