// The transport over an MPI communicator.
//
//     messages          ──► the first duplicate of the communicator, by MpiMessages
//     gather, barrier   ──► the second duplicate, by MpiCollectives
//     one-sided         ──► two more duplicates and a window, by MpiOneSided, if the user asks for it and the probe succeeds
//
// After a failure, this library frees no communicator. Otherwise MPI could wait for a rank that has failed.
// MPI_Finalize frees the communicators.
//
// This library returns errors of MPI to its caller. Therefore the error handler of the user's communicator has no
// effect. MPICH behaves differently. If an unfinished transfer fails, MPICH calls the error handler of MPI_COMM_WORLD.
// Only the user can set the error handler of MPI_COMM_WORLD. The default handler, MPI_ERRORS_ARE_FATAL, prints a
// message and ends the program. mpi4py sets MPI_ERRORS_RETURN.
//
// The files mpi_* include no other files of this project than mpi_* headers and transport.h. Therefore the Python
// package can compile these files for any MPI library.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "outcrop/aggregate/mpi/mpi_one_sided.hpp"
#include "outcrop/aggregate/mpi/mpi_two_sided.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t max_chunk_bytes = std::size_t{1} << 30;  // the functions of MPI take a number of bytes as an int
constexpr std::size_t default_slot_bytes = std::size_t{1} << 20, max_slot_bytes = std::size_t{1} << 27;

void copy_text(const std::string &text, std::span<char> target) {
  if (!target.empty()) std::snprintf(target.data(), target.size(), "%s", text.c_str());
}

class MpiTransport {
 public:
  MpiTransport(MPI_Comm users, std::size_t chunk_bytes)
      : chunk_bytes_(chunk_bytes == 0 ? max_chunk_bytes : std::min(chunk_bytes, max_chunk_bytes)) {
    check(MPI_Comm_dup(users, &messages_over_.value), "duplicating a communicator");
    check(MPI_Comm_dup(users, &collectives_over_.value), "duplicating a communicator");
    check(MPI_Comm_rank(users, &table.rank), "asking for the rank");
    check(MPI_Comm_size(users, &table.size), "asking for the number of ranks");
    try {
      describe_ranks();
    } catch (const std::exception &) {
      release();
      throw;
    }
    fill_table(table, this);
    messages_ = std::make_unique<MpiMessages>(messages_over_.value, chunk_bytes_, policy_);
    collectives_ = std::make_unique<MpiCollectives>(collectives_over_.value, chunk_bytes_, policy_, [this] {
      if (one_sided_) one_sided_->gets().advance();
    });
  }

  ~MpiTransport() {
    int over = 0;
    MPI_Finalized(&over);
    if (over == 0 && !failed_ && one_sided_) meet_before_freeing();
    if (over == 0 && failed_) abandon();
    if (over != 0 || failed_) release();
  }
  MpiTransport(const MpiTransport &) = delete;
  MpiTransport &operator=(const MpiTransport &) = delete;

  outcrop_transport table{};

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag) {
    return fetches(bytes) ? one_sided_->gets().send(data, bytes, to, tag) : messages_->send(data, bytes, to, tag);
  }
  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag) {
    return fetches(bytes) ? one_sided_->gets().receive(data, bytes, from, tag)
                          : messages_->receive(data, bytes, from, tag);
  }
  void wait(std::span<outcrop_request> requests) {
    if (!one_sided_) return messages_->wait(requests);
    for (Backoff backoff(policy_); !test(requests);)
      backoff.pause([] { return std::string("exchanging messages by windows"); });
  }
  bool test(std::span<outcrop_request> requests) {
    if (!one_sided_) return messages_->advance(requests);
    one_sided_->gets().advance();
    bool all = true;
    for (outcrop_request &request : requests) {
      const bool over =
          (request & MpiGets::mark) != 0 ? one_sided_->gets().over(request) : messages_->advance({&request, 1});
      if (over) request = 0;
      all = all && over;
    }
    return all;
  }

  void gather_all(const void *mine, std::size_t bytes, void *all) { collectives_->gather_all(mine, bytes, all); }
  void gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all) {
    collectives_->gather_all_sizes(mine, sizes, all);
  }
  void barrier() { collectives_->barrier(); }

  /// All ranks must call this function at a time when no message is under way. If windows work, the result is "", and
  /// later receivers fetch all long messages from windows. Otherwise returns the reason. The ranks begin each step of
  /// the tests (mpi_one_sided.hpp) only if the previous step has succeeded on all ranks. The deadline ends the process
  /// if a call of MPI never returns. The probe has its own, shorter time limit. If the probe exceeds this limit, only
  /// the probe fails. MPI still works for other messages.
  std::string use_one_sided(std::size_t slot_bytes, std::chrono::duration<double> limit) {
    const Deadline deadline(3 * limit, "rank " + std::to_string(table.rank) + " on " + table.host + ": " + table.name +
                                           " hangs in one-sided communication; do not set transport = rma");
    const auto attempt = [this](auto &&act) {
      std::string problem;
      try {
        act();
      } catch (const std::exception &error) {
        problem = error.what();
      }
      return first_problem(problem);
    };
    std::unique_ptr<MpiOneSided> tried;
    std::string problem = attempt([&] { tried = std::make_unique<MpiOneSided>(collectives_over_.value, slot_bytes); });
    if (problem.empty()) problem = attempt([&] { tried->make_window(); });
    const bool all_have_windows = problem.empty();
    if (problem.empty()) problem = attempt([&] { tried->open_window(); });
    if (problem.empty()) problem = attempt([&] { tried->probe(table.rank, table.size, limit); });
    if (problem.empty()) {
      one_sided_ = std::move(tried);
    } else if (tried) {
      // If the probe exceeded its time limit, its requests have not ended, and their memory must stay allocated.
      const bool left_behind = all_have_windows && !tried->idle();
      if (left_behind) tried->abandon();
      if (!first_problem(all_have_windows && !left_behind ? "" : "a rank cannot free its windows").empty())
        tried->release();
      if (left_behind) static_cast<void>(tried.release());
    }
    return problem;
  }

  bool abandon() noexcept {
    int over = 0;
    MPI_Finalized(&over);
    failed_ = true;
    if (over != 0) return true;
    bool ended = messages_->abandon();
    ended = collectives_->abandon() && ended;
    if (one_sided_) {
      ended = one_sided_->abandon() && ended;
      one_sided_->release();
      static_cast<void>(one_sided_.release());  // MPI may still use this object
    }
    return ended;
  }

  void fail(const char *what) noexcept {
    failed_ = true;
    try {
      failure_ = "rank " + std::to_string(table.rank) + " on " + table.host + ": " + what;
    } catch (const std::exception &) {
      failure_.clear();  // there is too little memory for the text
    }
  }

  const char *failure() const { return failure_.c_str(); }
  void close() { delete this; }

 private:
  void describe_ranks() {
    Communicator node;
    int ranks = 0, length = 0;
    check(MPI_Comm_split_type(messages_over_.value, MPI_COMM_TYPE_SHARED, table.rank, MPI_INFO_NULL, &node.value),
          "finding the ranks of a node");
    check(MPI_Comm_size(node.value, &ranks), "counting the ranks of a node");
    policy_.crowded = static_cast<unsigned>(ranks) >= std::thread::hardware_concurrency();
    table.node = table.rank;
    check(MPI_Bcast(&table.node, 1, MPI_INT, 0, node.value), "finding the first rank of a node");
    find_neighbours(node.value, static_cast<std::size_t>(ranks));
    std::string host(MPI_MAX_PROCESSOR_NAME, '\0');
    check(MPI_Get_processor_name(host.data(), &length), "asking for the node's name");
    copy_text(host, table.host);
    copy_text(mpi_library_name(), table.name);
  }

  // Finds the numbers of the processes that are the other ranks of this node. This process cannot see the processes of
  // another container. Such processes are not watched.
  void find_neighbours(MPI_Comm node, std::size_t ranks) {
    struct Member {
      Neighbour neighbour;
      std::uint64_t numbers_device = 0, numbers = 0;  // the namespace of the process numbers
    };
    struct stat status {};
    const bool known = stat("/proc/self/ns/pid", &status) == 0;
    const Member own{{table.rank, static_cast<int>(getpid())}, status.st_dev, status.st_ino};
    std::vector<Member> all(ranks);
    check(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, node), "finding processes");
    for (const Member &each : all)
      if (known && each.neighbour.rank != table.rank && each.numbers == own.numbers &&
          each.numbers_device == own.numbers_device)
        neighbours_.push_back(each.neighbour);
  }

  // Waits for all ranks before a window is freed. MPI itself also waits for all ranks when it frees a window, but
  // without a time limit. The barrier of this library ends with an error after a time limit.
  void meet_before_freeing() noexcept {
    try {
      barrier();
    } catch (const std::exception &error) {
      fail(error.what());
    }
  }

  void release() {
    if (one_sided_) one_sided_->release();
    messages_over_.release();
    collectives_over_.release();
  }

  bool fetches(std::size_t bytes) const { return one_sided_ && one_sided_->takes(bytes); }
  std::string first_problem(const std::string &mine) {
    struct Problem {
      char text[240];
    } own{};
    copy_text(mine, own.text);
    std::vector<Problem> all(static_cast<std::size_t>(table.size));
    gather_all(&own, sizeof own, all.data());
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (all[rank].text[0] != 0) return "rank " + std::to_string(rank) + ": " + all[rank].text;
    return "";
  }

  Communicator messages_over_, collectives_over_;
  std::size_t chunk_bytes_;
  std::vector<Neighbour> neighbours_;
  WaitPolicy policy_{false, &table.seconds_most, &neighbours_};
  std::unique_ptr<MpiMessages> messages_;
  std::unique_ptr<MpiCollectives> collectives_;
  std::unique_ptr<MpiOneSided> one_sided_;  // null if receivers do not fetch messages from windows
  bool failed_ = false;
  std::string failure_;
};

/// While this object exists, calls of MPI with this communicator return their errors. During this time, MPI does not
/// call the user's error handler.
class ErrorsReturn {
 public:
  explicit ErrorsReturn(MPI_Comm communicator) : communicator_(communicator) {
    check(MPI_Comm_get_errhandler(communicator_, &before_), "asking for the error handler");
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "setting the error handler");
  }
  ~ErrorsReturn() {
    MPI_Comm_set_errhandler(communicator_, before_);
    MPI_Errhandler_free(&before_);
  }
  ErrorsReturn(const ErrorsReturn &) = delete;
  ErrorsReturn &operator=(const ErrorsReturn &) = delete;

 private:
  MPI_Comm communicator_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

/// Throws an error if the communicator cannot be used. All ranks throw the same error. Otherwise a rank could wait in a
/// collective call for another rank.
void check_usable(MPI_Comm communicator) {
  int begun = 0, over = 0, inter = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&over);
  if (begun == 0) throw std::runtime_error("MPI has not been initialized: call MPI_Init first");
  if (over != 0) throw std::runtime_error("MPI has been finalized: open files before that, and close them");
  if (communicator == MPI_COMM_NULL) throw std::runtime_error("the communicator is MPI_COMM_NULL");
  check(MPI_Comm_test_inter(communicator, &inter), "asking for the kind of communicator");
  if (inter != 0) throw std::runtime_error("this is an intercommunicator: merge its groups by MPI_Intercomm_merge");
}

}  // namespace
}  // namespace outcrop::aggregate

int outcrop_open_mpi_transport(const void *communicator, size_t chunk_bytes, struct outcrop_transport **made,
                               char *error_text, size_t error_bytes) {
  using namespace outcrop::aggregate;
  try {
    const MPI_Comm users = *static_cast<const MPI_Comm *>(communicator);
    check_usable(users);
    const ErrorsReturn errors_return(users);
    auto transport = std::make_unique<MpiTransport>(users, chunk_bytes);
    *made = &transport.release()->table;
    return 0;
  } catch (const std::exception &failure) {
    copy_text(failure.what(), {error_text, error_bytes});
    return 1;
  }
}

int outcrop_use_one_sided(struct outcrop_transport *transport, size_t slot_bytes, double seconds_most, char *text,
                          size_t text_bytes) {
  using namespace outcrop::aggregate;
  MpiTransport &own = *static_cast<MpiTransport *>(transport->self);
  try {
    const std::size_t slot = slot_bytes == 0 ? default_slot_bytes : std::min(slot_bytes, max_slot_bytes);
    const std::string problem = own.use_one_sided(slot, std::chrono::duration<double>(seconds_most));
    copy_text(problem, {text, text_bytes});
    return problem.empty() ? 0 : 1;
  } catch (const std::exception &failure) {
    own.fail(failure.what());
    copy_text(own.failure(), {text, text_bytes});
    return 2;
  }
}
