// The kernels of crc32c.hpp that need a particular processor. Each returns its table entries, none on other processors.
#pragma once

#include <vector>

#include "outcrop/storage/crc32c.hpp"

namespace outcrop::crc {

std::vector<Crc32cKernel> x86_kernels();
std::vector<Crc32cKernel> arm_kernels();

}  // namespace outcrop::crc
