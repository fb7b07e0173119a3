// This file handles the settings of users. A setting can come from an argument, an MPI info hint or an environment
// variable. An argument has priority over a hint, and a hint has priority over a variable. If a setting is in no
// source, its default is used.
//
// setting_table() declares each setting once, with its names, its meaning, its default and the function that parses its
// text. The functions below use this table to check arguments, hints and variables. scripts/write_settings.py writes
// the comment in outcrop_aggregate.h and the reference page from the table. A test checks that the comment and the page
// agree with the table.
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

/// The value of a setting, and its source: "argument tier", "hint cb_nodes", "OUTCROP_AGG_COUNT" or "default".
template <typename Value>
struct Setting {
  Value value;
  std::string origin = "default";
  bool is_set() const { return origin != "default"; }
};

/// The values of all settings. setting_table() explains the settings. The values 0 and "" mean that a setting is not
/// set. For own_run_bytes, 0 is an ordinary value.
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

/// The text of a setting, and the source of this text.
struct GivenText {
  std::string text;
  std::string origin;
};

/// Describes a setting. The name of the setting's hint is "outcrop_agg_" followed by `name`. The name of the setting's
/// environment variable is "OUTCROP_AGG_" followed by `name` in capitals.
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

/// Reads all settings. Throws InputError for unknown arguments and variables, and for invalid values from any source.
Settings read_settings(const Texts &arguments, const Texts &hints, const Texts &environment);

/// Returns a copy of `settings` in which the given arguments replace the old values. In `arguments` of this function,
/// an empty text is a value. In read_settings(), an empty text means that the setting is missing. Throws the same
/// errors as read_settings().
Settings with_arguments(Settings settings, const Texts &arguments);

/// Returns all environment variables that are settings, with their values. `variables` has the same form as `environ`
/// of the C library.
Texts settings_in_environment(const char *const *variables);

/// Returns the maximum number of aggregators on each node, from a list of hosts and numbers. `list` has entries
/// "host:number". In the list, the host * matches any host, and the number * means that there is no limit. The first
/// entry that matches a host applies to the host. A host that no entry matches has no aggregators. Throws InputError if
/// the list is invalid.
std::vector<std::uint32_t> max_on_nodes(const std::string &list, std::span<const std::string> hosts);

/// Returns the options of placement that the settings determine. `hosts` contains the host of each node. Throws
/// InputError if a setting contradicts the hosts.
PlacementOptions placement_options(const Settings &settings, std::span<const std::string> hosts);

/// Returns one line for each setting that the user has set, for example "tier by OUTCROP_AGG_TIER".
std::vector<std::string> origins(const Settings &settings);

/// Returns a text with all settings that must be the same on all ranks of a plan. The folder and the bytes of a stage
/// are not in the text, because these two settings may differ between nodes.
std::string alike(const Settings &settings);

}  // namespace outcrop::aggregate
