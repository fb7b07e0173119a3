// These tests check the transport between ranks that are threads. This transport must keep the contract of all
// transports.
#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "outcrop/aggregate/transport/transport.hpp"
#include "transport_contract.hpp"

namespace outcrop::aggregate {
namespace {

class ThreadTransport : public testing::TestWithParam<std::tuple<ContractCase, int>> {};

TEST_P(ThreadTransport, KeepsTheContract) {
  const ContractCase one = std::get<0>(GetParam());
  const int size = std::get<1>(GetParam());
  ThreadRanks ranks(size, 2);
  std::vector<std::string> broken(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        outcrop_transport &transport = ranks.transport(rank);
        one.run(transport);
        transport.free(transport.self);
      } catch (const std::exception &error) {
        broken[static_cast<std::size_t>(rank)] = error.what();
        ranks.fail();  // without this call, the other ranks wait forever
      }
    });
  for (std::thread &thread : threads) thread.join();
  for (int rank = 0; rank < size; ++rank)
    EXPECT_EQ(broken[static_cast<std::size_t>(rank)], "") << "rank " << rank << " of " << size;
}

INSTANTIATE_TEST_SUITE_P(Cases, ThreadTransport,
                         testing::Combine(testing::ValuesIn(contract_cases().begin(), contract_cases().end()),
                                          testing::Values(1, 2, 5)),
                         [](const auto &instance) {
                           return std::string(std::get<0>(instance.param).name) + "_" +
                                  std::to_string(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace outcrop::aggregate
