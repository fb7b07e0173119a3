// This file converts faults from Python to the core. Tests use such faults to simulate errors.
#pragma once

#include <map>
#include <string>

#include "outcrop/storage/store.hpp"

namespace outcrop {

/// Returns the faults with these names and values. Throws InputError for a fault that does not exist.
Faults to_faults(const std::map<std::string, double> &values);

}  // namespace outcrop
