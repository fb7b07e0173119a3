#include "outcrop/aggregate/placement/settings.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::string_view VARIABLES = "OUTCROP_AGG_";

std::string in_capitals(std::string_view text) {
  std::string capitals(text);
  for (char &c : capitals) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return capitals;
}

[[noreturn]] void refuse(const GivenText &given, const std::string &right) {
  throw InputError(given.origin + " = '" + given.text + "' must be " + right);
}

// --- how texts are read ----------------------------------------------------------------------------------------------

std::string any_text(const GivenText &given) { return given.text; }

template <std::uint64_t least>
std::uint64_t whole(const GivenText &given) {
  std::uint32_t value = 0;
  const char *end = given.text.data() + given.text.size();
  const auto [stopped, error] = std::from_chars(given.text.data(), end, value);
  if (error != std::errc() || stopped != end || value < least)
    refuse(given, "a whole number of at least " + std::to_string(least));
  return value;
}

double number(const GivenText &given) {
  double value = -1;
  const char *end = given.text.data() + given.text.size();
  const auto [stopped, error] = std::from_chars(given.text.data(), end, value);
  if (error != std::errc() || stopped != end || !(value >= 0) || value > std::numeric_limits<double>::max())
    refuse(given, "a number of at least 0");
  return value;
}

std::uint64_t bytes_or_none(const GivenText &given) {
  return given.text == "0" ? 0 : parse_bytes(given.text, given.origin + " =");
}

std::uint64_t buffer_bytes(const GivenText &given) {
  const std::uint64_t bytes = parse_bytes(given.text, given.origin + " =");
  // ROMIO accepts any size for the hint cb_buffer_size. Therefore the size is rounded up to a multiple of the page
  // size.
  return given.origin == "hint cb_buffer_size" ? round_up(bytes, AlignedMemory::page_bytes) : bytes;
}

Persistence persistence(const GivenText &given) {
  const std::optional<Persistence> found = persistence_named(given.text);
  if (!found) refuse(given, "process, reboot, job or permanent");
  return *found;
}

std::string transport(const GivenText &given) {
  if (given.text != "messages" && given.text != "rma") refuse(given, "messages or rma");
  return given.text;
}

bool truth(const GivenText &given) {
  if (given.text != "true" && given.text != "false") refuse(given, "true or false");
  return given.text == "true";
}

std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

struct HostLimit {
  std::string host;
  std::uint32_t aggregators = 1;
};

HostLimit parse_host(const std::string &entry, const std::string &list) {
  const std::vector<std::string> parts = split(entry, ':');
  const GivenText limit{parts.size() > 1 ? parts[1] : "1", "cb_config_list '" + list + "': number"};
  if (parts.empty() || parts.size() > 2 || parts[0].empty())
    throw InputError("cb_config_list '" + list + "' must be entries such as node1:2 or *:1 with commas between them");
  if (limit.text == "*") return {parts[0], std::numeric_limits<std::uint32_t>::max()};
  return {parts[0], static_cast<std::uint32_t>(whole<0>(limit))};
}

std::string host_list(const GivenText &given) {
  max_on_nodes(given.text, {});  // this call throws an error if the text is not a list
  return given.text;
}

// --- the table -------------------------------------------------------------------------------------------------------

template <auto Member, auto Parse>
constexpr SettingRow setting(std::string_view name, std::string_view romio, std::string_view unset,
                             std::string_view meaning) {
  return {name,
          name == "buffer" ? "buffer_bytes" : name,
          romio,
          unset,
          meaning,
          [](Settings &settings, const GivenText &given) { settings.*Member = {Parse(given), given.origin}; },
          [](const Settings &settings) { return SettingValue((settings.*Member).value); },
          [](const Settings &settings) -> const std::string & { return (settings.*Member).origin; }};
}

constexpr std::array TABLE = {
    setting<&Settings::tier, any_text>("tier", "", "the tier with the lowest predicted cost",
                                       "The tier that holds the buffers."),
    setting<&Settings::persistence, persistence>(
        "persistence", "", "process",
        "The minimum persistence of the tier of the buffers: process, reboot, job or permanent."),
    setting<&Settings::buffer_bytes, buffer_bytes>("buffer", "cb_buffer_size", "an eighth of a domain, 1 to 8 MiB",
                                                   "The size of each buffer in bytes, a multiple of 4096."),
    setting<&Settings::buffers, whole<2>>("buffers", "", "4", "The number of buffers of each aggregator, 2 to 8."),
    setting<&Settings::count, whole<1>>("count", "cb_nodes", "the number with the shortest predicted time",
                                        "The number of aggregators."),
    setting<&Settings::hosts, host_list>("hosts", "cb_config_list", "all hosts",
                                         "The hosts that may have aggregators: host:number, ... or *:number."),
    setting<&Settings::machine, any_text>("machine", "", "the tiers that are detected on the nodes",
                                          "A machine file that describes the nodes; `outcrop agg machine` writes one."),
    setting<&Settings::target, any_text>("target", "", "the working directory", "The folder of the files."),
    setting<&Settings::topology, any_text>("topology", "", "the first provider that knows the distances",
                                           "A file with a line `rank: group switch port` for each rank."),
    setting<&Settings::stage, any_text>(
        "stage", "", "none",
        "A folder on a tier of each node. A write ends when its bytes are durable there. Later, the bytes are "
        "copied to the file in the background. With \"auto\", the cost model chooses the "
        "folder, or no stage."),
    setting<&Settings::stage_bytes, bytes_or_none>("stage_bytes", "", "all free space",
                                                   "The maximum size of a stage on a node, in bytes."),
    setting<&Settings::stage_persistence, persistence>(
        "stage_persistence", "", "job",
        "With stage \"auto\": the minimum persistence of the stage: reboot, job or permanent."),
    setting<&Settings::seconds_between, number>("seconds_between", "", "0",
                                                "With stage \"auto\": the seconds of computing between two steps."),
    setting<&Settings::reads_back, number>(
        "reads_back", "", "0", "With stage \"auto\": how often each step is read again soon after its write."),
    setting<&Settings::transport, transport>(
        "transport", "", "messages",
        "The transport between nodes: messages, or rma (one-sided communication) if it works."),
    setting<&Settings::reads_only, truth>("reads_only", "", "false",
                                          "If true, ranks may declare the same bytes, and the plan cannot write."),
    setting<&Settings::own_run_bytes, bytes_or_none>("own_run_bytes", "", "64 KiB on one node, never on several",
                                                     "If the contiguous runs of each rank have at least this mean "
                                                     "length, each rank performs its own I/O. 0: never."),
    setting<&Settings::seconds_most, number>(
        "seconds_most", "", "no limit",
        "The maximum time, in seconds, that a rank waits for other ranks. After this time, the rank fails."),
};

// Returns the text of a setting from the first source that contains the setting. The sources are, in this order, the
// argument, our hint, ROMIO's hint, and the environment variable. An empty text counts as missing, as in shells.
std::optional<GivenText> find(const Texts &arguments, const Texts &hints, const Texts &environment,
                              const SettingRow &row) {
  const auto in = [](const Texts &texts, const std::string &name) {
    const auto place = texts.find(name);
    return place == texts.end() ? std::string() : place->second;
  };
  const std::string argument(row.name);
  if (const std::string text = in(arguments, argument); !text.empty()) return GivenText{text, "argument " + argument};
  for (const std::string &name : {row.hint(), std::string(row.romio)})
    if (const std::string text = in(hints, name); !text.empty()) return GivenText{text, "hint " + name};
  if (const std::string text = in(environment, row.variable()); !text.empty()) return GivenText{text, row.variable()};
  return std::nullopt;
}

// Throws InputError if a name in `given` is not in the table of settings.
template <typename NameOf>
void refuse_unknown(const Texts &given, const std::string &what, const NameOf &name_of) {
  for (const auto &[name, text] : given) {
    if (std::ranges::find(TABLE, name, name_of) != TABLE.end()) continue;
    std::string known;
    for (const SettingRow &row : TABLE) known.append(known.empty() ? "" : ", ").append(name_of(row));
    throw InputError(what + " '" + name + "' of aggregation is unknown; there are " + known);
  }
}

std::string name_of(const SettingRow &row) { return std::string(row.name); }

std::string in_words(const SettingValue &value) {
  if (const auto *text = std::get_if<std::string>(&value)) return *text;
  if (const auto *truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto *lasts = std::get_if<Persistence>(&value)) return aggregate::in_words(*lasts);
  if (const auto *real = std::get_if<double>(&value)) return std::to_string(*real);
  return std::to_string(std::get<std::uint64_t>(value));
}

}  // namespace

std::string SettingRow::hint() const { return "outcrop_agg_" + std::string(name); }
std::string SettingRow::variable() const { return std::string(VARIABLES) + in_capitals(name); }

std::span<const SettingRow> setting_table() { return TABLE; }

Settings read_settings(const Texts &arguments, const Texts &hints, const Texts &environment) {
  refuse_unknown(arguments, "setting", name_of);
  refuse_unknown(environment, "variable", [](const SettingRow &row) { return row.variable(); });
  Settings settings;
  for (const SettingRow &row : TABLE)
    if (const auto found = find(arguments, hints, environment, row)) row.read(settings, *found);
  if (settings.stage_bytes.value > 0 && settings.stage.value.empty())
    throw InputError(settings.stage_bytes.origin + " is given without a stage");
  return settings;
}

Settings with_arguments(Settings settings, const Texts &arguments) {
  refuse_unknown(arguments, "setting", name_of);
  for (const auto &[name, text] : arguments)
    std::ranges::find(TABLE, name, name_of)->read(settings, {text, "argument " + name});
  return settings;
}

Texts settings_in_environment(const char *const *variables) {
  Texts texts;
  for (; *variables != nullptr; ++variables) {
    const std::string_view variable = *variables;
    const std::size_t end = variable.find('=');
    if (variable.starts_with(VARIABLES) && end != std::string_view::npos)
      texts[std::string(variable.substr(0, end))] = variable.substr(end + 1);
  }
  return texts;
}

std::vector<std::uint32_t> max_on_nodes(const std::string &list, std::span<const std::string> hosts) {
  std::vector<HostLimit> limits;
  for (std::string entry : split(list, ',')) {
    std::erase(entry, ' ');
    limits.push_back(parse_host(entry, list));
  }
  std::vector<std::uint32_t> aggregators;
  for (const std::string &host : hosts) {
    const auto named =
        std::ranges::find_if(limits, [&](const HostLimit &each) { return each.host == "*" || each.host == host; });
    aggregators.push_back(named == limits.end() ? 0 : named->aggregators);
  }
  return aggregators;
}

PlacementOptions placement_options(const Settings &settings, std::span<const std::string> hosts) {
  PlacementOptions options;
  options.buffer_bytes = settings.buffer_bytes.value;
  options.buffers = static_cast<std::uint32_t>(settings.buffers.value);
  options.persistence = settings.persistence.value;
  options.tier = settings.tier.value;
  if (!settings.hosts.value.empty()) options.max_on_node = max_on_nodes(settings.hosts.value, hosts);
  return options;
}

std::vector<std::string> origins(const Settings &settings) {
  std::vector<std::string> lines;
  for (const SettingRow &row : TABLE)
    if (row.origin(settings) != "default") lines.push_back(std::string(row.field) + " by " + row.origin(settings));
  return lines;
}

std::string alike(const Settings &settings) {
  std::string text;
  for (const SettingRow &row : TABLE) {
    const bool is_own = row.name == "stage_bytes" || (row.name == "stage" && !settings.chooses_stage());
    if (!is_own && row.origin(settings) != "default")
      text += std::string(row.field) + " = " + in_words(row.value(settings)) + " ";
  }
  return text.empty() ? "all defaults" : text;
}

}  // namespace outcrop::aggregate
