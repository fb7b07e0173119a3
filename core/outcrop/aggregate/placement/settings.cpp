#include "outcrop/aggregate/placement/settings.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"

namespace outcrop::aggregate {
namespace {

constexpr const char *PERSISTENCES[] = {"process", "reboot", "job", "permanent"};
constexpr const char *ARGUMENTS[] = {
    "tier",        "persistence",       "buffer",          "buffers",     "count",   "hosts",  "stage",
    "stage_bytes", "stage_persistence", "seconds_between", "reads_back",  "machine", "target", "topology",
    "transport",   "reads_only",        "own_run_bytes",   "seconds_most"};
constexpr std::string_view VARIABLES = "OUTCROP_AGG_";

struct Found {
  std::string text;
  std::string origin;
};

std::string in_capitals(std::string text) {
  for (char &c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// The first that there is: argument, its own hint, ROMIO's, variable. A text of nothing is none, as in shells.
std::optional<Found> find(const Texts &arguments, const Texts &hints, const Texts &environment,
                          const std::string &argument, const std::string &romio) {
  const auto in = [](const Texts &texts, const std::string &name) {
    const auto place = texts.find(name);
    return place == texts.end() ? std::string() : place->second;
  };
  const std::string own = "outcrop_agg_" + argument, variable = in_capitals(own);
  if (const std::string text = in(arguments, argument); !text.empty()) return Found{text, "argument " + argument};
  for (const std::string &name : {own, romio})
    if (const std::string text = in(hints, name); !text.empty()) return Found{text, "hint " + name};
  if (const std::string text = in(environment, variable); !text.empty()) return Found{text, variable};
  return std::nullopt;
}

std::string what(const Found &found) { return found.origin + " = '" + found.text + "'"; }

std::uint32_t parse_count(const Found &found, std::uint32_t least) {
  std::uint32_t value = 0;
  const char *end = found.text.data() + found.text.size();
  const auto [stopped, error] = std::from_chars(found.text.data(), end, value);
  if (error != std::errc() || stopped != end || value < least)
    throw InputError(what(found) + " must be a whole number of at least " + std::to_string(least));
  return value;
}

double parse_number(const Found &found) {
  double value = -1;
  const char *end = found.text.data() + found.text.size();
  const auto [stopped, error] = std::from_chars(found.text.data(), end, value);
  if (error != std::errc() || stopped != end || !(value >= 0) || value > std::numeric_limits<double>::max())
    throw InputError(what(found) + " must be a number of at least 0");
  return value;
}

Persistence parse_persistence(const Found &found) {
  for (std::size_t i = 0; i < std::size(PERSISTENCES); ++i)
    if (found.text == PERSISTENCES[i]) return static_cast<Persistence>(i);
  throw InputError(what(found) + " must be process, reboot, job or permanent");
}

std::string parse_transport(const Found &found) {
  if (found.text != "messages" && found.text != "rma") throw InputError(what(found) + " must be messages or rma");
  return found.text;
}

bool parse_truth(const Found &found) {
  if (found.text != "true" && found.text != "false") throw InputError(what(found) + " must be true or false");
  return found.text == "true";
}

std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

struct HostLimit {
  std::string host;
  std::uint32_t most = 1;
};

HostLimit parse_host(const std::string &entry, const std::string &list) {
  const std::vector<std::string> parts = split(entry, ':');
  const Found found{parts.size() > 1 ? parts[1] : "1", "cb_config_list '" + list + "': number"};
  if (parts.empty() || parts.size() > 2 || parts[0].empty())
    throw InputError("cb_config_list '" + list + "' must be entries such as node1:2 or *:1 with commas between them");
  if (found.text == "*") return {parts[0], std::numeric_limits<std::uint32_t>::max()};
  return {parts[0], parse_count(found, 0)};
}

std::string parse_hosts(const Found &found) {
  most_on_nodes(found.text, {});  // is it a list?
  return found.text;
}

// Each setting with its name.
template <typename Visit>
void visit(const Settings &settings, const Visit &each) {
  each("tier", settings.tier);
  each("persistence", settings.persistence);
  each("buffer_bytes", settings.buffer_bytes);
  each("buffers", settings.buffers);
  each("count", settings.count);
  each("hosts", settings.hosts);
  each("stage", settings.stage);
  each("stage_bytes", settings.stage_bytes);
  each("stage_persistence", settings.stage_persistence);
  each("seconds_between", settings.seconds_between);
  each("reads_back", settings.reads_back);
  each("machine", settings.machine);
  each("target", settings.target);
  each("topology", settings.topology);
  each("transport", settings.transport);
  each("reads_only", settings.reads_only);
  each("own_run_bytes", settings.own_run_bytes);
  each("seconds_most", settings.seconds_most);
}

std::string in_words(Persistence persistence) { return PERSISTENCES[static_cast<std::size_t>(persistence)]; }
const std::string &in_words(const std::string &text) { return text; }
std::string in_words(bool truth) { return truth ? "true" : "false"; }
template <typename Number>
std::string in_words(Number number) {
  return std::to_string(number);
}

// What is misspelt must not pass for said.
void check_names(const Texts &arguments, const Texts &environment) {
  const auto refuse_unknown = [](const Texts &given, const std::string &what, const auto &as_given) {
    for (const auto &[name, text] : given) {
      std::string known;
      bool found = false;
      for (const char *argument : ARGUMENTS) {
        found = found || as_given(argument) == name;
        known += (known.empty() ? "" : ", ") + as_given(argument);
      }
      if (!found) throw InputError(what + " '" + name + "' of aggregation is unknown; there are " + known);
    }
  };
  refuse_unknown(arguments, "setting", [](const std::string &argument) { return argument; });
  refuse_unknown(environment, "variable",
                 [](const std::string &argument) { return std::string(VARIABLES) + in_capitals(argument); });
}

}  // namespace

std::uint64_t parse_bytes(const std::string &text, const std::string &name) {
  const auto wrong = [&] { return InputError(name + " '" + text + "' must be a size such as 64MiB"); };
  double number = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(stopped, text.data() + text.size());
  std::erase_if(unit, [](unsigned char c) { return std::isspace(c) != 0; });
  for (char &c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (error != std::errc()) throw wrong();
  std::size_t power = 0;
  if (!unit.empty() && unit != "b") {
    power = std::string("kmgt").find(unit[0]);
    if (power++ == std::string::npos || (unit.size() > 1 && unit.substr(1) != "b" && unit.substr(1) != "ib"))
      throw wrong();
  }
  const double base = unit.size() == 2 ? 1000 : 1024;
  for (std::size_t i = 0; i < power; ++i) number *= base;
  if (!(number >= 1) || number > 0x1p62) throw wrong();
  return static_cast<std::uint64_t>(number);
}

Settings read_settings(const Texts &arguments, const Texts &hints, const Texts &environment) {
  check_names(arguments, environment);
  const auto set = [&](const std::string &argument, auto &setting, const auto &parse, const std::string &romio = "") {
    if (const auto found = find(arguments, hints, environment, argument, romio))
      setting = {parse(*found), found->origin};
  };
  const auto text = [](const Found &found) { return found.text; };
  const auto bytes = [](const Found &found) { return parse_bytes(found.text, found.origin + " ="); };
  Settings settings;
  set("tier", settings.tier, text);
  set("persistence", settings.persistence, parse_persistence);
  set("buffer", settings.buffer_bytes, bytes, "cb_buffer_size");
  // ROMIO takes any size, so programs give any.
  if (settings.buffer_bytes.origin == "hint cb_buffer_size")
    settings.buffer_bytes.value = round_up(settings.buffer_bytes.value, AlignedMemory::page_bytes);
  set("buffers", settings.buffers, [](const Found &found) { return parse_count(found, 2); });
  set("count", settings.count, [](const Found &found) { return parse_count(found, 1); }, "cb_nodes");
  set("hosts", settings.hosts, parse_hosts, "cb_config_list");
  set("stage", settings.stage, text);
  set("stage_bytes", settings.stage_bytes, bytes);
  set("stage_persistence", settings.stage_persistence, parse_persistence);
  set("seconds_between", settings.seconds_between, parse_number);
  set("reads_back", settings.reads_back, parse_number);
  set("machine", settings.machine, text);
  set("target", settings.target, text);
  set("topology", settings.topology, text);
  set("transport", settings.transport, parse_transport);
  set("reads_only", settings.reads_only, parse_truth);
  set("own_run_bytes", settings.own_run_bytes,
      [&](const Found &found) { return found.text == "0" ? 0 : bytes(found); });
  set("seconds_most", settings.seconds_most, parse_number);
  if (settings.stage_bytes.value > 0 && settings.stage.value.empty())
    throw InputError(settings.stage_bytes.origin + " is given without a stage");
  return settings;
}

std::vector<std::uint32_t> most_on_nodes(const std::string &list, std::span<const std::string> hosts) {
  std::vector<HostLimit> limits;
  for (std::string entry : split(list, ',')) {
    std::erase(entry, ' ');
    limits.push_back(parse_host(entry, list));
  }
  std::vector<std::uint32_t> most;
  for (const std::string &host : hosts) {
    const auto named = std::find_if(limits.begin(), limits.end(),
                                    [&](const HostLimit &one) { return one.host == "*" || one.host == host; });
    most.push_back(named == limits.end() ? 0 : named->most);
  }
  return most;
}

Wishes to_wishes(const Settings &settings) {
  Wishes wishes;
  wishes.buffer_bytes = settings.buffer_bytes.value;
  wishes.buffers = settings.buffers.value;
  wishes.persistence = settings.persistence.value;
  wishes.tier = settings.tier.value;
  return wishes;
}

std::vector<std::string> origins(const Settings &settings) {
  std::vector<std::string> lines;
  visit(settings, [&](const char *name, const auto &setting) {
    if (setting.is_set()) lines.push_back(std::string(name) + " by " + setting.origin);
  });
  return lines;
}

std::string alike(const Settings &settings) {
  std::ostringstream text;
  visit(settings, [&](const std::string &name, const auto &setting) {
    if (name == "stage_bytes" || (name == "stage" && !settings.chooses_stage())) return;
    if (setting.is_set()) text << name << " = " << in_words(setting.value) << " ";
  });
  return text.str().empty() ? "all defaults" : text.str();
}

}  // namespace outcrop::aggregate
