// What every transport promises (transport.h), as cases that all ranks run together.
//
// The cases know nothing of a test library: ranks are threads for one transport and processes for another. Each case
// gets a fresh transport, and throws where a promise is broken; whoever runs it then ends all ranks.
#pragma once

#include <span>

#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

struct ContractCase {
  const char *name;
  void (*run)(outcrop_transport &transport);
  bool fails = false;  ///< the transport has failed after it, as it has to
};

std::span<const ContractCase> contract_cases();

}  // namespace outcrop::aggregate
