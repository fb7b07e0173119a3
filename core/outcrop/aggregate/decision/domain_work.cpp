#include "outcrop/aggregate/decision/domain_work.hpp"

#include <algorithm>
#include <map>

#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {

std::uint64_t bytes_in(const Pattern &pattern, std::span<const Piece> pieces) {
  std::uint64_t bytes = 0;
  for (const Piece &piece : pieces) bytes += pattern.bytes_in(piece.file);
  return bytes;
}

DomainWork::DomainWork(std::size_t domain, Rounds rounds, std::vector<Sender> senders, const Node &node)
    : domain_(domain), rounds_(std::move(rounds)), senders_(std::move(senders)), local_begins_(1) {
  find_parties(node);
  std::vector<int> local;
  for (const Sender &sender : senders_) local.push_back(node.local_of(sender.rank));
  std::vector<std::uint64_t> each(senders_.size());
  for (std::uint32_t round = 0; round < rounds_.count(); ++round) {
    std::uint64_t present = 0, whole = 0;
    for (const Piece &piece : rounds_.of(round)) whole += piece.file.bytes();
    const std::size_t remote_before = remote_parts_.size();
    for (std::uint32_t i = 0; i < senders_.size(); ++i) {
      present += each[i] = bytes_in(senders_[i].pattern, rounds_.of(round));
      if (each[i] > 0 && local[i] >= 0) local_parts_.push_back(static_cast<std::uint32_t>(local[i]));
    }
    for (std::uint32_t party = 0; party < parties_.size(); ++party) {
      std::uint64_t bytes = 0;
      for (const std::uint32_t sender : parties_[party].senders) bytes += each[sender];
      if (bytes > 0) remote_parts_.push_back({round, party, bytes});
    }
    parts_.push_back(
        static_cast<std::uint32_t>(local_parts_.size() - local_begins_.back() + remote_parts_.size() - remote_before));
    local_begins_.push_back(local_parts_.size());
    dense_.push_back(present == whole);  // no byte is there twice: plans that write refuse that
  }
}

// Senders are in the order of their ranks, as the ranks of a relay are.
void DomainWork::find_parties(const Node &node) {
  std::map<int, std::uint32_t> of_relay;
  for (std::uint32_t i = 0; i < senders_.size(); ++i) {
    const int rank = senders_[i].rank;
    if (node.local_of(rank) >= 0) continue;
    const Relay *relay = node.relays().find(domain_, node.nodes()[static_cast<std::size_t>(rank)]);
    if (relay == nullptr) {
      parties_.push_back({rank, {i}});
      continue;
    }
    const auto [found, is_new] = of_relay.try_emplace(relay->rank, static_cast<std::uint32_t>(parties_.size()));
    if (is_new) parties_.push_back({relay->rank, {}});
    parties_[found->second].senders.push_back(i);
  }
}

std::span<const Piece> DomainWork::runs(std::size_t round) {
  if (dense_[round]) return rounds_.of(round);
  if (runs_round_ != round) find_runs(round);
  return runs_;
}

RunTotals DomainWork::totals() {
  RunTotals totals;
  for (std::size_t round = 0; round < rounds_.count(); ++round)
    for (const Piece &run : runs(round)) {
      totals.bytes += run.file.bytes();
      if (run.file.bytes() >= AlignedMemory::page_bytes) ++totals.long_runs;
    }
  return totals;
}

void DomainWork::find_runs(std::size_t round) {
  runs_.clear();
  for (const Piece &piece : rounds_.of(round)) {
    const std::size_t first = runs_.size();
    for (const Sender &sender : senders_)
      sender.pattern.visit_entries(piece.file, [&](const Entry &entry) {
        visit_batches(entry.extent, piece.file, [&](const Batch &batch) {
          for (std::uint64_t i = 0; i < batch.count; ++i) {
            const std::uint64_t begin = batch.file + i * batch.file_stride;
            runs_.push_back({{begin, begin + batch.block}, piece.position + (begin - piece.file.begin)});
          }
        });
      });
    const auto found = std::span(runs_).subspan(first);
    if (found.empty()) continue;
    std::ranges::sort(found, {}, [](const Piece &run) { return run.file.begin; });
    std::size_t last = 0;
    for (std::size_t i = 1; i < found.size(); ++i)
      if (found[i].file.begin <= found[last].file.end)
        found[last].file.end = std::max(found[last].file.end, found[i].file.end);
      else
        found[++last] = found[i];
    runs_.resize(first + last + 1);
  }
  runs_round_ = round;
}

}  // namespace outcrop::aggregate
