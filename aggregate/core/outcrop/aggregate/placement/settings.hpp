// What users set: by arguments, MPI info hints, or the environment; the first that says something holds, else a default.
//
// setting_table() declares each setting once: its names, what it means, what holds where it is not set, and how its text is
// read. Checks of arguments, hints and variables follow from it, and so do the comment in outcrop_aggregate.h and the
// reference page, which scripts/write_settings.py writes and a test compares.
//
// Names that begin with cb_ are ROMIO's and mean what they mean there. As MPI has it, an unknown hint is no error; an
// unknown argument is one, and so is an unknown variable that begins with OUTCROP_AGG_.
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

/// A value and where it is from: "argument tier", "hint cb_nodes", "OUTCROP_AGG_COUNT" or "default".
template <typename Value>
struct Setting {
  Value value;
  std::string origin = "default";
  bool is_set() const { return origin != "default"; }
};

/// The values that hold. What each means is in setting_table(); 0 and "" are what nobody has set, but for own_run_bytes.
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

/// The text of a setting, and where it is from.
struct GivenText {
  std::string text;
  std::string origin;
};

/// A setting. Its hint is outcrop_agg_ and the name, its variable OUTCROP_AGG_ and the name in capitals.
struct SettingRow {
  std::string_view name;     ///< of the argument
  std::string_view field;    ///< of Settings
  std::string_view romio;    ///< ROMIO's hint that means the same; empty: none
  std::string_view unset;    ///< what holds where it is not set
  std::string_view meaning;  ///< for documents
  void (*read)(Settings &, const GivenText &);
  SettingValue (*value)(const Settings &);
  const std::string &(*origin)(const Settings &);

  std::string hint() const;
  std::string variable() const;
};

std::span<const SettingRow> setting_table();

using Texts = std::map<std::string, std::string>;

/// Throws InputError for an argument or a variable that is unknown, and for a value that is wrong wherever it is from.
Settings read_settings(const Texts &arguments, const Texts &hints, const Texts &environment);

/// The settings with these arguments instead; an empty text is one. Throws InputError as read_settings does.
Settings with_arguments(Settings settings, const Texts &arguments);

/// Those of the variables of a process that are settings: name=value, as in environ.
Texts settings_in_environment(const char *const *variables);

/// How many aggregators each node may have, by a list of "host:number" or "*:number"; "*" for any number of them, too.
/// The first entry that names a host counts; a host that none names has none. Throws InputError for what is no such list.
std::vector<std::uint32_t> max_on_nodes(const std::string &list, std::span<const std::string> hosts);

/// On nodes with these hosts. Throws InputError.
PlacementOptions placement_options(const Settings &settings, std::span<const std::string> hosts);

/// "tier by OUTCROP_AGG_TIER": a line for each that is not the default.
std::vector<std::string> origins(const Settings &settings);

/// What ranks that make a plan together must not differ in, in words: all but a stage's folder and bytes, which each node
/// has its own of.
std::string alike(const Settings &settings);

}  // namespace outcrop::aggregate
