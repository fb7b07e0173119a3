// These tests check one-sided messages. A transport with one-sided messages must keep the contract of all transports,
// with slots of the default size and with small slots. The library must detect broken windows before it uses them.
// mpirun starts this program. With the argument `hang`, the program simulates calls of MPI that never return. With the
// argument `never`, the program simulates transfers that never end.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../transport_contract.hpp"
#include "mpi_broken_windows.hpp"
#include "mpi_end_all_ranks.h"
#include "outcrop/aggregate/mpi/mpi_two_sided.hpp"
#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {
namespace {

constexpr double patient_seconds = 60, short_seconds = 1;

[[noreturn]] void end_all(const std::string &why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  end_all_ranks();
  std::abort();
}

outcrop_transport *open() {
  const MPI_Comm world = MPI_COMM_WORLD;
  outcrop_transport *transport = nullptr;
  char error[512] = "";
  if (outcrop_open_mpi_transport(&world, 0, &transport, error, sizeof error) != 0) end_all(error);
  return transport;
}

outcrop_transport *open_one_sided(std::size_t slot_bytes) {
  outcrop_transport *const transport = open();
  char text[512] = "";
  if (outcrop_use_one_sided(transport, slot_bytes, patient_seconds, text, sizeof text) != 0) end_all(text);
  return transport;
}

void run(const ContractCase &one, outcrop_transport &transport, const std::string &how) {
  try {
    one.run(transport);
  } catch (const std::exception &error) {
    end_all("rank " + std::to_string(transport.rank) + ", " + one.name + ", " + how + ": " + error.what());
  }
  transport.free(transport.self);
}

/// Runs all cases of the contract in which the transport does not fail. The other cases are left out, because
/// MPI_Finalize frees the windows. After a failure, MPICH over UCX aborts the program at this point.
void keeps_the_contract(std::size_t slot_bytes) {
  for (const ContractCase &one : contract_cases())
    if (!one.fails) run(one, *open_one_sided(slot_bytes), "slots of " + std::to_string(slot_bytes) + " bytes");
}

/// Opens a transport whose windows are broken. Checks the text of the error. After the error, the transport must still
/// work without windows.
void refuses(Broken how, const std::string &words) {
  outcrop_transport *const transport = open();
  char text[512] = "";
  break_windows(how);
  const int returned = outcrop_use_one_sided(transport, 5000, short_seconds, text, sizeof text);
  break_windows(Broken::nothing);
  if (returned != 1) end_all("windows that do not work were not noticed: " + words);
  if (std::string(text).find("rank ") != 0 || std::string(text).find(words) == std::string::npos)
    end_all("unexpected words: " + std::string(text));
  run(contract_cases().front(), *transport, "after " + words);
}

/// This test checks that a rank can receive the last message first. Receiving the last message first is possible only
/// if a message uses no slots before its receiver asks for the message.
void slots_are_not_waited_for_in_a_circle() {
  constexpr int count = 40;
  constexpr std::size_t bytes = 100'000;  // this message needs five of the eight slots
  outcrop_transport *const transport = open_one_sided(20'000);
  const auto succeed = [&](int failed) {
    if (failed != 0) end_all(transport->error(transport->self));
  };
  const auto content = [](int from, int message) { return static_cast<std::byte>(from * 50 + message); };
  std::vector<std::vector<std::byte>> sent;
  std::vector<outcrop_request> requests(count);
  for (int i = 0; i < count; ++i) {
    const std::vector<std::byte> &data = sent.emplace_back(bytes, content(transport->rank, i));
    succeed(transport->send(transport->self, data.data(), bytes, i % transport->size, i, &requests[std::size_t(i)]));
  }
  for (int i = count; i-- > 0;)
    for (int from = 0; from < transport->size && i % transport->size == transport->rank; ++from) {
      std::vector<std::byte> came(bytes);
      outcrop_request request = 0;
      succeed(transport->receive(transport->self, came.data(), bytes, from, i, &request));
      succeed(transport->wait(transport->self, &request, 1));
      if (came != std::vector<std::byte>(bytes, content(from, i))) end_all("other bytes came than were sent");
    }
  succeed(transport->wait(transport->self, requests.data(), requests.size()));
  transport->free(transport->self);
}

}  // namespace
}  // namespace outcrop::aggregate

int main(int count, char **arguments) {
  using namespace outcrop::aggregate;
  int provided = 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // as in test_mpi_transport.cpp
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (count > 1 && std::strcmp(arguments[1], "hang") == 0) {
    break_windows(Broken::hanging);
    char text[512] = "";
    outcrop_use_one_sided(open(), 0, short_seconds, text, sizeof text);
    end_all("nobody came back from a call that hangs, yet here we are");
  }
  if (count > 1 && std::strcmp(arguments[1], "never") == 0) {
    refuses(Broken::never_ending, "does not end");
    end_all("noticed");  // MPI_Finalize would wait for the transfer
  }
  keeps_the_contract(0);
  keeps_the_contract(1000);
  slots_are_not_waited_for_in_a_circle();
  refuses(Broken::making, "making a window");
  refuses(Broken::opening_at_last_rank, "beginning access to a window");
  refuses(Broken::wrong_bytes, "differ from the bytes sent");
  MPI_Finalize();
  return 0;
}
