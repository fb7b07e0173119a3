#include "outcrop/aggregate/placed_plan.hpp"

#include <utility>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

// Collective: rank 0's variables, on all ranks, as texts "NAME=value", each ended by a zero byte.
Texts environment_of_first(const Link &link, const GivenSettings &given) {
  std::string mine;
  if (link.rank() == 0)
    for (const auto &[name, value] : given.environment) mine.append(name).append("=").append(value) += '\0';
  const std::string text = gather_texts(link, mine, given.problem).front();
  std::vector<const char *> variables;
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\0', begin) + 1)
    variables.push_back(text.data() + begin);
  variables.push_back(nullptr);
  return settings_in_environment(variables.data());
}

}  // namespace

Settings agreed_settings(outcrop_transport &transport, GivenSettings given, bool first_has_environment) {
  const Link link(transport);
  Settings settings;
  const auto read = [&] {
    settings = read_settings(given.arguments, given.hints, given.environment);
    transport.seconds_most = settings.seconds_most.value;
  };
  try {
    if (given.problem.empty()) read();
  } catch (const InputError &error) {
    // Another rank's environment may hold instead; what is wrong with the rest is told below.
    if (!first_has_environment) given.problem = error.what();
  }
  if (first_has_environment) {
    given.environment = environment_of_first(link, given);
    try {
      read();
    } catch (const InputError &error) {
      given.problem = error.what();
    }
  }
  const std::vector<std::string> all = gather_texts(link, alike(settings), given.problem);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw InputError("ranks 0 and " + std::to_string(rank) + " have other settings: " + all[0] + "; " + all[rank]);
  transport.seconds_most = settings.seconds_most.value;
  return settings;
}

PlacedPlan PlacedPlan::make(outcrop_transport &transport, const Declaration &declaration, const Settings &settings,
                            MachineSources sources) {
  sources.machine_file = settings.machine.value;
  sources.target_folder = settings.target.value;
  sources.topology_file = settings.topology.value;
  sources.reads_only = settings.reads_only.value;
  PlacedPlan made;
  made.settings_ = settings;
  DetectedMachine found = find_machine(Link(transport), sources);
  PlanOptions options;  // an option that is 0 is not set: the plan chooses its value by the number of bytes
  if (settings.buffer_bytes.is_set()) options.buffer_bytes = settings.buffer_bytes.value;
  if (settings.buffers.is_set()) options.buffers = static_cast<std::uint32_t>(settings.buffers.value);
  options.aggregators = static_cast<std::uint32_t>(settings.count.value);
  options.reading_only = settings.reads_only.value;
  options.own_run_bytes = settings.own_run_bytes.value;
  // A user who says where buffers are, or which ranks have them, wants aggregators.
  if (!settings.own_run_bytes.is_set() && !settings.tier.is_set() && !settings.persistence.is_set() &&
      !settings.count.is_set() && !settings.hosts.is_set())
    options.own_run_bytes = own_run_automatic;
  options.aggregators_on_node = found.machine.network.cards_on_node;
  options.media = found.media;
  made.placed_ =
      std::make_shared<Placed>(Placed{std::move(found.machine), placement_options(settings, found.hosts), {}});
  options.elect = elect_by_cost(made.placed_, options.aggregators > 0);
  made.media_ = std::move(found.media);
  made.lines_ = std::move(found.lines);
  made.plan_ = Plan::make(transport, declaration, options);
  made.placed_->machine.distances = nullptr;  // a provider of the caller may end now
  return made;
}

std::vector<std::string> PlacedPlan::tiers() const {
  std::vector<std::string> names;
  for (const std::uint32_t tier : plan_->summary().tiers) names.push_back(placed_->machine.tiers[tier].name);
  return names;
}

void PlacedPlan::set_stage(FileOptions &options, bool writable, const Texts &arguments) {
  const Settings settings = with_arguments(settings_, arguments);
  if (options.node_files && !arguments.contains("stage"))
    return;  // refused by the file where an argument asks for both
  if (!settings.chooses_stage()) {
    options.stage_folder = settings.stage.value;
    if (!options.stage_folder.empty() || arguments.contains("stage_bytes"))
      options.stage_bytes = settings.stage_bytes.value;
    return;
  }
  for (const Medium &medium : media_)
    if (!medium.folder.empty()) options.settle_folders.push_back(medium.folder);
  if (!writable) return;
  const Machine &machine = placed_->machine;
  staging_ = decide_staging(machine, placed_->placement,
                            {settings.seconds_between.value, settings.reads_back.value, options.durable,
                             settings.stage_persistence.value, settings.stage_bytes.value});
  if (!staging_->chosen) return;
  const std::uint32_t tier = staging_->options[*staging_->chosen].tier,
                      node = machine.node_of_rank[static_cast<std::size_t>(plan_->rank())];
  options.stage_folder = media_[tier].folder;
  options.stage_bytes = settings.stage_bytes.value > 0 ? settings.stage_bytes.value : machine.room(node, tier);
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

std::string PlacedPlan::explain(std::size_t max_domains, const std::string &library) const {
  const PlanSummary &summary = plan_->summary();
  std::string text = counted(placed_->machine.node_of_rank.size(), "rank") + " on " +
                     counted(placed_->machine.nodes(), "node") + (library.empty() ? "" : ", " + library) + ": " +
                     format_bytes(summary.bytes) + " a step\n";
  if (summary.own) text += "every rank writes and reads its own bytes, which are few long runs: no bytes travel\n";
  text += aggregate::explain(placed_->placement, placed_->machine, placed_->options, max_domains);
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
