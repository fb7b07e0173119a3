#include "outcrop/aggregate/steps/aggregator.hpp"

#include <algorithm>
#include <chrono>

#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {

Aggregator::Aggregator(Node &node, DomainWork work, int rank) : node_(node), work_(std::move(work)), rank_(rank) {}

Aggregator::~Aggregator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Aggregator::post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });  // first: it may throw
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Aggregator::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      run(job);
    } catch (const CommunicationError &error) {  // a neighbour has gone: the others of this rank end, too
      node_.give_up(error.what());
      return;
    } catch (const std::exception &error) {
      node_.give_up("rank " + std::to_string(rank_) + " cannot go on: " + error.what());
      return;
    }
    lock.lock();
  }
}

void Aggregator::run(const Job &job) {
  failure_ = {};
  seconds_ = 0;
  bytes_ = 0;
  if (job.write)
    write_rounds(job);
  else
    read_rounds(job);
  job.done(failure_, seconds_, bytes_);
}

void Aggregator::open(std::uint64_t first_round, std::size_t round) {
  const std::uint64_t number = first_round + round;
  Lane &shared = lane();
  shared.pending[number % node_.buffers()].store(work_.parts(round));
  shared.opened.store(number + 1);
  for (const std::uint32_t local : work_.local_parts(round)) node_.bell(local).ring();
  if (work_.has_remote(round)) node_.bell().ring();
}

void Aggregator::wait_for_parts(std::uint64_t number) {
  Lane &shared = lane();
  const std::atomic<std::uint32_t> &pending = shared.pending[number % node_.buffers()];
  while (pending.load() > 0) {
    const std::uint32_t heard = shared.bell.listen();
    if (pending.load() > 0) node_.sleep(shared.bell, heard);
  }
}

// Nothing, once something has failed.
template <typename Act>
void Aggregator::use_sink(const Job &job, Act &&act) {
  using Clock = std::chrono::steady_clock;
  if (failure_.happened()) return;
  const Clock::time_point begin = Clock::now();
  failure_ = attempt(job.write ? Failure::write : Failure::read, rank_, act);
  seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
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
  if (failure_.happened()) job.sink->drop_step();
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
  // With the base as far beyond a page as the file: see rounds.hpp.
  std::byte *buffer = node_.buffer(work_.domain(), job.first_round + round) + job.base % AlignedMemory::page_bytes;
  const bool whole = !job.write && job.sink->reads_holes();
  use_sink(job, [&] {
    for (const Piece &run : whole ? work_.rounds().of(round) : work_.runs(round)) {
      if (job.write)
        job.sink->write(job.base + run.file.begin, buffer + run.position, run.file.bytes());
      else
        job.sink->read(job.base + run.file.begin, buffer + run.position, run.file.bytes());
      bytes_ += run.file.bytes();
    }
  });
}

}  // namespace outcrop::aggregate
