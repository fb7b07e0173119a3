#pragma once
#include "outcrop/storage/store.hpp"
