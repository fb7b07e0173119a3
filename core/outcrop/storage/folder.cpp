#include "outcrop/storage/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "outcrop/base/error.hpp"

namespace outcrop {
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

// Makes a folder and its missing parent folders. Makes the name of each new folder durable.
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
