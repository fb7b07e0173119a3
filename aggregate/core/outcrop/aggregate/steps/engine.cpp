#include "outcrop/aggregate/steps/engine.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "outcrop/aggregate/steps/step.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

// --- the task thread -----------------------------------------------------------------------------------------------

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TaskThread::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    // The start of the thread may throw an exception. Therefore the task is added only after the start.
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void TaskThread::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !busy_; });
}

void TaskThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

// --- the work of an aggregator -------------------------------------------------------------------------------------

DomainWork::DomainWork(std::size_t domain, Rounds rounds, std::vector<Sender> senders, const Node &node)
    : domain_(domain), rounds_(std::move(rounds)), senders_(std::move(senders)), local_begins_(1) {
  find_peers(node);
  std::vector<int> local;
  for (const Sender &sender : senders_) local.push_back(node.local_of(sender.rank));
  std::vector<std::uint64_t> each(senders_.size());
  for (std::uint32_t round = 0; round < rounds_.count(); ++round) {
    std::uint64_t present = 0, whole = 0;
    for (const BufferedRange &range : rounds_.of(round)) whole += range.file.bytes();
    const std::size_t remote_before = remote_parts_.size();
    for (std::uint32_t i = 0; i < senders_.size(); ++i) {
      present += each[i] = bytes_in(senders_[i].pattern, rounds_.of(round));
      if (each[i] > 0 && local[i] >= 0) local_parts_.push_back(static_cast<std::uint32_t>(local[i]));
    }
    for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
      std::uint64_t bytes = 0;
      for (const std::uint32_t sender : peers_[peer].senders) bytes += each[sender];
      if (bytes > 0) remote_parts_.push_back({round, peer, bytes});
    }
    parts_.push_back(
        static_cast<std::uint32_t>(local_parts_.size() - local_begins_.back() + remote_parts_.size() - remote_before));
    local_begins_.push_back(local_parts_.size());
    // no byte is counted twice in `present`, because the ranks of a plan that writes have no common bytes
    dense_.push_back(present == whole);
  }
}

// Finds the peers on other nodes. The senders are sorted by rank, so the senders of each peer are also sorted by rank.
void DomainWork::find_peers(const Node &node) {
  std::map<int, std::uint32_t> of_relay;
  for (std::uint32_t i = 0; i < senders_.size(); ++i) {
    const int rank = senders_[i].rank;
    if (node.local_of(rank) >= 0) continue;
    const Relay *relay = node.relays().find(domain_, node.nodes()[static_cast<std::size_t>(rank)]);
    if (relay == nullptr) {
      peers_.push_back({rank, {i}});
      continue;
    }
    const auto [found, added] = of_relay.try_emplace(relay->rank, static_cast<std::uint32_t>(peers_.size()));
    if (added) peers_.push_back({relay->rank, {}});
    peers_[found->second].senders.push_back(i);
  }
}

std::span<const BufferedRange> DomainWork::runs(std::size_t round) {
  if (dense_[round]) return rounds_.of(round);
  if (runs_round_ != round) find_runs(round);
  return runs_;
}

RunTotals DomainWork::totals() {
  RunTotals totals;
  for (std::size_t round = 0; round < rounds_.count(); ++round)
    for (const BufferedRange &run : runs(round)) {
      totals.bytes += run.file.bytes();
      ++totals.runs;
      if (run.file.bytes() >= AlignedMemory::page_bytes) ++totals.long_runs;
    }
  return totals;
}

void DomainWork::find_runs(std::size_t round) {
  runs_.clear();
  for (const BufferedRange &range : rounds_.of(round)) {
    const std::size_t first = runs_.size();
    for (const Sender &sender : senders_)
      sender.pattern.visit_extents(range.file, [&](const DeclaredExtent &declared) {
        visit_batches(declared.extent, range.file, [&](const Batch &batch) {
          for (std::uint64_t i = 0; i < batch.count; ++i) {
            const std::uint64_t begin = batch.file + i * batch.file_stride;
            runs_.push_back({{begin, begin + batch.block}, range.position + (begin - range.file.begin)});
          }
        });
      });
    std::ranges::sort(std::span(runs_).subspan(first), {}, [](const BufferedRange &run) { return run.file.begin; });
    join_neighbours(runs_, first, [](BufferedRange &before, const BufferedRange &next) {
      if (next.file.begin > before.file.end) return false;
      before.file.end = std::max(before.file.end, next.file.end);
      return true;
    });
  }
  runs_round_ = round;
}

// --- aggregators ---------------------------------------------------------------------------------------------------

Aggregator::Aggregator(Node &node, DomainWork work, int rank) : node_(node), work_(std::move(work)), rank_(rank) {}

void Aggregator::post(Job job) {
  thread_.post([this, job = std::move(job)] { run(job); });
}

void Aggregator::run(const Job &job) {
  if (broken_) return;
  result_ = {};
  drops_ = false;
  try {
    if (job.write)
      write_rounds(job);
    else
      read_rounds(job);
    job.done(result_);
  } catch (const CommunicationError &error) {  // another process of this node has ended, or a rank has given up
    broken_ = true;
    node_.give_up(error.what());
  } catch (const std::exception &error) {
    broken_ = true;
    node_.give_up("rank " + std::to_string(rank_) + " cannot continue: " + error.what());
  }
}

void Aggregator::open(std::uint64_t first_round, std::size_t round) {
  node_.open_round(work_.domain(), first_round + round, work_.parts(round), work_.local_parts(round));
  if (work_.has_remote(round)) node_.event().notify();
}

void Aggregator::wait_for_parts(std::uint64_t number) {
  const std::atomic<std::uint32_t> &pending = node_.pending(work_.domain(), number);
  EventCount &event = node_.round_state(work_.domain()).event;
  while (pending.load() > 0) {
    const std::uint32_t seen = event.count();
    if (pending.load() > 0) node_.wait(event, seen);
  }
}

// Runs act(), and adds its running time to the result of the job. Does nothing if the job has already failed or if the
// step is dropped.
template <typename Act>
void Aggregator::use_sink(const Job &job, Act &&act) {
  using Clock = std::chrono::steady_clock;
  drops_ = drops_ || (job.write && job.outcome->is_incomplete());
  if (drops_ || result_.failure.happened()) return;
  const Clock::time_point begin = Clock::now();
  result_.failure = attempt(job.write ? Failure::write : Failure::read, rank_, act);
  result_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

void Aggregator::write_rounds(const Job &job) {
  const std::size_t count = work_.rounds().count();
  std::size_t opened = 0;
  use_sink(job, [&] { job.sink->begin_step(job.step, job.base); });
  for (std::size_t round = 0; round < count; ++round) {
    while (opened < std::min<std::size_t>(count, round + node_.buffers())) open(job.first_round, opened++);
    wait_for_parts(job.first_round + round);
    move(job, round);
  }
  use_sink(job, [&] { job.sink->end_step(); });
  if (drops_ || result_.failure.happened()) job.sink->drop_step();
}

void Aggregator::read_rounds(const Job &job) {
  const std::size_t count = work_.rounds().count(), buffers = node_.buffers();
  for (std::size_t round = 0; round < count; ++round) {
    if (round >= buffers) wait_for_parts(job.first_round + round - buffers);
    move(job, round);
    open(job.first_round, round);
  }
  for (std::size_t round = count - std::min(count, buffers); round < count; ++round)
    wait_for_parts(job.first_round + round);
}

void Aggregator::move(const Job &job, std::size_t round) {
  // In the buffer, the first byte has the offset `base` modulo the page size. Therefore each byte has the same offset
  // within a page in the buffer and in the file (decision.hpp).
  std::byte *buffer = node_.buffer(work_.domain(), job.first_round + round) + job.base % AlignedMemory::page_bytes;
  const bool whole = !job.write && job.sink->reads_holes();
  use_sink(job, [&] {
    for (const BufferedRange &run : whole ? work_.rounds().of(round) : work_.runs(round)) {
      if (job.write)
        job.sink->write(job.base + run.file.begin, buffer + run.position, run.file.bytes());
      else
        job.sink->read(job.base + run.file.begin, buffer + run.position, run.file.bytes());
      result_.bytes += run.file.bytes();
    }
  });
}

// --- the engine ----------------------------------------------------------------------------------------------------

void Engine::begin(const std::shared_ptr<Step> &step, bool beside) {
  while (under_way.size() >= max_under_way) settle_oldest();
  under_way.push_back(step);
  try {
    step->start(beside);
  } catch (const std::exception &error) {  // for example, the system has no thread or no memory left
    const std::string reason = "rank " + std::to_string(link.rank()) + " cannot begin: " + error.what();
    break_off(reason);
    throw CommunicationError(reason);
  }
}

// Continues only the oldest step. When the oldest step has ended, the function continues the next step. All ranks
// continue the steps in the same order. Therefore a rank receives only messages of the step that the rank continues.
void Engine::advance() {
  while (!under_way.empty() && under_way.front()->advance()) {
    const std::shared_ptr<Step> first = under_way.front();
    under_way.pop_front();
    first->finish();
  }
}

bool Engine::sends() const {
  return std::ranges::any_of(under_way, [](const std::shared_ptr<Step> &step) { return step->sends(); });
}

void Engine::settle_oldest() {
  const std::shared_ptr<Step> oldest = under_way.front();  // advance() removes the step from `under_way`
  oldest->settle();
}

void Engine::settle_all() {
  while (!under_way.empty()) settle_oldest();
}

void Engine::break_off(const std::string &reason) {
  node->give_up(reason);
  copier.drain();
  // Messages use buffers in the Step objects and in the shared memory of the node. If the transport may still use the
  // buffers of messages, these buffers are never freed.
  if (!link.abandon()) {
    new std::deque<std::shared_ptr<Step>>(under_way);
    node->keep_memory();
  }
  under_way.clear();
}

}  // namespace outcrop::aggregate
