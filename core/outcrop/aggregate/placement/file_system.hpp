// What is assumed of the file system that files will be on, where nobody has measured it.
#pragma once

#include <string>

namespace outcrop::aggregate {

/// The table [target] of a machine file for a folder, or the nearest of its parents that exists: kind and figures.
std::string assumed_target(const std::string &folder);

}  // namespace outcrop::aggregate
