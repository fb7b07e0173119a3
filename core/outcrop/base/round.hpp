#pragma once
#include "outcrop/base/aligned.hpp"
