// These tests check the allocation of files. If the system cannot allocate all bytes of a file, an error must be
// thrown.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() : name_((std::filesystem::current_path() / "outcrop_file_XXXXXX").string()) {
    if (mkdtemp(name_.data()) == nullptr) throw std::runtime_error("no folder for the tests: " + name_);
  }
  ~FileTest() override { std::filesystem::remove_all(name_); }
  std::string path(const std::string &file) const { return name_ + "/" + file; }

 private:
  std::string name_;
};

TEST_F(FileTest, AllocatesEveryByte) {
  // a file with an index has a size that is not a multiple of a page
  constexpr std::uint64_t size = (std::uint64_t{1} << 20) + 100;
  File::create(path("a"), size);
  struct stat status {};
  ASSERT_EQ(stat(path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_size, static_cast<off_t>(size));
  EXPECT_GE(static_cast<std::uint64_t>(status.st_blocks) * 512, size) << "the file has holes: the disk may fill later";
  EXPECT_EQ(File::open(path("a"), true, true).size(), size);
}

TEST_F(FileTest, LeavesNothingWhenThereIsNoSpace) {
  constexpr std::uint64_t size = std::uint64_t{1} << 62;
  try {
    File::create(path("a"), size);
    FAIL() << "allocated 4 EiB";
  } catch (const StorageError &error) {
    EXPECT_TRUE(error.error == ENOSPC || error.error == EFBIG) << error.what();
    EXPECT_EQ(error.path, path("a"));
  }
  EXPECT_FALSE(std::filesystem::exists(path("a")));
}

TEST_F(FileTest, NamesWhatItCannotOpen) {
  for (const bool direct : {false, true}) {
    try {
      File::open(path("missing"), false, direct);
      FAIL() << "opened a file that does not exist";
    } catch (const StorageError &error) {
      EXPECT_EQ(error.error, ENOENT);
      EXPECT_NE(std::string(error.what()).find(path("missing")), std::string::npos);
    }
  }
  EXPECT_THROW(File::create(path("no/such/folder"), 1), StorageError);
}

TEST_F(FileTest, AlignmentIsAPowerOfTwoThatRecordsMeet) {
  File::create(path("a"), 1 << 16);
  const File direct = File::open(path("a"), true, true);
  EXPECT_EQ(direct.alignment() & (direct.alignment() - 1), 0u);
  EXPECT_LE(direct.alignment(), 4096u);  // the size of a record is a multiple of 4096
  EXPECT_EQ(File::open(path("a"), true, false).alignment(), 1u);
}

TEST_F(FileTest, NoPageIsWrittenBothDirectlyAndThroughTheCache) {
  File::create(path("a"), 1 << 16);
  const File file = File::open(path("a"), true, true);
  if (!file.direct()) GTEST_SKIP() << "no direct I/O here";
  const AlignedMemory memory(1 << 14);
  EXPECT_NE(file.descriptor(8192, memory.data(), 4096), file.buffered_descriptor());
  EXPECT_NE(file.descriptor(8192, memory.data() + file.alignment(), 8192), file.buffered_descriptor());
  for (const std::size_t part : {std::size_t{64}, std::size_t{512}, std::size_t{2048}}) {
    EXPECT_EQ(file.descriptor(8192 + part, memory.data(), 4096), file.buffered_descriptor());
    EXPECT_EQ(file.descriptor(8192, memory.data(), 4096 + part), file.buffered_descriptor());
  }
}

TEST_F(FileTest, DirectTransfersReachMemoryThatIsShiftedByWhatTheFileAllows) {
  File::create(path("a"), 1 << 16);
  const File file = File::open(path("a"), true, true);
  if (!file.direct()) GTEST_SKIP() << "no direct I/O here";
  const AlignedMemory memory(1 << 14);
  std::byte *shifted = memory.data() + file.memory_alignment();
  ASSERT_NE(file.descriptor(4096, shifted, 8192), file.buffered_descriptor());
  std::memset(shifted, 7, 8192);
  ASSERT_EQ(pwrite(file.descriptor(4096, shifted, 8192), shifted, 8192, 4096), 8192);
  std::memset(shifted, 0, 8192);
  ASSERT_EQ(pread(file.descriptor(4096, shifted, 8192), shifted, 8192, 4096), 8192);
  EXPECT_EQ(std::count(shifted, shifted + 8192, std::byte{7}), 8192);
  EXPECT_EQ(file.descriptor(4096, memory.data() + 64, 4096), file.buffered_descriptor());
}

TEST_F(FileTest, MovesAndClosesOnce) {
  File::create(path("a"), 10);
  File first = File::open(path("a"), true, false);
  File second = std::move(first);
  EXPECT_EQ(second.size(), 10u);
  second = File::open(path("a"), false, false);
  EXPECT_EQ(second.size(), 10u);
  EXPECT_FALSE(second.writable());
}

TEST(AlignedMemoryTest, IsAlignedZeroedAndMovable) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{5000}, (std::size_t{5} << 20) + 1}) {
    AlignedMemory memory(size);
    ASSERT_NE(memory.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 4096, 0u);
    EXPECT_GE(memory.size(), size);
    for (std::size_t i = 0; i < size; i += 777) EXPECT_EQ(memory.data()[i], std::byte{0});
    memory.data()[size - 1] = std::byte{9};
    std::byte *const place = memory.data();
    AlignedMemory other = std::move(memory);
    EXPECT_EQ(other.data(), place);
    EXPECT_EQ(other.data()[size - 1], std::byte{9});
  }
  EXPECT_EQ(AlignedMemory().data(), nullptr);
}

TEST(AlignedMemoryTest, SaysWhenThereIsNone) {
  EXPECT_THROW(AlignedMemory(std::size_t{1} << 60), std::runtime_error);
  EXPECT_THROW(AlignedMemory(~std::size_t{0} - 10), std::runtime_error);
}

TEST(Round, UpAndDown) {
  EXPECT_EQ(round_up(0, 64), 0u);
  EXPECT_EQ(round_up(1, 64), 64u);
  EXPECT_EQ(round_up(64, 64), 64u);
  EXPECT_EQ(round_down(63, 64), 0u);
  EXPECT_EQ(round_down(129, 64), 128u);
}

}  // namespace
}  // namespace outcrop
