// These tests check that transfers stay inside a folder with untrusted content. A link, a pipe or ".." in the folder
// must not lead a transfer outside. The tests cover two ways to open a file: one system call for the whole path, and
// one system call for each folder of the path.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/file.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {
namespace {

namespace fs = std::filesystem;

// Makes a folder `run` with the file u/c/0, and a file next to the folder.
class Beneath : public testing::Test {
 protected:
  Beneath() : name_((fs::current_path() / "outcrop_beneath_XXXXXX").string()) {
    if (mkdtemp(name_.data()) == nullptr) throw std::runtime_error("no folder for the tests: " + name_);
    fs::create_directories(path("run/u/c"));
    std::ofstream(path("run/u/c/0")) << std::string(8192, 'u');
    std::ofstream(path("outside")) << "outside";
    folder_ = Descriptor(::open(path("run").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~Beneath() override { fs::remove_all(name_); }
  std::string path(const std::string &file) const { return name_ + "/" + file; }
  int folder() const { return folder_.get(); }

 private:
  std::string name_;
  Descriptor folder_;
};

using Way = int (*)(int, const std::string &, int);

bool knows_openat2(int folder) {
  const Descriptor file(open_at_once(folder, "u/c/0", O_RDONLY));
  return file.get() >= 0 || (errno != ENOSYS && errno != EPERM && errno != E2BIG);
}

TEST_F(Beneath, BothWaysOpenWhatIsInsideAndNothingElse) {
  fs::create_symlink("/etc/passwd", path("run/link"));
  fs::create_symlink("0", path("run/u/c/1"));  // links are refused, whatever their target is
  fs::create_symlink(path("run/u"), path("run/v"));
  fs::create_symlink("missing", path("run/dangling"));
  const std::vector<std::pair<std::string, int>> refused{{"link", ELOOP},
                                                         {"u/c/1", ELOOP},
                                                         {"v/c/0", ELOOP},
                                                         {"dangling", ELOOP},
                                                         {"../outside", EXDEV},
                                                         {"u/../u/c/0", EXDEV},
                                                         {path("outside"), EXDEV},
                                                         {"", EXDEV},
                                                         {"u//c/0", EXDEV},
                                                         {"u/./c/0", EXDEV},
                                                         {"u/c/", EXDEV},
                                                         {"/", EXDEV},
                                                         {std::string("u\0c", 3), EXDEV},
                                                         {"u/c/2", ENOENT},
                                                         {"u/x/0", ENOENT},
                                                         {"u/c/0/x", ENOTDIR}};
  for (const Way way : {&open_at_once, &open_by_components}) {
    if (way == &open_at_once && !knows_openat2(folder())) continue;
    const Descriptor inside(way(folder(), "u/c/0", O_RDONLY));
    char byte = 0;
    EXPECT_EQ(pread(inside.get(), &byte, 1, 8191), 1);
    EXPECT_EQ(byte, 'u');
    for (const auto &[name, error] : refused) {
      errno = 0;
      const Descriptor file(way(folder(), name, O_RDWR));
      EXPECT_EQ(file.get(), -1) << name;
      EXPECT_EQ(errno, error) << name;
    }
  }
}

TEST_F(Beneath, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  ASSERT_EQ(mkfifo(path("run/pipe").c_str(), 0600), 0);
  fs::create_directory(path("run/folder"));
  const Descriptor listening(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const fs::path before = fs::current_path();
  fs::current_path(path("run"));  // the name of a socket must be short
  std::string("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address), 0);
  fs::current_path(before);
  for (const std::string name : {"pipe", "folder", "socket"})
    for (const bool writable : {false, true}) {
      try {
        File::open(name, writable, true, folder(), "the run's " + name);
        FAIL() << "opened " << name;
      } catch (const StorageError &error) {
        EXPECT_EQ(std::string(error.what()), "open failed: the run's " + name + ": it is not a regular file");
      }
    }
}

TEST_F(Beneath, MessagesShowTheLabelAndWhy) {
  fs::create_symlink(path("outside"), path("run/link"));
  for (const std::string name : {"link", "../outside"}) {
    try {
      File::open(name, true, false, folder(), "run.oc/u");
      FAIL() << "opened " << name;
    } catch (const StorageError &error) {
      EXPECT_EQ(std::string(error.what()),
                "open failed: run.oc/u: links and paths that lead out of the folder are not followed");
    }
  }
  try {
    File::open("u/c/7", true, false, folder());
    FAIL() << "opened a file that does not exist";
  } catch (const StorageError &error) {
    EXPECT_EQ(std::string(error.what()), "open failed: u/c/7: No such file or directory");
  }
}

TEST_F(Beneath, AStoreNeedsTheFolderForOpeningOnly) {
  for (const std::string backend : {"threads", "mmap", "memory"}) {
    Descriptor own(::open(path("run").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto store =
        open_store(backend, {{.path = "u/c/0", .writable = true, .folder = own.get(), .label = "run.oc/u/c/0"}});
    own.reset();
    EXPECT_EQ(store->path(0), "run.oc/u/c/0");
    const AlignedMemory memory(8192);
    store->read(0, 0, memory.data(), 8192);
    EXPECT_EQ(memory.data()[8191], backend == "memory" ? std::byte{0} : std::byte{'u'});
    store->write(0, 4096, memory.data(), 4096);
    store->flush();
    try {
      store->read(0, 8192, memory.data(), 4096);
      FAIL() << "read behind the end";
    } catch (const StorageError &error) {
      EXPECT_NE(std::string(error.what()).find("run.oc/u/c/0"), std::string::npos) << error.what();
    }
    EXPECT_THROW(open_store(backend == "memory" ? "threads" : backend, {{.path = "../outside", .folder = folder()}}),
                 StorageError);
  }
}

TEST_F(Beneath, DescriptorsWaitForTheirTransfersAsAnyOther) {
  const File file = File::open("u/c/0", true, true, folder());
  EXPECT_EQ(fcntl(file.buffered_descriptor(), F_GETFL) & O_NONBLOCK, 0);
  const AlignedMemory memory(4096);
  const int direct = file.descriptor(0, memory.data(), 4096);
  EXPECT_EQ(fcntl(direct, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ((fcntl(direct, F_GETFL) & O_DIRECT) != 0, file.direct());
}

}  // namespace
}  // namespace outcrop
