// Test cases for the contract of every transport (transport.h). All ranks run them together.
//
// The cases use no test library, because ranks are threads with one transport and processes with another. Each case
// gets a new transport. If the transport breaks the contract, the case throws an exception, and the caller must end all
// ranks.
#pragma once

#include <span>

#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

struct ContractCase {
  const char *name;
  void (*run)(outcrop_transport &transport);
  bool fails = false;  ///< at the end of the case, the transport must have failed
};

std::span<const ContractCase> contract_cases();

}  // namespace outcrop::aggregate
