// The table of backends: which there are, which work here, and how to open one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "outcrop/storage/faulty.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

struct StoreOptions {
  bool direct = true;      ///< bypass the page cache where files allow it
  std::size_t depth = 64;  ///< transfers in flight
  Faults faults;           ///< what shall go wrong; nothing by default
};

/// Result of trying a backend: `reason` says why it does not work here and is empty when it does.
struct Probe {
  std::string name;
  std::string reason;
};

/// Sets each backend up and moves a few bytes with it, in the order in which "auto" prefers them.
std::vector<Probe> probe_backends();

/// Opens the files with the backend of that name, or with the best one that works for "auto". What "auto" or O_DIRECT
/// had to give up is in the store's note(). Throws InputError for an unknown or unavailable backend, StorageError for
/// a file that cannot be opened.
std::unique_ptr<Store> open_store(const std::string &backend, const std::vector<FileSpec> &files,
                                  const StoreOptions &options = {});

// One per backend. They throw StorageError when the system refuses to set them up.
std::unique_ptr<Store> make_uring_store(std::vector<File> files, std::size_t depth);
std::unique_ptr<Store> make_libaio_store(std::vector<File> files, std::size_t depth);
std::unique_ptr<Store> make_thread_store(std::vector<File> files, std::size_t depth);
std::unique_ptr<Store> make_mmap_store(std::vector<File> files, std::size_t depth);
std::unique_ptr<Store> make_memory_store(std::vector<File> files, std::size_t depth);

}  // namespace outcrop
