#include "outcrop/storage/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

constexpr std::size_t usual_alignment = 4096;
constexpr std::size_t min_memory_alignment = 512;

// Returns the alignment that the file reports for O_DIRECT. If the file reports no alignment, returns the usual
// alignment. Returns 0 if O_DIRECT cannot be used.
std::size_t direct_alignment([[maybe_unused]] int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0)
    return std::max(status.stx_dio_mem_align, status.stx_dio_offset_align);
#endif
  return usual_alignment;
}

// Returns true if the file accepts a direct read into memory with this alignment. Some file systems accept O_DIRECT and
// then refuse the first transfer. Some file systems need a larger alignment of the memory.
bool direct_reads_work(int descriptor, std::size_t alignment) {
  const AlignedMemory pages(2 * usual_alignment);
  return pread(descriptor, pages.data() + alignment % usual_alignment, usual_alignment, 0) >= 0 || errno != EINVAL;
}

// Allocates storage for all of the first `size` bytes of an open file. Returns 0 or an errno.
int allocate_bytes(int descriptor, std::uint64_t size) {
  if (size == 0) return 0;
  int error = 0;
  do {
    error = fallocate(descriptor, 0, 0, static_cast<off_t>(size)) == 0 ? 0 : errno;
  } while (error == EINTR);
  // this fallback is slower, because posix_fallocate() writes to each block
  if (error == EOPNOTSUPP) error = posix_fallocate(descriptor, 0, static_cast<off_t>(size));
  return error;
}

}  // namespace

void Descriptor::reset(int number) {
  if (number_ >= 0) ::close(number_);
  number_ = number;
}

File File::open(const std::string &path, bool writable, bool direct, int folder, const std::string &label) {
  File file(label.empty() ? path : label, writable);
  file.buffered_ = file.open_descriptor(path, folder, 0);
  if (!direct) return file;
  Descriptor found;
  try {
    found = file.open_descriptor(path, folder, O_DIRECT);
  } catch (const StorageError &) {  // the file system does not support O_DIRECT
    return file;
  }
  file.alignment_ = direct_alignment(found.get());
  if (file.alignment_ == 0 || !direct_reads_work(found.get(), usual_alignment)) return file;
  file.memory_alignment_ =
      direct_reads_work(found.get(), min_memory_alignment) ? min_memory_alignment : file.alignment_;
  file.direct_ = std::move(found);
  return file;
}

File File::open_like(const std::string &path, int folder, const std::string &label) const {
  File file = open(path, writable_, false, folder, label);
  if (!direct()) return file;
  file.direct_ = file.open_descriptor(path, folder, O_DIRECT);
  file.alignment_ = alignment_;
  file.memory_alignment_ = memory_alignment_;
  return file;
}

Descriptor File::open_descriptor(const std::string &path, int folder, int more_flags) const {
  const int flags = (writable_ ? O_RDWR : O_RDONLY) | O_CLOEXEC | more_flags;
  if (folder >= 0) return open_beneath(folder, path, flags, path_);
  Descriptor opened(::open(path.c_str(), flags));
  if (opened.get() < 0) throw StorageError("open", path_, errno);
  return opened;
}

void File::create(const std::string &path, std::uint64_t size) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) throw StorageError("create", path, errno);
  if (const int error = allocate_bytes(file.get(), size); error != 0) {
    ::unlink(path.c_str());
    throw StorageError("allocate", path, 0, size, error);
  }
}

File File::make(int folder, const std::string &name, mode_t mode, const std::string &label) {
  constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  File file(label, true);
  file.buffered_ = Descriptor(openat(folder, name.c_str(), flags, mode));
  if (file.buffered_.get() < 0) throw StorageError("create", label, errno);
  return file;
}

File File::anonymous(const std::string &label, std::uint64_t size, bool writable) {
  File file(label, writable);
  file.buffered_ = Descriptor(memfd_create("outcrop", MFD_CLOEXEC));
  if (file.buffered_.get() < 0 || ftruncate(file.buffered_.get(), static_cast<off_t>(size)) != 0)
    throw StorageError("allocate in memory", label, 0, size, errno);
  return file;
}

File File::unnamed(const std::string &folder, std::uint64_t size) {
  File file(folder + " (without a name)", true);
  file.buffered_ = Descriptor(::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  if (file.buffered_.get() < 0) {  // some file systems do not support O_TMPFILE
    std::string name = folder + "/.outcrop-XXXXXX";
    file.buffered_ = Descriptor(mkostemp(name.data(), O_CLOEXEC));
    if (file.buffered_.get() < 0) throw StorageError("create", folder, errno);
    ::unlink(name.c_str());
  }
  if (const int error = allocate_bytes(file.buffered_.get(), size); error != 0)
    throw StorageError("allocate", folder, 0, size, error);
  return file;
}

void File::narrow(std::uint64_t begin, std::uint64_t size) {
  begin_ = begin;
  part_size_ = size;
  path_ = whole_path_ + " (from byte " + std::to_string(begin) + ")";
}

bool File::holds(std::uint64_t offset, std::size_t length) const {
  return !is_part() || (offset <= part_size_ && length <= part_size_ - offset);
}

std::uint64_t File::size() const {
  if (is_part()) return part_size_;
  struct stat status {};
  if (fstat(buffered_.get(), &status) != 0) throw StorageError("stat", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::allocate(std::uint64_t size) const {
  if (const int error = allocate_bytes(buffered_.get(), size); error != 0)
    throw StorageError("allocate", path_, 0, size, error);
}

void File::read(std::uint64_t offset, std::byte *data, std::size_t length) const { move(false, offset, data, length); }

void File::write(std::uint64_t offset, const std::byte *data, std::size_t length) const {
  move(true, offset, const_cast<std::byte *>(data), length);  // const_cast is safe: a write only reads the memory
}

// Transfers the bytes up to the first page boundary, then whole pages, then the remaining bytes. So the whole pages can
// be transferred without the page cache.
void File::move(bool write, std::uint64_t offset, std::byte *data, std::size_t length) const {
  while (length > 0) {
    std::size_t part = length;
    if (direct()) {
      const std::size_t beyond = (begin_ + offset) % AlignedMemory::page_bytes;
      if (beyond != 0)
        part = std::min(length, AlignedMemory::page_bytes - beyond);
      else if (length >= AlignedMemory::page_bytes)
        part = round_down(length, AlignedMemory::page_bytes);
    }
    const int file = descriptor(offset, data, part);
    const auto at = static_cast<off_t>(begin_ + offset);
    const ssize_t done = write ? pwrite(file, data, part, at) : pread(file, data, part, at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw StorageError(write ? "write" : "read", path_, offset, length, errno);
    if (done == 0) throw StorageError(write ? "write" : "read", path_, offset, length, write ? ENOSPC : 0);
    data += done;
    offset += static_cast<std::uint64_t>(done);
    length -= static_cast<std::size_t>(done);
  }
}

void File::flush() const {
  if (fdatasync(buffered_.get()) != 0) throw StorageError("flush", path_, errno);
}

int File::descriptor(std::uint64_t offset, const std::byte *data, std::size_t length) const {
  if (!direct()) return buffered_.get();
  // Only whole pages are transferred directly, even if the device accepts smaller units. If a page were written both
  // directly and through the page cache at the same time, old bytes could remain in the page.
  const std::uint64_t range = (begin_ + offset) | length;
  const bool is_direct = range % AlignedMemory::page_bytes == 0 && range % alignment_ == 0 &&
                         reinterpret_cast<std::uintptr_t>(data) % memory_alignment_ == 0;
  return is_direct ? direct_.get() : buffered_.get();
}

// --- opening safely -------------------------------------------------------------------------------------------------

namespace {

constexpr int max_tries = 16;  // openat2 fails with EAGAIN if another process moves a folder during the call

int refuse(int error) {
  errno = error;
  return -1;
}

// Divides a path at each "/" and returns the parts of the path. Returns an empty list if one of the parts is empty, "."
// or "..".
std::vector<std::string> components(const std::string &path) {
  std::vector<std::string> names;
  std::istringstream text(path);
  for (std::string name; std::getline(text, name, '/');) {
    if (name.empty() || name == "." || name == "..") return {};
    names.push_back(name);
  }
  return path.ends_with('/') || path.find('\0') != std::string::npos ? std::vector<std::string>() : names;
}

// Clears O_NONBLOCK. This flag is needed only while a file is opened. On some systems, transfers of regular files fail
// with EAGAIN if O_NONBLOCK stays set.
bool make_blocking(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  return flags >= 0 && fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

}  // namespace

int open_at_once([[maybe_unused]] int folder, const std::string &path, [[maybe_unused]] int flags) {
  if (components(path).empty()) return refuse(EXDEV);
#if defined(SYS_openat2) && defined(RESOLVE_BENEATH)
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  for (int i = 0; i < max_tries; ++i) {
    const long opened = syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how);
    if (opened >= 0 || (errno != EAGAIN && errno != EINTR)) return static_cast<int>(opened);
  }
  return -1;
#else
  return refuse(ENOSYS);
#endif
}

int open_by_components(int folder, const std::string &path, int flags) {
  const std::vector<std::string> names = components(path);
  if (names.empty()) return refuse(EXDEV);
  Descriptor inside;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    Descriptor next(openat(i == 0 ? folder : inside.get(), names[i].c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (next.get() < 0 || fstat(next.get(), &status) != 0) return -1;
    if (S_ISLNK(status.st_mode)) return refuse(ELOOP);  // O_PATH opens the link and not its target
    inside = std::move(next);
  }
  return openat(names.size() == 1 ? folder : inside.get(), names.back().c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
}

Descriptor open_beneath(int folder, const std::string &path, int flags, const std::string &label) {
  const int careful = flags | O_NONBLOCK | O_NOCTTY;
  Descriptor file(open_at_once(folder, path, careful));
  if (file.get() < 0 && (errno == ENOSYS || errno == EPERM || errno == E2BIG))
    file = Descriptor(open_by_components(folder, path, careful));
  const int error = errno;
  if (file.get() < 0 && (error == ELOOP || error == EXDEV))
    throw StorageError("open", label, "links and paths that lead out of the folder are not followed", error);
  // the file is a folder, a socket, or a pipe without a reader
  if (file.get() < 0 && (error == ENXIO || error == EISDIR))
    throw StorageError("open", label, "it is not a regular file", error);
  if (file.get() < 0 && error == EMFILE)
    throw StorageError("open", label, "too many open files; allow more (ulimit -n), or give a smaller bt", error);
  if (file.get() < 0) throw StorageError("open", label, error);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw StorageError("open", label, errno);
  if (!S_ISREG(status.st_mode)) throw StorageError("open", label, "it is not a regular file", EINVAL);
  if (!make_blocking(file.get())) throw StorageError("open", label, errno);
  return file;
}

// Opens the path with O_PATH first, to find the type of the file. A normal open() of a pipe would wait until another
// process opens the pipe.
File open_named(const std::string &path, bool writable, bool direct) {
  const Descriptor seen(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (seen.get() < 0) throw StorageError("open", path, errno);
  struct stat status {};
  if (fstat(seen.get(), &status) != 0) throw StorageError("stat", path, errno);
  const mode_t kind = status.st_mode;
  if (S_ISFIFO(kind) || S_ISSOCK(kind) || S_ISDIR(kind))
    throw StorageError("open", path, "it is not a regular file", S_ISDIR(kind) ? EISDIR : EINVAL);
  return File::open(path, writable, direct);
}

File open_without_links(const std::string &path, bool writable, bool direct) {
  const std::string folder = folder_of(path);
  const Descriptor handle(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() < 0) throw StorageError("open", folder, errno);
  return File::open(name_in_folder(path), writable, direct, handle.get(), path);
}

std::string folder_of(const std::string &path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string name_in_folder(const std::string &path) { return std::filesystem::path(path).filename().string(); }

// --- folders ---------------------------------------------------------------------------------------------------------

namespace {

constexpr mode_t mode_for_all = 0666, mode_for_owner = 0600, folder_for_owner = 0700;
constexpr auto between_tries = std::chrono::milliseconds(5);

struct stat status_of(int descriptor, const std::string &path) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) throw StorageError("stat", path, errno);
  return status;
}

void check_plain(const std::string &name, const std::string &folder) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos)
    throw StorageError("use", folder, "'" + name + "' is not the name of a file in it", EINVAL);
}

class SystemFile final : public OpenFile {
 public:
  explicit SystemFile(File file) : file_(std::move(file)) {}
  const std::string &path() const override { return file_.path(); }
  std::uint64_t size() const override { return file_.size(); }
  void read(std::uint64_t offset, std::byte *data, std::size_t length) const override {
    file_.read(offset, data, length);
  }
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override {
    file_.write(offset, data, length);
  }
  void flush() override { file_.flush(); }
  const File *file() const override { return &file_; }

 private:
  const File file_;
};

class SystemLock final : public FolderLock {
 public:
  explicit SystemLock(Descriptor file) : file_(std::move(file)) {}

 private:
  const Descriptor file_;
};

class SystemFolder final : public Folder {
 public:
  SystemFolder(Descriptor handle, std::string path, mode_t mode)
      : handle_(std::move(handle)), path_(std::move(path)), mode_(mode) {}

  const std::string &path() const override { return path_; }

  std::unique_ptr<OpenFile> open(const std::string &name, bool writable, bool direct) override {
    check_plain(name, path_);
    return std::make_unique<SystemFile>(File::open(name, writable, direct, handle_.get(), whole(name)));
  }

  void create(const std::string &name, std::uint64_t size, Allocation allocation) override {
    check_plain(name, path_);
    const File made = File::make(handle_.get(), name, mode_, whole(name));
    try {
      if (allocation == Allocation::at_once)
        made.allocate(size);
      else if (ftruncate(made.buffered_descriptor(), static_cast<off_t>(size)) != 0)
        throw StorageError("allocate", whole(name), 0, size, errno);
    } catch (const StorageError &) {
      unlinkat(handle_.get(), name.c_str(), 0);
      throw;
    }
  }

  void rename(const std::string &from, const std::string &to) override {
    check_plain(from, path_);
    check_plain(to, path_);
    if (renameat(handle_.get(), from.c_str(), handle_.get(), to.c_str()) != 0)
      throw StorageError("rename", whole(from), errno);
  }

  bool remove(const std::string &name) override {
    check_plain(name, path_);
    if (unlinkat(handle_.get(), name.c_str(), 0) == 0) return true;
    if (errno != ENOENT) throw StorageError("remove", whole(name), errno);
    return false;
  }

  std::vector<std::string> names() override {
    const int again = openat(handle_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again < 0 ? nullptr : fdopendir(again);
    if (list == nullptr) {
      const int error = errno;
      if (again >= 0) ::close(again);
      throw StorageError("read", path_, error);
    }
    std::vector<std::string> found;
    errno = 0;
    while (const dirent *entry = readdir(list)) found.emplace_back(entry->d_name);
    const int error = errno;
    closedir(list);
    if (error != 0) throw StorageError("read", path_, error);
    std::erase_if(found, [](const std::string &name) { return name == "." || name == ".."; });
    return found;
  }

  void flush() override {
    if (fsync(handle_.get()) != 0) throw StorageError("flush", path_, errno);
  }

  std::unique_ptr<FolderLock> hold(const std::string &name, double seconds) override {
    check_plain(name, path_);
    constexpr int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    Descriptor file(openat(handle_.get(), name.c_str(), flags, mode_for_owner));
    if (file.get() < 0) throw StorageError("open", whole(name), errno);
    if (!S_ISREG(status_of(file.get(), whole(name)).st_mode))
      throw StorageError("open", whole(name), "it is not a regular file", EINVAL);
    const auto begin = std::chrono::steady_clock::now();
    while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) throw StorageError("lock", whole(name), errno);
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >= seconds) return nullptr;
      std::this_thread::sleep_for(between_tries);
    }
    return std::make_unique<SystemLock>(std::move(file));
  }

 private:
  std::string whole(const std::string &name) const { return path_ + "/" + name; }

  const Descriptor handle_;
  const std::string path_;
  const mode_t mode_;
};

// Makes a folder and its missing parent folders. Flushes each parent folder, so that the names of new folders are
// durable.
void make_own_folder(const std::string &path) {
  const std::string above = folder_of(path);
  int made = ::mkdir(path.c_str(), folder_for_owner);
  if (made != 0 && errno == ENOENT && above != path && above != ".") {
    make_own_folder(above);
    made = ::mkdir(path.c_str(), folder_for_owner);
  }
  if (made == 0)
    Files::system().folder(above)->flush();
  else if (errno != EEXIST)
    throw StorageError("create", path, errno);
}

class SystemFiles final : public Files {
 public:
  std::unique_ptr<Folder> folder(const std::string &path) override {
    Descriptor handle(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (handle.get() < 0) throw StorageError("open", path, errno);
    return std::make_unique<SystemFolder>(std::move(handle), path, mode_for_all);
  }

  std::unique_ptr<Folder> own_folder(const std::string &path, bool make) override {
    if (make) make_own_folder(path);
    Descriptor handle(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (handle.get() < 0 && errno == ENOENT && !make) return nullptr;
    if (handle.get() < 0) throw StorageError("open", path, errno);
    const struct stat status = status_of(handle.get(), path);
    if (status.st_uid != geteuid())
      throw InputError(path,
                       " belongs to another user, who could change its content; remove it or choose another folder");
    if ((status.st_mode & 077) != 0 && fchmod(handle.get(), folder_for_owner) != 0)
      throw StorageError("close to others", path, errno);
    return std::make_unique<SystemFolder>(std::move(handle), path, mode_for_owner);
  }

  std::unique_ptr<OpenFile> open(const std::string &path, bool writable, bool direct) override {
    return std::make_unique<SystemFile>(open_named(path, writable, direct));
  }
};

}  // namespace

Files &Files::system() {
  static SystemFiles files;
  return files;
}

}  // namespace outcrop
