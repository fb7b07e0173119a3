// Test cases for the contract in transport.h. Every transport must keep this contract. All ranks run the cases
// together.
//
// The ranks of a transport can be threads or processes. Therefore the test cases use no test library. Each case gets a
// new transport. If the transport breaks the contract, the test case throws an exception. The caller must then end all
// ranks.
#pragma once

#include <span>

#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

struct ContractCase {
  const char *name;
  void (*run)(outcrop_transport &transport);
  bool fails = false;  ///< true if the transport must have failed at the end of the case
};

std::span<const ContractCase> contract_cases();

}  // namespace outcrop::aggregate
