#pragma once
#include "outcrop/storage/file.hpp"
