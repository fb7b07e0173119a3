#include "outcrop/aggregate/plan.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "outcrop/aggregate/file.hpp"
#include "outcrop/aggregate/steps/engine.hpp"
#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr int tag_pattern = 32765;
constexpr int nowhere = -1;

// A rank sends this struct to all ranks for each domain in which the rank has bytes. The struct contains the number of
// these bytes, and the length of the message that will describe the bytes.
struct Announced {
  Tally tally;
  std::uint64_t words = 0;
};

Pattern checked_pattern(const Declaration &declaration, std::string &problem) {
  try {
    return Pattern(declaration);
  } catch (const InputError &error) {
    problem = error.what();
    return {};
  }
}

struct Parts {
  std::vector<Announced> all;                   // the parts of all ranks, sorted by domain and then by rank
  std::vector<std::vector<std::uint64_t>> own;  // the patterns of this rank's parts, sorted by domain
};

Parts announce(const Link &link, const Pattern &pattern, const std::vector<std::vector<Range>> &domains) {
  Parts parts;
  std::vector<Announced> mine;
  const auto rank = static_cast<std::uint32_t>(link.rank());
  for (std::size_t domain = 0; domain < domains.size(); ++domain) {
    std::uint64_t bytes = 0;
    for (const Range &range : domains[domain]) bytes += pattern.bytes_in(range);
    if (bytes == 0) continue;
    parts.own.push_back(pattern.serialised(domains[domain]));
    mine.push_back({{static_cast<std::uint32_t>(domain), rank, bytes}, parts.own.back().size()});
  }
  parts.all = link.gather_lists(mine);
  std::ranges::stable_sort(parts.all, {}, [](const Announced &part) { return part.tally.domain; });
  return parts;
}

std::vector<Tally> tallies_of(std::span<const Announced> parts) {
  std::vector<Tally> tallies;
  for (const Announced &part : parts) tallies.push_back(part.tally);
  return tallies;
}

void join_domains(std::vector<std::vector<Range>> &domains, std::size_t together) {
  std::vector<std::vector<Range>> joined((domains.size() + together - 1) / together);
  for (std::size_t domain = 0; domain < domains.size(); ++domain)
    for (const Range &range : domains[domain]) append(joined[domain / together], range);
  domains = std::move(joined);
}

// Sends this rank's patterns to the aggregators. Returns the senders and their patterns for each domain, as one list
// for each domain. The list of a domain is empty if another rank is the aggregator of the domain.
std::vector<std::vector<Sender>> exchange_patterns(const Link &link, Parts announced,
                                                   std::span<const int> aggregators) {
  const auto &[parts, own] = announced;
  std::vector<outcrop_request> requests;
  std::vector<std::vector<std::uint64_t>> received(parts.size());
  for (std::size_t i = 0, sent = 0; i < parts.size(); ++i) {
    const int from = static_cast<int>(parts[i].tally.rank), to = aggregators[parts[i].tally.domain];
    const bool mine = from == link.rank();
    if (mine && to == from) received[i] = own[sent];
    if (mine && to != from) requests.push_back(link.send(std::as_bytes(std::span(own[sent])), to, tag_pattern));
    if (mine) ++sent;
    if (mine || to != link.rank()) continue;
    received[i].resize(parts[i].words);
    requests.push_back(link.receive(std::as_writable_bytes(std::span(received[i])), from, tag_pattern));
  }
  try {
    link.wait(requests);
  } catch (const CommunicationError &) {
    if (!link.abandon()) {  // the transport may still use the patterns, so they are never freed
      new std::vector(std::move(announced.own));
      new std::vector(std::move(received));
    }
    throw;
  }
  std::vector<std::vector<Sender>> senders(aggregators.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (aggregators[parts[i].tally.domain] == link.rank())
      senders[parts[i].tally.domain].push_back({static_cast<int>(parts[i].tally.rank), Pattern::parsed(received[i])});
  return senders;
}

// All ranks must call this function. If two extents overlap, throws the same error on all ranks.
void refuse_overlaps(const Link &link, const std::vector<std::vector<Sender>> &senders, std::optional<Overlap> found) {
  for (const std::vector<Sender> &each : senders)
    if (!found) found = find_overlap(each);
  const std::vector<Overlap> all = link.gather(found.value_or(Overlap{0, nowhere, nowhere}));
  const auto first = std::ranges::min_element(all, {}, [](const Overlap &overlap) {
    return overlap.first_rank == nowhere ? ~std::uint64_t{0} : overlap.offset;
  });
  if (first->first_rank == nowhere) return;
  const std::string ranks = first->first_rank == first->second_rank
                                ? "rank " + std::to_string(first->first_rank) + " has declared it twice"
                                : "ranks " + std::to_string(first->first_rank) + " and " +
                                      std::to_string(first->second_rank) + " have both declared it";
  throw InputError("extents overlap at byte " + std::to_string(first->offset) + " of the file: " + ranks +
                   "; only a plan for reading, by the setting reads_only, may do so");
}

std::vector<Contribution> contributions_of(const Engine &engine, const std::vector<std::vector<Range>> &domains) {
  std::vector<Contribution> contributions;
  for (const Tally &tally : engine.summary.tallies) {
    if (static_cast<int>(tally.rank) != engine.link.rank()) continue;
    const int aggregator = engine.summary.aggregators[tally.domain];
    Contribution made{tally.domain,
                      aggregator,
                      engine.node->local_of(aggregator) >= 0,
                      engine.node->relay(tally.domain),
                      cut_rounds(domains[tally.domain], engine.summary.buffer_bytes),
                      {},
                      {},
                      {}};
    for (std::uint32_t round = 0; round < made.rounds.count(); ++round)
      if (const std::uint64_t bytes = bytes_in(engine.pattern, made.rounds.of(round)); bytes > 0) {
        made.mine.push_back(round);
        made.bytes.push_back(bytes);
      }
    contributions.push_back(std::move(made));
  }
  return contributions;
}

// All ranks must call this function. Fills the tables of relays in the shared memory. In these tables, each rank writes
// how many bytes it has in each round. Then each rank finds the messages that it will send or receive as a relay.
void set_up_relays(Engine &engine) {
  const Node &node = *engine.node;
  if (!node.relays().any()) return;
  const int own = engine.link.rank();
  for (const Contribution &each : engine.contributions)
    for (std::size_t i = 0; each.relay != nullptr && i < each.mine.size(); ++i)
      node.relay_table(*each.relay, each.mine[i])[each.relay->place_of(own)] = each.bytes[i];
  engine.link.barrier();
  for (Contribution &each : engine.contributions)
    for (std::size_t i = 0; each.relay != nullptr && i < each.mine.size(); ++i) {
      const std::span<const std::uint64_t> before =
          node.relay_table(*each.relay, each.mine[i]).first(each.relay->place_of(own));
      each.offsets.push_back(std::accumulate(before.begin(), before.end(), std::uint64_t{0}));
    }
  for (const Relay *relay : node.relays().on_node(node.ranks().front())) {
    if (relay->rank != own) continue;
    RelayWork &work = engine.relays.emplace_back();
    work = {relay, engine.summary.aggregators[relay->domain], relay->rounds, {}};
    for (std::uint32_t round = 0; round < relay->rounds; ++round) {
      RelayWork::RoundMessage message{round, 0, {}};
      const std::span<const std::uint64_t> bytes = node.relay_table(*relay, round);
      for (std::size_t place = 0; place < bytes.size(); ++place) {
        if (bytes[place] == 0) continue;
        message.bytes += bytes[place];
        message.parts.push_back(static_cast<std::uint32_t>(node.local_of(relay->ranks[place])));
      }
      if (message.bytes > 0) work.messages.push_back(std::move(message));
    }
  }
}

void set_up(Engine &engine, const std::vector<std::vector<Range>> &domains, std::span<const Medium> media, bool merged,
            std::vector<std::vector<Sender>> senders) {
  const std::vector<int> &aggregators = engine.summary.aggregators;
  std::vector<std::uint32_t> rounds;
  for (const std::vector<Range> &domain : domains)
    rounds.push_back(merged ? static_cast<std::uint32_t>(cut_rounds(domain, engine.summary.buffer_bytes).count()) : 0);
  const RelayInputs relayed = merged ? RelayInputs{engine.summary.tallies, rounds} : RelayInputs{};
  engine.node = std::make_unique<Node>(engine.link, aggregators,
                                       BufferLayout{engine.summary.buffer_bytes + AlignedMemory::page_bytes,
                                                    engine.summary.buffers, engine.summary.tiers, media, relayed});
  engine.contributions = contributions_of(engine, domains);
  set_up_relays(engine);
  for (std::size_t domain = 0; domain < aggregators.size(); ++domain) {
    if (engine.node->local_of(aggregators[domain]) < 0) continue;
    if (++engine.writers == 1) engine.flushes = aggregators[domain] == engine.link.rank();
    if (aggregators[domain] != engine.link.rank()) continue;
    DomainWork work(domain, cut_rounds(domains[domain], engine.summary.buffer_bytes), std::move(senders[domain]),
                    *engine.node);
    engine.aggregators.push_back(std::make_unique<Aggregator>(*engine.node, std::move(work), engine.link.rank()));
  }
  engine.summary.nodes.assign(engine.node->nodes().begin(), engine.node->nodes().end());
  engine.summary.places = engine.node->places();
  engine.summary.notes = engine.node->notes();
}

}  // namespace

Plan Plan::make(outcrop_transport &transport, const Declaration &declaration, const PlanOptions &options) {
  std::string problem;
  auto engine = std::make_shared<Engine>(transport, checked_pattern(declaration, problem));
  const Link &link = engine->link;
  Decision decision = decide(link, engine->pattern, options, problem);

  Parts parts = announce(link, engine->pattern, decision.domains);
  PlanSummary &summary = engine->summary = std::move(decision.summary);
  engine->reading_only = options.reading_only;
  const std::vector<int> nodes = link.gather(link.node());
  const std::vector<Tally> tallies = tallies_of(parts.all);
  // A plan for reading has no relays. In a plan for reading, several ranks can read the same bytes, so the bytes of all
  // ranks in one round can be too many for the slot of a relay.
  const bool can_merge = !summary.own && !options.reading_only;
  Election election = options.elect(
      {decision.domains.size(), tallies, nodes, summary.buffer_bytes, summary.buffers, can_merge, decision.owners});
  summary.aggregators = std::move(election.aggregators);
  summary.tiers = std::move(election.tiers);
  if (election.together > 1) {
    join_domains(decision.domains, election.together);
    parts = announce(link, engine->pattern, decision.domains);
  }
  assert(summary.aggregators.size() == decision.domains.size());
  summary.tiers.resize(summary.aggregators.size());
  summary.tallies = tallies_of(parts.all);
  summary.domain_bytes.resize(decision.domains.size());
  for (const Tally &tally : summary.tallies) summary.domain_bytes[tally.domain] += tally.bytes;

  std::vector<std::vector<Sender>> senders = exchange_patterns(link, std::move(parts), summary.aggregators);
  if (!options.reading_only) refuse_overlaps(link, senders, decision.overlap);
  set_up(*engine, decision.domains, options.media, election.merged && can_merge, std::move(senders));
  return Plan(std::move(engine));
}

const PlanSummary &Plan::summary() const { return engine_->summary; }
int Plan::rank() const { return engine_->link.rank(); }
std::span<const std::uint64_t> Plan::memory_bytes() const { return engine_->pattern.memory_bytes(); }

// --- a plan whose aggregators are placed by cost ---------------------------------------------------------------------

namespace {

// All ranks must call this function. All ranks get the environment variables of rank 0. Rank 0 sends its variables as
// texts "NAME=value". Each text ends with a zero byte.
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

constexpr std::size_t max_measured = 1024;

double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median_of(const std::deque<Timing> &steps, double Timing::*part) {
  std::vector<double> values;
  for (const Timing &each : steps) values.push_back(each.*part);
  return median(std::move(values));
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
    // If `first_has_environment` is true, read() is called again below, with the environment of rank 0. Then errors of
    // the first call of read() do not count.
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
      throw InputError("ranks 0 and " + std::to_string(rank) + " have different settings: " + all[0] + "; " +
                       all[rank]);
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
  PlanOptions options;  // Plan::make() chooses values for the options that stay 0
  if (settings.buffer_bytes.is_set()) options.buffer_bytes = settings.buffer_bytes.value;
  if (settings.buffers.is_set()) options.buffers = static_cast<std::uint32_t>(settings.buffers.value);
  options.aggregators = static_cast<std::uint32_t>(settings.count.value);
  options.reading_only = settings.reads_only.value;
  options.own_run_bytes = settings.own_run_bytes.value;
  // The library decides whether each rank performs its own I/O if the user has set nothing about aggregators and their
  // tiers.
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
  made.placed_->machine.distances = nullptr;  // the caller may now destroy the object that provides distances
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
    return;  // node files are not staged; open() throws an error if the arguments ask for both
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

void PlacedPlan::add_measured(const std::string &what, const Timing &timing) {
  std::deque<Timing> &kept = measured_[what];
  kept.push_back(timing);
  if (kept.size() > max_measured) kept.pop_front();
}

// Returns one line for each kind of step, such as "write" or "staged read". Each line has the medians of the measured
// times.
std::vector<std::string> PlacedPlan::measured_lines() const {
  const std::map<std::string, double> seconds = predicted();
  std::vector<std::string> lines;
  for (const auto &[what, steps] : measured_) {
    std::string line = "measured at rank " + std::to_string(plan_->rank()) + ", " + std::to_string(steps.size()) + " " +
                       what + (steps.size() == 1 ? "" : "s") + ": " +
                       format_seconds(median_of(steps, &Timing::seconds));
    if (const auto found = seconds.find(what); found != seconds.end())
      line += ", predicted " + format_seconds(found->second);
    line += "; copying " + format_seconds(median_of(steps, &Timing::seconds_copying));
    if (const double storage = median_of(steps, &Timing::seconds_storage); storage > 0)
      line += ", storage " + format_seconds(storage);
    std::vector<double> overlaps;
    for (const Timing &each : steps)
      if (const auto part = each.overlap()) overlaps.push_back(100 * *part);
    if (!overlaps.empty())
      line += ", " + std::to_string(std::lround(median(std::move(overlaps)))) + "% of the shorter beside the other";
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string PlacedPlan::explain(std::size_t max_domains, const std::string &library) const {
  const PlanSummary &summary = plan_->summary();
  std::string text = counted(placed_->machine.node_of_rank.size(), "rank") + " on " +
                     counted(placed_->machine.nodes(), "node") + (library.empty() ? "" : ", " + library) + ": " +
                     format_bytes(summary.bytes) + " a step\n";
  if (summary.own) text += "every rank writes and reads its own bytes, in a few long runs: ranks send no bytes\n";
  text += aggregate::explain(placed_->placement, placed_->machine, placed_->options, max_domains);
  if (staging_) text += aggregate::explain(*staging_, placed_->machine);
  const auto add = [&](const std::vector<std::string> &lines) {
    for (const std::string &line : lines) text += line + '\n';
  };
  add(lines_);
  add(origins(settings_));
  add(summary.places);
  add(summary.notes);
  add(measured_lines());
  return text;
}

}  // namespace outcrop::aggregate
