// The table of backends: which there are, which work here, and how to open one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "outcrop/storage/store.hpp"

namespace outcrop {

struct StoreOptions {
  bool direct = true;       ///< bypass the page cache where the filesystem allows it
  std::size_t depth = 64;   ///< transfers in flight
  std::string faults = "";  ///< faults to inject (faulty.hpp), "" for none
};

struct BackendReport {
  std::string name;
  std::string reason;  ///< why it cannot be used here; empty when it can
};

/// Tries every backend once with a real transfer (in memory, no disk is touched) and remembers the answer.
const std::vector<BackendReport> &probe();

/// Opens the files with the backend `name`, or with the first of io_uring, libaio and threads that works for "auto".
/// Throws InputError for an unknown or unusable name or bad `faults`, StorageError when a file cannot be opened.
std::unique_ptr<Store> open_store(const std::string &name, const std::vector<FileSpec> &files,
                                  const StoreOptions &options = {});

}  // namespace outcrop
