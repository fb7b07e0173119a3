#include "outcrop/storage/beneath.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <sstream>
#include <vector>

#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif

#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

constexpr int tries_most = 16;  // openat2 says EAGAIN when a folder is moved meanwhile

int refuse(int error) {
  errno = error;
  return -1;
}

// Empty when the path is not one of plain names.
std::vector<std::string> components(const std::string &path) {
  std::vector<std::string> names;
  std::istringstream text(path);
  for (std::string name; std::getline(text, name, '/');) {
    if (name.empty() || name == "." || name == "..") return {};
    names.push_back(name);
  }
  return path.ends_with('/') || path.find('\0') != std::string::npos ? std::vector<std::string>() : names;
}

// O_NONBLOCK is for opening a pipe only: with it some systems give back EAGAIN for transfers of regular files.
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
  for (int i = 0; i < tries_most; ++i) {
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
    if (S_ISLNK(status.st_mode)) return refuse(ELOOP);  // O_PATH opens the link itself
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
  if (file.get() < 0 && (error == ENXIO || error == EISDIR))  // a pipe without a reader, a socket, a folder
    throw StorageError("open", label, "it is not a regular file", error);
  if (file.get() < 0) throw StorageError("open", label, 0, 0, error);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw StorageError("open", label, 0, 0, errno);
  if (!S_ISREG(status.st_mode)) throw StorageError("open", label, "it is not a regular file", EINVAL);
  if (!make_blocking(file.get())) throw StorageError("open", label, 0, 0, errno);
  return file;
}

}  // namespace outcrop
