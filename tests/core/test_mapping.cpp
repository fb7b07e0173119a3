// These tests check mapped files. Each mapped part of a file must show the right bytes of the file. Bytes that were
// written to a mapping and flushed must be in the file. An instruction that writes cache lines back to memory must not
// change the content of the lines.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/slot_file.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {
namespace {

constexpr std::size_t page = 4096;

class MappingTest : public testing::Test {
 protected:
  MappingTest() : name_((std::filesystem::current_path() / "outcrop_mapping_XXXXXX").string()) {
    if (mkdtemp(name_.data()) == nullptr) throw std::runtime_error("no folder for the tests: " + name_);
  }
  ~MappingTest() override { std::filesystem::remove_all(name_); }
  std::string path(const std::string &file) const { return name_ + "/" + file; }
  std::string folder() const { return name_; }

 private:
  std::string name_;
};

TEST_F(MappingTest, WhatIsFlushedIsInTheFile) {
  // the parallel flush has more than two parts, and the last page is incomplete
  constexpr std::size_t size = (std::size_t{33} << 20) + 5;
  File::create(path("a"), size);
  {
    const Mapping mapping(File::open(path("a"), true, false), true);
    ASSERT_EQ(mapping.size(), size);
    EXPECT_TRUE(mapping.writable());
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) mapping.data()[at] = std::byte{7};
    flush_in_parallel(mapping, 0, size, 3);
    mapping.flush(size - 3, 2);  // the flush begins in the middle of a page
  }
  std::ifstream file(path("a"), std::ios::binary);
  const std::vector<char> found{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(std::count(found.begin(), found.end(), 7), 3);
  EXPECT_EQ(found.back(), 7);
}

TEST_F(MappingTest, OnlyFilesOpenedForThatAreWritable) {
  File::create(path("a"), page);
  EXPECT_FALSE(Mapping(File::open(path("a"), false, false)).writable());
}

TEST_F(MappingTest, PiecesShowWhereTheyWerePlaced) {
  File::create(path("a"), 4 * page);
  const File file = File::open(path("a"), true, false);
  const Mapping whole(file);
  for (std::size_t i = 0; i < 4; ++i) whole.data()[i * page] = static_cast<std::byte>(i);
  Mapping shuffled = Mapping::reserve(2 * page + 10);
  shuffled.place(0, file, 3 * page, page);
  shuffled.place(page, file, 0, page);
  shuffled.place(2 * page, file, 2 * page, 10);
  EXPECT_EQ(shuffled.data()[0], std::byte{3});
  EXPECT_EQ(shuffled.data()[page], std::byte{0});
  EXPECT_EQ(shuffled.data()[2 * page], std::byte{2});
}

// Checks an offset at which no page of the file begins. Such offsets occur on systems with larger pages.
TEST_F(MappingTest, APieceThatCannotBeMappedIsCopied) {
  File::create(path("a"), 2 * page);
  const File file = File::open(path("a"), true, false);
  const Mapping whole(file);
  for (std::size_t i = 0; i < 2 * page; ++i) whole.data()[i] = static_cast<std::byte>(i % 251);
  Mapping copied = Mapping::reserve(page);
  copied.place(0, file, page - 100, 200);
  EXPECT_TRUE(std::equal(copied.data(), copied.data() + 200, whole.data() + page - 100));
}

TEST_F(MappingTest, ScratchHasRoomAndNoName) {
  const Mapping mapping(File::unnamed(folder(), 3 * page + 1));
  EXPECT_EQ(mapping.size(), 3 * page + 1);
  mapping.data()[3 * page] = std::byte{1};
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
  EXPECT_THROW(File::unnamed(folder(), std::uint64_t{1} << 62), StorageError) << "no space";
  EXPECT_THROW(File::unnamed(path("missing"), page), StorageError);
}

TEST(WriteBack, LeavesEveryByteAsItIs) {
  std::vector<std::byte> bytes(10000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  const std::vector<std::byte> before = bytes;
  for (const WriteBackVariant &variant : write_back_variants()) {
    for (const std::size_t begin : {0, 1, 63, 64, 4097}) variant.write_back(bytes.data() + begin, bytes.size() - begin);
    variant.write_back(bytes.data(), 0);
    write_back_fence();
    EXPECT_EQ(bytes, before) << variant.name;
  }
#if defined(__x86_64__)
  EXPECT_TRUE(can_write_back());
#endif
}

}  // namespace
}  // namespace outcrop
