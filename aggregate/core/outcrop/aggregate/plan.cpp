#include "outcrop/aggregate/plan.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <string>
#include <utility>

#include "outcrop/aggregate/decision/decision.hpp"
#include "outcrop/aggregate/steps/engine.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr int tag_pattern = 32765;
constexpr int nowhere = -1;

// What is told of each rank's part in a domain: the tally, and how long its pattern is in a message.
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

// Own part in each domain: how much, and its pattern there.
std::vector<Announced> parts_of(const Pattern &pattern, int rank, const std::vector<std::vector<Range>> &domains,
                                std::vector<std::vector<std::uint64_t>> &patterns) {
  std::vector<Announced> parts;
  for (std::size_t domain = 0; domain < domains.size(); ++domain) {
    std::uint64_t bytes = 0;
    for (const Range &range : domains[domain]) bytes += pattern.bytes_in(range);
    if (bytes == 0) continue;
    patterns.push_back(pattern.serialised(domains[domain]));
    parts.push_back(
        {{static_cast<std::uint32_t>(domain), static_cast<std::uint32_t>(rank), bytes}, patterns.back().size()});
  }
  return parts;
}

// Those of all ranks, by domain and then by rank, and this rank's own patterns in its order of them.
struct Parts {
  std::vector<Announced> all;
  std::vector<std::vector<std::uint64_t>> own;
};

Parts announce(const Link &link, const Pattern &pattern, const std::vector<std::vector<Range>> &domains) {
  Parts parts;
  const std::vector<Announced> mine = parts_of(pattern, link.rank(), domains, parts.own);
  std::vector<std::size_t> begins;
  parts.all = link.gather_lists(std::span<const Announced>(mine), begins);
  std::ranges::stable_sort(parts.all, {}, [](const Announced &part) { return part.tally.domain; });
  return parts;
}

std::vector<Tally> tallies_of(std::span<const Announced> parts) {
  std::vector<Tally> tallies;
  for (const Announced &part : parts) tallies.push_back(part.tally);
  return tallies;
}

void join_neighbours(std::vector<std::vector<Range>> &domains, std::size_t together) {
  std::vector<std::vector<Range>> joined((domains.size() + together - 1) / together);
  for (std::size_t domain = 0; domain < domains.size(); ++domain)
    for (const Range &range : domains[domain]) {
      std::vector<Range> &ranges = joined[domain / together];
      if (!ranges.empty() && ranges.back().end == range.begin)
        ranges.back().end = range.end;
      else
        ranges.push_back(range);
    }
  domains = std::move(joined);
}

// Patterns travel to the aggregators. Returns, for each domain, the senders that this rank aggregates.
std::vector<std::vector<Sender>> exchange_patterns(const Link &link, std::span<const Announced> parts,
                                                   const std::vector<std::vector<std::uint64_t>> &own,
                                                   std::span<const int> aggregators) {
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
  link.wait(requests);
  std::vector<std::vector<Sender>> senders(aggregators.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (aggregators[parts[i].tally.domain] == link.rank())
      senders[parts[i].tally.domain].push_back({static_cast<int>(parts[i].tally.rank), Pattern::parsed(received[i])});
  return senders;
}

// The same error on all ranks.
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

std::vector<Contribution> contributions_of(const Engine &engine, const Decision &decision) {
  std::vector<Contribution> contributions;
  for (const Tally &tally : engine.summary.tallies) {
    if (static_cast<int>(tally.rank) != engine.link.rank()) continue;
    const int aggregator = engine.summary.aggregators[tally.domain];
    Contribution made{tally.domain,
                      aggregator,
                      engine.node->local_of(aggregator) >= 0,
                      engine.node->relay(tally.domain),
                      cut_rounds(decision.domains[tally.domain], decision.buffer_bytes),
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

// The ranks of a node tell one another how long their parts of each round are, by the tables they share.
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

void set_up(Engine &engine, const Decision &decision, std::span<const Medium> media, bool merged,
            std::vector<std::vector<Sender>> senders) {
  const std::vector<int> &aggregators = engine.summary.aggregators;
  std::vector<std::uint32_t> rounds;
  for (const std::vector<Range> &domain : decision.domains)
    rounds.push_back(merged ? static_cast<std::uint32_t>(cut_rounds(domain, decision.buffer_bytes).count()) : 0);
  const RelayInputs relayed = merged ? RelayInputs{engine.summary.tallies, rounds} : RelayInputs{};
  engine.node = std::make_unique<Node>(engine.link, aggregators,
                                       BufferLayout{decision.buffer_bytes + AlignedMemory::page_bytes, decision.buffers,
                                                    engine.summary.tiers, media, relayed});
  engine.contributions = contributions_of(engine, decision);
  set_up_relays(engine);
  for (std::size_t domain = 0; domain < aggregators.size(); ++domain) {
    if (engine.node->local_of(aggregators[domain]) < 0) continue;
    if (++engine.writers == 1) engine.flushes = aggregators[domain] == engine.link.rank();
    if (aggregators[domain] != engine.link.rank()) continue;
    DomainWork work(domain, cut_rounds(decision.domains[domain], decision.buffer_bytes), std::move(senders[domain]),
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
  PlanSummary &summary = engine->summary;
  engine->reading_only = options.reading_only;
  summary.bytes = decision.bytes;
  summary.hull = decision.hull;
  summary.own = !decision.owners.empty();
  summary.buffer_bytes = decision.buffer_bytes;
  summary.buffers = decision.buffers;
  const std::vector<int> nodes = link.gather(link.node());
  const std::vector<Tally> tallies = tallies_of(parts.all);
  // Ranks that read the same bytes may have more of a round than a buffer holds.
  const bool can_merge = decision.owners.empty() && !options.reading_only;
  Election election = options.elect(
      {decision.domains.size(), tallies, nodes, decision.buffer_bytes, decision.buffers, can_merge, decision.owners});
  summary.aggregators = std::move(election.aggregators);
  summary.tiers = std::move(election.tiers);
  if (election.together > 1) {
    join_neighbours(decision.domains, election.together);
    parts = announce(link, engine->pattern, decision.domains);
  }
  assert(summary.aggregators.size() == decision.domains.size());
  summary.tiers.resize(summary.aggregators.size());
  summary.tallies = tallies_of(parts.all);
  summary.domain_bytes.resize(decision.domains.size());
  for (const Tally &tally : summary.tallies) summary.domain_bytes[tally.domain] += tally.bytes;

  std::vector<std::vector<Sender>> senders = exchange_patterns(link, parts.all, parts.own, summary.aggregators);
  if (!options.reading_only) refuse_overlaps(link, senders, decision.overlap);
  set_up(*engine, decision, options.media, election.merged && can_merge, std::move(senders));
  return Plan(std::move(engine));
}

const PlanSummary &Plan::summary() const { return engine_->summary; }
int Plan::rank() const { return engine_->link.rank(); }
std::span<const std::uint64_t> Plan::memory_bytes() const { return engine_->pattern.memory_bytes(); }

}  // namespace outcrop::aggregate
