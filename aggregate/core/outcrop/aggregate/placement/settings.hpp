// This file handles the settings of users. A setting can come from an argument, an MPI info hint or an environment
// variable. An argument has priority over a hint, and a hint has priority over a variable. If no source has the
// setting, its default is used.
//
// setting_table() declares each setting once, with its names, its meaning, its default and the function that parses its
// text. The functions below use this table to check arguments, hints and variables. scripts/write_settings.py writes
// the comment in outcrop_aggregate.h and the reference page from the table. A test compares the comment and the page
// with the table.
//
// Hints that begin with cb_ have the same meaning as in ROMIO. Unknown hints are ignored, as MPI requires. Unknown
// arguments, and unknown variables that begin with OUTCROP_AGG_, are errors.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

/// The value of a setting, and the source from which the value came: "argument tier", "hint cb_nodes",
/// "OUTCROP_AGG_COUNT" or "default".
template <typename Value>
struct Setting {
  Value value;
  std::string origin = "default";
  bool is_set() const { return origin != "default"; }
};

/// The values of all settings. setting_table() explains the settings. Except for own_run_bytes, the values 0 and ""
/// mean that a setting is not set.
struct Settings {
  Setting<std::string> tier{{}};
  Setting<Persistence> persistence{Persistence::process};
  Setting<std::uint64_t> buffer_bytes{16U << 20};
  Setting<std::uint64_t> buffers{2};
  Setting<std::uint64_t> count{0};
  Setting<std::string> hosts{{}};
  Setting<std::string> machine{{}};
  Setting<std::string> target{"."};
  Setting<std::string> topology{{}};
  Setting<std::string> stage{{}};
  Setting<std::uint64_t> stage_bytes{0};
  Setting<Persistence> stage_persistence{Persistence::job};
  Setting<double> seconds_between{0};
  Setting<double> reads_back{0};
  Setting<std::string> transport{"messages"};
  Setting<bool> reads_only{false};
  Setting<std::uint64_t> own_run_bytes{0};
  Setting<double> seconds_most{0};

  bool chooses_stage() const { return stage.value == "auto"; }
};

using SettingValue = std::variant<bool, std::uint64_t, double, std::string, Persistence>;

/// The text of a setting, and the source from which the text came.
struct GivenText {
  std::string text;
  std::string origin;
};

/// Describes a setting. The name of its hint is "outcrop_agg_" followed by `name`. The name of its environment variable
/// is "OUTCROP_AGG_" followed by `name` in capitals.
struct SettingRow {
  std::string_view name;     ///< the name of the argument
  std::string_view field;    ///< the name of the member of Settings that has the value
  std::string_view romio;    ///< the name of ROMIO's hint with the same meaning; empty if there is none
  std::string_view unset;    ///< a text that describes the default
  std::string_view meaning;  ///< a description of the setting for the documents
  void (*read)(Settings &, const GivenText &);
  SettingValue (*value)(const Settings &);
  const std::string &(*origin)(const Settings &);

  std::string hint() const;
  std::string variable() const;
};

std::span<const SettingRow> setting_table();

using Texts = std::map<std::string, std::string>;

/// Reads all settings. Throws InputError for an unknown argument or variable, and for an invalid value from any source.
Settings read_settings(const Texts &arguments, const Texts &hints, const Texts &environment);

/// Returns a copy of `settings` with the values of the given arguments. In `arguments`, an empty text is a value. For
/// read_settings(), an empty text means that the setting is not given. Throws the same errors as read_settings().
Settings with_arguments(Settings settings, const Texts &arguments);

/// Returns the environment variables that are settings, with their values. `variables` has the same form as `environ`
/// of the C library.
Texts settings_in_environment(const char *const *variables);

/// Returns the maximum number of aggregators on each node. `list` has entries "host:number". An entry with the host *
/// matches any host, and the number * means that there is no limit. For each host, the first entry that matches is
/// used. A host without an entry has no aggregators. Throws InputError if the list is invalid.
std::vector<std::uint32_t> max_on_nodes(const std::string &list, std::span<const std::string> hosts);

/// Returns the options of placement that follow from the settings. `hosts` contains the host of each node. Throws
/// InputError if a setting does not fit the hosts.
PlacementOptions placement_options(const Settings &settings, std::span<const std::string> hosts);

/// Returns one line for each setting that an argument, a hint or a variable has set, for example "tier by
/// OUTCROP_AGG_TIER".
std::vector<std::string> origins(const Settings &settings);

/// Returns a text with all settings that must be equal on all ranks of a plan. The text does not contain the folder and
/// the bytes of a stage, because these two settings may differ between nodes.
std::string alike(const Settings &settings);

}  // namespace outcrop::aggregate
