// The I/O thread of one domain: writes buffers that ranks have filled, or reads ahead into buffers that they will empty.
//
//     writing   open rounds r .. r+k-1 ─► wait until round r is filled ─► write it ─► open round r+k
//     reading   read round r into its buffer (waiting until round r-k has been emptied) ─► open it
//
// It makes no calls of the transport, so that an MPI initialised for one thread will do. After a failure it goes on taking
// rounds and drops them: nobody waits for it in vain, and the outcome tells all ranks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "outcrop/aggregate/decision/domain_work.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"

namespace outcrop::aggregate {

/// One operation, as far as one domain is concerned.
struct Job {
  bool write = false;
  std::uint64_t first_round = 0;  ///< numbered through all operations
  std::uint64_t base = 0;
  std::uint64_t step = 0;  ///< of writing, numbered through those of the file
  Sink *sink = nullptr;
  std::function<void(const Failure &failure, double seconds, std::uint64_t bytes)> done;  ///< called by the thread
};

class Aggregator {
 public:
  Aggregator(Node &node, DomainWork work, int rank);
  ~Aggregator();

  void post(Job job);

  const DomainWork &work() const { return work_; }
  /// While no job is under way.
  DomainWork &work() { return work_; }
  Lane &lane() const { return node_.lane(work_.domain()); }

 private:
  void loop();
  void run(const Job &job);
  void write_rounds(const Job &job);
  void read_rounds(const Job &job);
  void open(std::uint64_t first_round, std::size_t round);
  void wait_for_parts(std::uint64_t number);
  void move(const Job &job, std::size_t round);
  template <typename Act>
  void use_sink(const Job &job, Act &&act);

  Node &node_;
  DomainWork work_;
  const int rank_;

  // Of the operation at work.
  Failure failure_;
  double seconds_ = 0;
  std::uint64_t bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;  // started with the first job
};

}  // namespace outcrop::aggregate
