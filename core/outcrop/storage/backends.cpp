#include "outcrop/storage/backends.hpp"

#include <array>
#include <cstring>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

struct Backend {
  const char *name;
  std::unique_ptr<Store> (*make)(std::vector<File> files, std::size_t depth);
  bool automatic;  // "auto" may choose it
  bool direct;     // can bypass the page cache
  bool on_disk;    // opens the files it is given
};

constexpr std::array backends{
    Backend{"io_uring", make_uring_store, true, true, true},   Backend{"libaio", make_libaio_store, true, true, true},
    Backend{"threads", make_thread_store, true, true, true},   Backend{"mmap", make_mmap_store, false, false, true},
    Backend{"memory", make_memory_store, false, false, false},
};

// Why this backend does not work here; empty when it does. It has to move bytes: some sandboxes allow the set-up only.
std::string reason_against(const Backend &backend) {
  constexpr std::size_t length = 4096;
  try {
    std::vector<File> files;
    files.push_back(File::anonymous("probe", length));
    const std::unique_ptr<Store> store = backend.make(std::move(files), 4);
    const AlignedMemory memory(2 * length);
    std::memset(memory.data(), 0x5A, length);
    store->write(0, 0, memory.data(), length);
    store->read(0, 0, memory.data() + length, length);
    if (std::memcmp(memory.data(), memory.data() + length, length) != 0) return "does not keep what is written";
    return "";
  } catch (const std::runtime_error &error) {
    return error.what();
  }
}

std::uint64_t size_of(const FileSpec &spec) {
  if (spec.size > 0) return spec.size;
  try {
    return File::open(spec.path, false, false, spec.folder, spec.label).size();
  } catch (const StorageError &) {  // it stands for no file: it grows as it is written
    return 0;
  }
}

std::unique_ptr<Store> open_with(const Backend &backend, const std::vector<FileSpec> &specs,
                                 const StoreOptions &options) {
  std::vector<File> files;
  for (const FileSpec &spec : specs) {
    if (backend.on_disk) {
      const bool direct = options.direct && backend.direct && spec.direct;
      files.push_back(File::open(spec.path, spec.writable, direct, spec.folder, spec.label));
      if (spec.size > 0) files.back().narrow(spec.begin, spec.size);
      files.back().set_scratch(spec.scratch);
    } else {
      files.push_back(File::anonymous(spec.label.empty() ? spec.path : spec.label, size_of(spec), spec.writable));
    }
  }
  std::unique_ptr<Store> store = backend.make(std::move(files), options.depth);
  if (options.direct && backend.direct)
    for (const File &file : store->files())
      if (!file.direct()) {
        store->add_note("O_DIRECT is refused for " + file.path() + ", using the page cache");
        break;
      }
  return store;
}

const Backend &choose(const std::string &name, std::string &given_up) {
  std::string names = "auto";
  for (const Backend &backend : backends) {
    names += std::string(", ") + backend.name;
    const bool automatic = name == "auto" && backend.automatic;
    if (!automatic && name != backend.name) continue;
    const std::string reason = reason_against(backend);
    if (reason.empty()) return backend;
    if (!automatic) throw InputError("I/O backend " + name + " does not work here: " + reason);
    given_up += (given_up.empty() ? "" : "; ") + std::string(backend.name) + " does not work here: " + reason;
  }
  if (name == "auto") throw InputError("no I/O backend works here: " + given_up);
  throw InputError("unknown I/O backend " + name + ", choose one of " + names);
}

}  // namespace

std::vector<Probe> probe_backends() {
  std::vector<Probe> result;
  for (const Backend &backend : backends) result.push_back({backend.name, reason_against(backend)});
  return result;
}

std::unique_ptr<Store> open_store(const std::string &name, const std::vector<FileSpec> &files,
                                  const StoreOptions &options) {
  std::string given_up;
  const Backend &backend = choose(name, given_up);
  std::unique_ptr<Store> store = open_with(backend, files, options);
  if (!given_up.empty()) store->add_note(given_up);
  if (options.faults.any()) store = make_faulty_store(std::move(store), options.faults);
  return store;
}

}  // namespace outcrop
