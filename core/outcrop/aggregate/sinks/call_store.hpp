// A store whose transfers are made by the calling thread, before submit() returns: an aggregator has a thread for that already.
#pragma once

#include <memory>

#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

std::unique_ptr<Store> make_call_store(std::vector<outcrop::File> files);

}  // namespace outcrop::aggregate
