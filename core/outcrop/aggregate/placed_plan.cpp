#include "outcrop/aggregate/placed_plan.hpp"

#include <span>
#include <string_view>
#include <utility>

#include "outcrop/aggregate/placement/explain.hpp"
#include "outcrop/aggregate/placement/machine_here.hpp"
#include "outcrop/aggregate/text/format.hpp"
#include "outcrop/aggregate/transport/link.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

// Of each rank: what must be alike, or what is wrong with it.
std::vector<std::string> gather_strings(const Link &link, const std::string &mine) {
  std::vector<std::size_t> begins;
  const std::vector<char> all = link.gather_lists(std::span<const char>(mine), begins);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank + 1 < begins.size(); ++rank)
    texts.emplace_back(all.data() + begins[rank], begins[rank + 1] - begins[rank]);
  return texts;
}

}  // namespace

Settings agreed_settings(outcrop_transport &transport, const Texts &hints, const Texts &environment) {
  const Link link(transport);
  Settings settings;
  std::string mine;
  try {
    settings = read_settings({}, hints, environment);
    mine = std::string("+").append(alike(settings));
  } catch (const InputError &error) {
    mine = std::string("-") + error.what();
  }
  const std::vector<std::string> all = gather_strings(link, mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].front() == '-') throw InputError("rank " + std::to_string(rank) + ": " + all[rank].substr(1));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw InputError("ranks 0 and " + std::to_string(rank) + " have other settings: " + all[0].substr(1) + "; " +
                       all[rank].substr(1));
  return settings;
}

PlacedPlan PlacedPlan::make(outcrop_transport &transport, const Declaration &declaration, const Settings &settings) {
  PlacedPlan made;
  const Link link(transport);
  made.settings_ = settings;
  MachineHere here = find_machine(link, settings);
  Wishes wishes = to_wishes(settings);
  if (!settings.hosts.value.empty()) wishes.most_on_node = most_on_nodes(settings.hosts.value, here.hosts);
  PlanOptions options;  // 0 for what nobody has set: the plan chooses by the bytes there are
  if (settings.buffer_bytes.is_set()) options.buffer_bytes = settings.buffer_bytes.value;
  if (settings.buffers.is_set()) options.buffers = settings.buffers.value;
  options.aggregators = settings.count.value;
  options.reading_only = settings.reads_only.value;
  options.own_run_bytes = settings.own_run_bytes.value;
  // Who says where buffers are or who has them wants aggregators.
  if (!settings.own_run_bytes.is_set() && !settings.tier.is_set() && !settings.persistence.is_set() &&
      !settings.count.is_set() && !settings.hosts.is_set())
    options.own_run_bytes = own_where_it_pays;
  options.aggregators_on_node = here.machine.network.cards_on_node;
  options.media = here.media;
  made.placed_ = std::make_shared<Placed>(Placed{std::move(here.machine), std::move(wishes), {}});
  options.elect = elect_by_cost(made.placed_, options.aggregators > 0);
  made.media_ = std::move(here.media);
  made.lines_ = std::move(here.lines);
  made.plan_ = Plan::make(transport, declaration, options);
  return made;
}

void PlacedPlan::set_stage(FileOptions &options, bool writable) {
  if (options.node_files) return;
  if (!settings_.chooses_stage()) {
    options.stage_folder = settings_.stage.value;
    options.stage_bytes = settings_.stage_bytes.value;
    return;
  }
  for (const Medium &medium : media_)
    if (!medium.folder.empty()) options.settle_folders.push_back(medium.folder);
  if (!writable) return;
  const Machine &machine = placed_->machine;
  staging_ = decide_staging(machine, placed_->placement,
                            {settings_.seconds_between.value, settings_.reads_back.value, options.durable,
                             settings_.stage_persistence.value, settings_.stage_bytes.value});
  if (!staging_->chosen) return;
  const std::uint32_t tier = staging_->options[*staging_->chosen].tier,
                      node = machine.node_of_rank[static_cast<std::size_t>(plan_->rank())];
  options.stage_folder = media_[tier].folder;
  options.stage_bytes = settings_.stage_bytes.is_set() ? settings_.stage_bytes.value : machine.room(node, tier);
}

std::map<std::string, double> PlacedPlan::predicted() const {
  const Machine &machine = placed_->machine;
  if (settings_.reads_only.value) return {{"read", placed_->placement.seconds}};
  std::map<std::string, double> seconds{{"write", placed_->placement.seconds},
                                        {"read", seconds_with(machine, placed_->placement, machine.target_read, true)}};
  if (staging_ && staging_->chosen) {
    const StepForecast &staged = staging_->options[*staging_->chosen].forecast;
    seconds["staged write"] = staged.write;
    seconds["staged read"] = staged.read;
  }
  return seconds;
}

std::string PlacedPlan::explain(std::size_t domains_most) const {
  const PlanSummary &summary = plan_->summary();
  std::string text = counted(placed_->machine.node_of_rank.size(), "rank") + " on " +
                     counted(placed_->machine.nodes(), "node") + ": " + format_bytes(summary.bytes) + " a step\n" +
                     aggregate::explain(placed_->placement, placed_->machine, placed_->wishes, domains_most);
  if (staging_) text += aggregate::explain(*staging_, placed_->machine);
  const auto add = [&](const std::vector<std::string> &lines) {
    for (const std::string &line : lines) text += line + '\n';
  };
  add(lines_);
  add(origins(settings_));
  add(summary.places);
  add(summary.notes);
  add(measured_.lines(plan_->rank(), predicted()));
  return text;
}

}  // namespace outcrop::aggregate
