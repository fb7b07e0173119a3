// The promises of every transport (transport.h), as test cases that all ranks run together.
//
// The cases use no test library, because ranks are threads for one transport and processes for another. Each case gets a new
// transport, and throws if a promise is broken. The caller must then end all ranks.
#pragma once

#include <span>

#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

struct ContractCase {
  const char *name;
  void (*run)(outcrop_transport &transport);
  bool fails = false;  ///< the transport must have failed at the end of the case
};

std::span<const ContractCase> contract_cases();

}  // namespace outcrop::aggregate
