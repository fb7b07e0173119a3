#include "outcrop/aggregate/settings.hpp"

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
constexpr const char *ARGUMENTS[] = {"tier",  "persistence", "buffer",      "buffers",  "count",
                                     "hosts", "stage",       "stage_bytes", "transport"};

struct Found {
  std::string text;
  std::string origin;
};

// The first that there is: argument, hints in order, variable. A text of nothing is none, as in shells.
std::optional<Found> find(const Texts &arguments, const Texts &hints, const Texts &environment,
                          const std::string &argument, const std::vector<std::string> &hint_names,
                          const std::string &variable) {
  const auto in = [](const Texts &texts, const std::string &name) {
    const auto place = texts.find(name);
    return place == texts.end() ? std::string() : place->second;
  };
  if (const std::string text = in(arguments, argument); !text.empty()) return Found{text, "argument " + argument};
  for (const std::string &name : hint_names)
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

Persistence parse_persistence(const Found &found) {
  for (std::size_t i = 0; i < std::size(PERSISTENCES); ++i)
    if (found.text == PERSISTENCES[i]) return static_cast<Persistence>(i);
  throw InputError(what(found) + " must be process, reboot, job or permanent");
}

std::string parse_transport(const Found &found) {
  if (found.text != "messages" && found.text != "rma") throw InputError(what(found) + " must be messages or rma");
  return found.text;
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

void check_names(const Texts &arguments) {
  for (const auto &[name, text] : arguments) {
    if (std::find(std::begin(ARGUMENTS), std::end(ARGUMENTS), name) != std::end(ARGUMENTS)) continue;
    throw InputError(
        "setting '" + name +
        "' of aggregation is unknown; there are tier, persistence, buffer, buffers, count, hosts, stage, " +
        "stage_bytes and transport");
  }
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
  check_names(arguments);
  const auto look = [&](const std::string &argument, const std::vector<std::string> &names, const char *variable) {
    return find(arguments, hints, environment, argument, names, variable);
  };
  Settings settings;
  if (const auto found = look("tier", {"outcrop_agg_tier"}, "OUTCROP_AGG_TIER"))
    settings.tier = {found->text, found->origin};
  if (const auto found = look("persistence", {"outcrop_agg_persistence"}, "OUTCROP_AGG_PERSISTENCE"))
    settings.persistence = {parse_persistence(*found), found->origin};
  if (const auto found = look("buffer", {"outcrop_agg_buffer", "cb_buffer_size"}, "OUTCROP_AGG_BUFFER"))
    settings.buffer_bytes = {parse_bytes(found->text, found->origin + " ="), found->origin};
  // ROMIO takes any size, so programs give any.
  if (settings.buffer_bytes.origin == "hint cb_buffer_size")
    settings.buffer_bytes.value = round_up(settings.buffer_bytes.value, AlignedMemory::page_bytes);
  if (const auto found = look("buffers", {"outcrop_agg_buffers"}, "OUTCROP_AGG_BUFFERS"))
    settings.buffers = {parse_count(*found, 2), found->origin};
  if (const auto found = look("count", {"outcrop_agg_count", "cb_nodes"}, "OUTCROP_AGG_COUNT"))
    settings.count = {parse_count(*found, 1), found->origin};
  if (const auto found = look("hosts", {"cb_config_list"}, "")) {
    most_on_nodes(found->text, {});  // is it a list?
    settings.hosts = {found->text, found->origin};
  }
  if (const auto found = look("stage", {"outcrop_agg_stage"}, "OUTCROP_AGG_STAGE"))
    settings.stage = {found->text, found->origin};
  if (const auto found = look("stage_bytes", {"outcrop_agg_stage_bytes"}, "OUTCROP_AGG_STAGE_BYTES"))
    settings.stage_bytes = {parse_bytes(found->text, found->origin + " ="), found->origin};
  if (const auto found = look("transport", {"outcrop_agg_transport"}, "OUTCROP_AGG_TRANSPORT"))
    settings.transport = {parse_transport(*found), found->origin};
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

}  // namespace outcrop::aggregate
