#include "outcrop/storage/store.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop {

void Store::flush() {
  std::set<std::string> flushed;  // a single flush makes all parts of a device durable
  for (const File &file : files())
    if (file.writable() && !file.scratch() && (!file.is_part() || flushed.insert(file.whole_path()).second))
      file.flush();
}

bool Store::direct() const {
  return !files().empty() && std::ranges::all_of(files(), [](const File &file) { return file.direct(); });
}

std::size_t Store::alignment() const {
  std::size_t largest = 1;
  for (const File &file : files()) largest = std::max(largest, file.alignment());
  return largest;
}

std::size_t Store::memory_alignment() const {
  std::size_t largest = 1;
  for (const File &file : files()) largest = std::max(largest, file.memory_alignment());
  return largest;
}

void Store::read(std::uint32_t file, std::uint64_t offset, std::byte *data, std::size_t length) {
  move(Transfer{false, file, offset, data, length, 0});
}

void Store::write(std::uint32_t file, std::uint64_t offset, const std::byte *data, std::size_t length) {
  // const_cast is safe: a write only reads the memory
  move(Transfer{true, file, offset, const_cast<std::byte *>(data), length, 0});
}

Store::Location Store::locate(const Transfer &transfer) const {
  if (transfer.file >= files_.size()) return {};
  const File &file = files_[transfer.file];
  if ((transfer.write && !file.writable()) || !file.holds(transfer.offset, transfer.length)) return {};
  const std::uint64_t begin = file.begin() + transfer.offset;
  if (transfer.parts.empty()) return {file.descriptor(transfer.offset, transfer.data, transfer.length), begin};
  // the transfer is direct only if each part alone could be transferred directly
  int descriptor = file.buffered_descriptor();
  std::uint64_t offset = transfer.offset;
  for (const iovec &part : transfer.parts) {
    descriptor = file.descriptor(offset, begin_of(part), part.iov_len);
    if (descriptor == file.buffered_descriptor()) break;
    offset += part.iov_len;
  }
  return {descriptor, begin};
}

void Store::move(Transfer whole) {
  // larger than a chunk of the pump, because this function has only one transfer in flight at a time
  constexpr std::size_t max_transfer_bytes = std::size_t{64} << 20;
  const std::lock_guard lock(moving_);
  while (whole.length > 0) {
    Transfer part = whole;
    part.length = std::min(whole.length, max_transfer_bytes);
    std::array<Completion, 1> completion;
    submit({&part, 1});
    while (reap(completion, true) == 0) {
    }
    const std::int64_t result = completion[0].result;
    if (result == -EAGAIN || result == -EINTR) continue;
    if (result <= 0) {
      const std::string name = whole.file < files().size() ? path(whole.file) : "file " + std::to_string(whole.file);
      throw StorageError(whole.write ? "write" : "read", name, part.offset, part.length, static_cast<int>(-result));
    }
    whole.offset += static_cast<std::uint64_t>(result);
    whole.data += result;
    whole.length -= static_cast<std::size_t>(result);
  }
}

// --- backends -------------------------------------------------------------------------------------------------------

// uring.cpp and libaio.cpp each define one of these functions. threads.cpp defines the other three. All five functions
// that make a store throw StorageError if the system refuses to set up the backend.
using MakeStore = std::unique_ptr<Store>(std::vector<File> files, std::size_t depth);
MakeStore make_uring_store, make_libaio_store, make_thread_store, make_mmap_store, make_memory_store;

#ifndef OUTCROP_HAVE_URING
std::unique_ptr<Store> make_uring_store(std::vector<File>, std::size_t) {
  throw StorageError("set up", "io_uring (built without liburing)", ENOSYS);
}
#endif
#ifndef OUTCROP_HAVE_LIBAIO
std::unique_ptr<Store> make_libaio_store(std::vector<File>, std::size_t) {
  throw StorageError("set up", "libaio (built without it)", ENOSYS);
}
#endif

namespace {

struct Backend {
  const char *name;
  MakeStore *make;
  bool automatic;  // true if "auto" may choose this backend
  bool direct;     // true if this backend can bypass the page cache
  // true if this backend opens the files of the FileSpecs; otherwise its files are in memory, and FileSpecs determine
  // only their initial sizes
  bool on_disk;
};

// "auto" takes the first backend that works.
constexpr std::array backends{
    Backend{"io_uring", make_uring_store, true, true, true},    //
    Backend{"libaio", make_libaio_store, true, true, true},     //
    Backend{"threads", make_thread_store, true, true, true},    //
    Backend{"mmap", make_mmap_store, false, false, true},       //
    Backend{"memory", make_memory_store, false, false, false},  //
};

// Returns the reason why a backend does not work on this system. The result is empty if the backend works. The function
// makes a test transfer, because some sandboxes allow a program to set up a backend but forbid its transfers. The test
// store has the usual depth, because systems limit the memory of deep queues.
std::string reason_against(const Backend &backend) {
  constexpr std::size_t length = 4096;
  try {
    std::vector<File> files;
    files.push_back(File::anonymous("probe", length));
    const std::unique_ptr<Store> store = backend.make(std::move(files), StoreOptions{}.depth);
    const AlignedMemory memory(2 * length);
    std::memset(memory.data(), 0x5A, length);
    store->write(0, 0, memory.data(), length);
    store->read(0, 0, memory.data() + length, length);
    if (std::memcmp(memory.data(), memory.data() + length, length) != 0) return "does not keep written bytes";
    return "";
  } catch (const std::runtime_error &error) {
    return error.what();
  }
}

std::uint64_t size_of(const FileSpec &spec) {
  if (spec.size > 0) return spec.size;
  try {
    return File::open(spec.path, false, false, spec.folder, spec.label).size();
  } catch (const StorageError &) {  // the file does not exist, so the file in memory begins empty and grows
    return 0;
  }
}

// Allows this process to open more files, up to the hard limit of the system. Usually, the soft limit is only 1024
// descriptors, because select() cannot use higher numbers. A file has up to two descriptors, and other stores can be
// open at the same time.
void allow_files(std::size_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || 8 * count <= limit.rlim_cur) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // if this fails, the files may still be few enough
}

std::unique_ptr<Store> open_with(const Backend &backend, const std::vector<FileSpec> &specs,
                                 const StoreOptions &options) {
  allow_files(specs.size());
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
    if (!automatic) throw InputError("I/O backend ", name, " does not work here: ", reason);
    given_up += (given_up.empty() ? "" : "; ") + std::string(backend.name) + " does not work here: " + reason;
  }
  if (name == "auto") throw InputError("no I/O backend works here: ", given_up);
  throw InputError("unknown I/O backend ", name, ", choose one of ", names);
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

std::unique_ptr<Store> open_empty_store(const std::string &name, std::size_t count, const StoreOptions &options) {
  std::string given_up;
  const Backend &backend = choose(name, given_up);
  if (!backend.direct) throw InputError("I/O backend ", name, " cannot be used here; choose auto");
  std::unique_ptr<Store> store = backend.make(std::vector<File>(count), options.depth);
  if (!given_up.empty()) store->add_note(given_up);
  if (options.faults.any()) store = make_faulty_store(std::move(store), options.faults);
  return store;
}

}  // namespace outcrop
