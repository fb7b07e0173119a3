#pragma once
#include "outcrop/storage/mapping.hpp"
