#pragma once
#include "outcrop/storage/checksums.hpp"
