// Test cases for the contract of transport.h, which every transport must keep. All ranks run the cases together.
//
// The ranks of a transport can be threads or processes. So the cases use no test library. Each case gets a new
// transport. If the transport breaks the contract, the case throws an exception, and the caller must end all ranks.
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
