// These tests check messages between ranks over MPI. The transport must keep the contract of all transports, with
// chunks of the default size and with small chunks. The transport must refuse invalid communicators. mpirun starts this
// program. The first error ends all ranks.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../transport_contract.hpp"
#include "mpi_end_all_ranks.h"
#include "outcrop/aggregate/mpi/mpi_two_sided.hpp"
#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {
namespace {

[[noreturn]] void end_all(const std::string &why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  end_all_ranks();
  std::abort();
}

outcrop_transport *open(MPI_Comm communicator, std::size_t chunk_bytes) {
  outcrop_transport *transport = nullptr;
  char error[512] = "";
  if (outcrop_open_mpi_transport(&communicator, chunk_bytes, &transport, error, sizeof error) != 0) end_all(error);
  return transport;
}

void keeps_the_contract(std::size_t chunk_bytes) {
  for (const ContractCase &one : contract_cases()) {
    outcrop_transport *const transport = open(MPI_COMM_WORLD, chunk_bytes);
    try {
      one.run(*transport);
    } catch (const std::exception &error) {
      end_all("rank " + std::to_string(transport->rank) + ", " + one.name + ", chunks of " +
              std::to_string(chunk_bytes) + " bytes: " + error.what());
    }
    transport->free(transport->self);
  }
}

void refuses(MPI_Comm communicator, const std::string &words) {
  outcrop_transport *transport = nullptr;
  char error[512] = "";
  const int returned = outcrop_open_mpi_transport(&communicator, 0, &transport, error, sizeof error);
  if (returned == 0 || transport != nullptr) end_all("was not refused: " + words);
  if (std::string(error).find(words) == std::string::npos) end_all("unexpected words: " + std::string(error));
}

void refuses_tags_beyond_those_of_mpi() {
  outcrop_transport *const transport = open(MPI_COMM_WORLD, 0);
  outcrop_request request = 0;
  std::byte data{};
  if (transport->receive(transport->self, &data, 1, 0, 32768, &request) == 0) end_all("a tag was not refused");
  if (std::string(transport->error(transport->self)).find("tags are 0 to 32767") == std::string::npos)
    end_all("unexpected words: " + std::string(transport->error(transport->self)));
  transport->free(transport->self);
}

void refuses_other_communicators() {
  refuses(MPI_COMM_NULL, "MPI_COMM_NULL");
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) return;
  MPI_Comm half = MPI_COMM_NULL, both = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &both);
  refuses(both, "intercommunicator");
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
}

void leaves_the_error_handler_alone() {
  MPI_Comm users = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &users);
  MPI_Comm_set_errhandler(users, MPI_ERRORS_ARE_FATAL);
  outcrop_transport *const transport = open(users, 0);
  MPI_Errhandler after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(users, &after);
  if (after != MPI_ERRORS_ARE_FATAL) end_all("the error handler of the user's communicator has changed");
  MPI_Errhandler_free(&after);
  MPI_Comm_free(&users);
  // The transport must still work after the user's communicator has been freed.
  if (transport->barrier(transport->self) != 0) end_all(transport->error(transport->self));
  transport->free(transport->self);
}

/// A range of more than 2 GiB of addresses that needs little memory. The same 64 MiB are mapped 33 times, and one more
/// page follows.
class Folded {
 public:
  static constexpr std::size_t part = std::size_t{64} << 20, parts = 33, page = 4096, bytes = part * parts + page;

  Folded() : file_(memfd_create("folded", 0)) {
    void *const room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file_ < 0 || ftruncate(file_, part + page) != 0 || room == MAP_FAILED) end_all("no memory for the test");
    data = static_cast<std::byte *>(room);
    for (std::size_t i = 0; i < parts; ++i) map(i * part, part, 0);
    map(parts * part, page, part);
  }
  ~Folded() {
    munmap(data, bytes);
    close(file_);
  }
  Folded(const Folded &) = delete;
  Folded &operator=(const Folded &) = delete;

  std::byte *data;

 private:
  void map(std::size_t at, std::size_t length, std::size_t offset) {
    if (mmap(data + at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(offset)) ==
        MAP_FAILED)
      end_all("no memory for the test");
  }
  int file_;
};

void sends_more_than_2_gib() {
  outcrop_transport *const transport = open(MPI_COMM_WORLD, 0);
  if (transport->size > 1 && transport->rank < 2) {
    const Folded memory;
    outcrop_request request = 0;
    int failed = 0;
    if (transport->rank == 0) {
      std::memset(memory.data, 17, Folded::part);
      std::memset(memory.data + Folded::bytes - Folded::page, 99, Folded::page);
      failed = transport->send(transport->self, memory.data, Folded::bytes, 1, 0, &request);
    } else {
      failed = transport->receive(transport->self, memory.data, Folded::bytes, 0, 0, &request);
    }
    if (failed != 0 || transport->wait(transport->self, &request, 1) != 0) end_all(transport->error(transport->self));
    for (const std::size_t at : {std::size_t{0}, Folded::part - 1, Folded::bytes - Folded::page, Folded::bytes - 1})
      if (memory.data[at] != std::byte{at < Folded::part ? std::uint8_t{17} : std::uint8_t{99}})
        end_all("byte " + std::to_string(at) + " of a message of more than 2 GiB is wrong");
  }
  transport->free(transport->self);
}

/// Rank 0 begins a collective call when the other ranks have already given up the same call. MPI then completes this
/// call on the other ranks. The memory of the other ranks must stay unchanged, because these ranks may have freed it.
void leaves_memory_alone_after_a_time_limit(std::size_t chunk_bytes, std::size_t bytes, bool with_sizes) {
  outcrop_transport *const transport = open(MPI_COMM_WORLD, chunk_bytes);
  const auto ranks = static_cast<std::size_t>(transport->size);
  const std::vector<std::uint64_t> sizes(ranks, bytes);
  const std::vector<std::byte> mine(bytes, std::byte{1}), expected(ranks * bytes, std::byte{2});
  std::vector<std::byte> all(ranks * bytes);
  const auto gather = [&] {
    transport->seconds_most = 0.05;
    return with_sizes ? transport->gather_all_sizes(transport->self, mine.data(), sizes.data(), all.data())
                      : transport->gather_all(transport->self, mine.data(), bytes, all.data());
  };
  if (transport->rank > 0 && gather() == 0) end_all("ranks did not wait for rank 0");
  all = expected;
  MPI_Barrier(MPI_COMM_WORLD);
  if (transport->rank == 0) gather();  // may fail, because other ranks have given up
  for (int i = 0; i < 3; ++i) MPI_Barrier(MPI_COMM_WORLD);
  if (transport->rank > 0 && all != expected) end_all("MPI has written to memory after the time limit of a call");
  transport->free(transport->self);
}

}  // namespace
}  // namespace outcrop::aggregate

int main(int count, char **arguments) {
  using namespace outcrop::aggregate;
  refuses(MPI_COMM_NULL, "MPI_Init");
  int provided = 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // when a transfer fails, MPICH calls these handlers;
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);   // mpi4py sets the same handlers
  keeps_the_contract(0);
  keeps_the_contract(1000);
  refuses_tags_beyond_those_of_mpi();
  refuses_other_communicators();
  leaves_the_error_handler_alone();
  sends_more_than_2_gib();
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (const bool with_sizes : {false, true})
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{5000}})  // in one call, and in messages
      if (size > 1) leaves_memory_alone_after_a_time_limit(2000, bytes, with_sizes);
  outcrop_transport *const left = open(MPI_COMM_WORLD, 0);
  MPI_Finalize();
  refuses(MPI_COMM_NULL, "finalized");
  left->free(left->self);  // a program that has thrown an exception may free the transport late
  return 0;
}
