// The transport over an MPI communicator.
//
//     messages          ──► one duplicate of the communicator, by MpiMessages
//     gather, barrier   ──► another, so that what they send never meets a message
//
// After a failure ranks no longer agree on what comes next. Freeing a communicator is collective, and nobody may wait for
// a rank that has failed: its communicators are left to MPI_Finalize.
//
// Errors are returned, whatever the handler of the user's communicator is. One kind never gets here: what goes wrong with a
// transfer after it has begun, MPICH hands to the handler of MPI_COMM_WORLD. That is the user's; where it is MPI's default,
// MPI_ERRORS_ARE_FATAL, MPI ends the program with a message of its own. mpi4py sets MPI_ERRORS_RETURN.
//
// These files (mpi_*) use transport.h and nothing else of the project: they are compiled wherever an MPI turns up.
#include "outcrop/aggregate/mpi_transport.h"

#include <cstdio>
#include <cstring>
#include <memory>

#include "outcrop/aggregate/mpi_messages.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t chunk_bytes_most = std::size_t{1} << 30;  // counts of MPI are int

void copy_text(const std::string &text, std::span<char> target) {
  if (!target.empty()) std::snprintf(target.data(), target.size(), "%s", text.c_str());
}

/// A communicator that is freed unless it is released.
class Communicator {
 public:
  Communicator() = default;
  ~Communicator() {
    if (value != MPI_COMM_NULL) MPI_Comm_free(&value);
  }
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  void release() { value = MPI_COMM_NULL; }
  MPI_Comm value = MPI_COMM_NULL;
};

class MpiTransport {
 public:
  MpiTransport(MPI_Comm users, std::size_t chunk_bytes);
  ~MpiTransport();
  MpiTransport(const MpiTransport &) = delete;
  MpiTransport &operator=(const MpiTransport &) = delete;

  outcrop_transport table{};

  MpiMessages &messages() { return *messages_; }
  void gather_all(const void *mine, std::size_t bytes, void *all);
  void gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all);
  void barrier();

  void fail(const char *what) noexcept;
  const char *failure() const { return failure_.c_str(); }

 private:
  void describe_ranks();
  void finish(MPI_Request collective, const char *doing);
  void gather_by_messages(const std::byte *mine, std::span<const std::uint64_t> sizes, std::byte *all);

  Communicator messages_over_, collectives_over_;
  std::size_t chunk_bytes_;
  bool crowded_ = false;  ///< no core is left for other threads on this node
  std::unique_ptr<MpiMessages> messages_, rounds_;
  bool failed_ = false;
  std::string failure_;
};

MpiTransport::MpiTransport(MPI_Comm users, std::size_t chunk_bytes)
    : chunk_bytes_(chunk_bytes == 0 ? chunk_bytes_most : std::min(chunk_bytes, chunk_bytes_most)) {
  check(MPI_Comm_dup(users, &messages_over_.value), "duplicating a communicator");
  check(MPI_Comm_dup(users, &collectives_over_.value), "duplicating a communicator");
  check(MPI_Comm_rank(users, &table.rank), "asking for the rank");
  check(MPI_Comm_size(users, &table.size), "asking for the number of ranks");
  describe_ranks();
  messages_ = std::make_unique<MpiMessages>(messages_over_.value, chunk_bytes_, crowded_);
  rounds_ = std::make_unique<MpiMessages>(collectives_over_.value, chunk_bytes_, crowded_);
}

MpiTransport::~MpiTransport() {
  int over = 0;
  MPI_Finalized(&over);
  if (over == 0 && failed_) {
    messages_->abandon();
    rounds_->abandon();
  }
  if (over != 0 || failed_) {
    messages_over_.release();
    collectives_over_.release();
  }
}

void MpiTransport::describe_ranks() {
  Communicator node;
  int ranks = 0, length = 0;
  check(MPI_Comm_split_type(messages_over_.value, MPI_COMM_TYPE_SHARED, table.rank, MPI_INFO_NULL, &node.value),
        "finding the ranks of a node");
  check(MPI_Comm_size(node.value, &ranks), "counting the ranks of a node");
  crowded_ = static_cast<unsigned>(ranks) >= std::thread::hardware_concurrency();
  table.node = table.rank;
  check(MPI_Bcast(&table.node, 1, MPI_INT, 0, node.value), "finding the first rank of a node");
  std::string host(MPI_MAX_PROCESSOR_NAME, '\0');
  check(MPI_Get_processor_name(host.data(), &length), "asking for the node's name");
  copy_text(host, table.host);
  copy_text(mpi_library_name(), table.name);
}

void MpiTransport::finish(MPI_Request collective, const char *doing) {
  Patience patience(crowded_);
  for (int done = 0;;) {
    check(MPI_Test(&collective, &done, MPI_STATUS_IGNORE), doing);
    if (done != 0) return;
    patience.pause();
  }
}

void MpiTransport::gather_all(const void *mine, std::size_t bytes, void *all) {
  const std::size_t ranks = static_cast<std::size_t>(table.size);
  if (bytes > chunk_bytes_ / ranks) {
    const std::vector<std::uint64_t> sizes(ranks, bytes);
    return gather_by_messages(static_cast<const std::byte *>(mine), sizes, static_cast<std::byte *>(all));
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = static_cast<int>(bytes);
  check(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, collectives_over_.value, &request), "gathering");
  finish(request, "gathering");
}

void MpiTransport::gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all) {
  const std::span<const std::uint64_t> each(sizes, static_cast<std::size_t>(table.size));
  std::vector<int> counts, begins;
  std::uint64_t sum = 0;
  for (const std::uint64_t size : each) {
    if (size > chunk_bytes_ - sum)
      return gather_by_messages(static_cast<const std::byte *>(mine), each, static_cast<std::byte *>(all));
    counts.push_back(static_cast<int>(size));
    begins.push_back(static_cast<int>(sum));
    sum += size;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgatherv(mine, counts[static_cast<std::size_t>(table.rank)], MPI_BYTE, all, counts.data(), begins.data(),
                        MPI_BYTE, collectives_over_.value, &request),
        "gathering");
  finish(request, "gathering");
}

/// What is too much for the counts of one collective call goes round: to the k-th rank on, from the k-th before.
void MpiTransport::gather_by_messages(const std::byte *mine, std::span<const std::uint64_t> sizes, std::byte *all) {
  const std::size_t ranks = sizes.size(), own = static_cast<std::size_t>(table.rank);
  std::vector<std::uint64_t> begins(ranks, 0);
  for (std::size_t i = 1; i < ranks; ++i) begins[i] = begins[i - 1] + sizes[i - 1];
  if (sizes[own] > 0) std::memcpy(all + begins[own], mine, sizes[own]);
  for (std::size_t k = 1; k < ranks; ++k) {
    const std::size_t to = (own + k) % ranks, from = (own + ranks - k) % ranks;
    outcrop_request both[2] = {rounds_->receive(all + begins[from], sizes[from], static_cast<int>(from), 0),
                               rounds_->send(mine, sizes[own], static_cast<int>(to), 0)};
    rounds_->wait(both);
  }
}

void MpiTransport::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(collectives_over_.value, &request), "waiting for all ranks");
  finish(request, "waiting for all ranks");
}

void MpiTransport::fail(const char *what) noexcept {
  failed_ = true;
  try {
    failure_ = "rank " + std::to_string(table.rank) + " on " + table.host + ": " + what;
  } catch (const std::exception &) {
    failure_.clear();  // no memory for words
  }
}

/// Calls one function of the transport for C: exceptions become its failure.
template <typename Call>
int guarded(void *self, Call call) noexcept {
  MpiTransport &transport = *static_cast<MpiTransport *>(self);
  try {
    call(transport);
    return 0;
  } catch (const std::exception &error) {
    transport.fail(error.what());
    return 1;
  }
}

int send(void *self, const void *data, size_t bytes, int to, int tag, outcrop_request *request) {
  return guarded(self, [&](MpiTransport &transport) {
    *request = transport.messages().send(static_cast<const std::byte *>(data), bytes, to, tag);
  });
}

int receive(void *self, void *data, size_t bytes, int from, int tag, outcrop_request *request) {
  return guarded(self, [&](MpiTransport &transport) {
    *request = transport.messages().receive(static_cast<std::byte *>(data), bytes, from, tag);
  });
}

int wait(void *self, outcrop_request *requests, size_t count) {
  return guarded(self, [&](MpiTransport &transport) { transport.messages().wait({requests, count}); });
}

int test(void *self, outcrop_request *requests, size_t count, int *done) {
  return guarded(self,
                 [&](MpiTransport &transport) { *done = transport.messages().advance({requests, count}) ? 1 : 0; });
}

int gather_all(void *self, const void *mine, size_t bytes, void *all) {
  return guarded(self, [&](MpiTransport &transport) { transport.gather_all(mine, bytes, all); });
}

int gather_all_sizes(void *self, const void *mine, const uint64_t *sizes, void *all) {
  return guarded(self, [&](MpiTransport &transport) { transport.gather_all_sizes(mine, sizes, all); });
}

int barrier(void *self) {
  return guarded(self, [](MpiTransport &transport) { transport.barrier(); });
}

const char *error(void *self) { return static_cast<MpiTransport *>(self)->failure(); }

void free_transport(void *self) { delete static_cast<MpiTransport *>(self); }

/// Errors of a communicator end in our hands as long as this lives, not in those of its owner.
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

/// What is wrong is wrong on every rank, so nobody is left behind in a collective call.
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
    outcrop_transport &table = transport->table;
    table.send = send;
    table.receive = receive;
    table.wait = wait;
    table.test = test;
    table.gather_all = gather_all;
    table.gather_all_sizes = gather_all_sizes;
    table.barrier = barrier;
    table.error = error;
    table.free = free_transport;
    table.self = transport.release();
    *made = &table;
    return 0;
  } catch (const std::exception &failure) {
    copy_text(failure.what(), {error_text, error_bytes});
    return 1;
  }
}
