// Protects files that are written in parts: every page comes out whole, or is refused for good.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "outcrop/exec/open_pages.hpp"

namespace outcrop {
namespace {

using Fate = OpenPages::Fate;
constexpr std::size_t page_bytes = OpenPages::page_bytes;

// Hands on some bytes of a page, all of one value, in memory that holds rubbish beside them.
struct Part {
  std::vector<std::byte> data{page_bytes, std::byte{0xEE}};
  Fate fate;
  Part(OpenPages &pages, std::size_t file, std::uint64_t page, std::size_t begin, std::size_t end, int value) {
    std::fill(data.begin() + static_cast<long>(begin), data.begin() + static_cast<long>(end), std::byte(value));
    fate = pages.add(file, page, begin, end, data.data());
  }
  bool holds(std::size_t begin, std::size_t end, int value) const {
    return std::all_of(data.begin() + static_cast<long>(begin), data.begin() + static_cast<long>(end),
                       [&](std::byte one) { return one == std::byte(value); });
  }
};

TEST(OpenPages, APageIsCompleteWithItsLastBytesInWhateverOrder) {
  OpenPages pages(2);
  pages.add_file(10);
  EXPECT_EQ(Part(pages, 0, 7, 100, 200, 2).fate, Fate::kept);
  EXPECT_EQ(Part(pages, 0, 7, 200, page_bytes, 3).fate, Fate::kept);
  const Part last(pages, 0, 7, 0, 100, 1);
  EXPECT_EQ(last.fate, Fate::complete);
  EXPECT_TRUE(last.holds(0, 100, 1) && last.holds(100, 200, 2) && last.holds(200, page_bytes, 3));
  EXPECT_EQ(pages.size(), 0u);
}

TEST(OpenPages, PagesOfTwoFilesAreKeptApart) {
  OpenPages pages(2);
  EXPECT_EQ(pages.add_file(10), 0u);
  EXPECT_EQ(pages.add_file(10), 1u);
  EXPECT_EQ(Part(pages, 0, 7, 0, 100, 1).fate, Fate::kept);
  EXPECT_EQ(Part(pages, 1, 7, 0, 100, 2).fate, Fate::kept);
  EXPECT_EQ(pages.size(), 2u);
  EXPECT_TRUE(Part(pages, 1, 7, 100, page_bytes, 3).holds(0, 100, 2));
  EXPECT_TRUE(Part(pages, 0, 7, 100, page_bytes, 4).holds(0, 100, 1));
}

TEST(OpenPages, APageOnceRefusedIsRefusedAlthoughThereIsRoomAgain) {
  OpenPages pages(1);
  pages.add_file(10);
  EXPECT_EQ(Part(pages, 0, 1, 0, 100, 1).fate, Fate::kept);
  EXPECT_EQ(Part(pages, 0, 2, 0, 100, 1).fate, Fate::refused);
  EXPECT_EQ(Part(pages, 0, 1, 100, page_bytes, 1).fate, Fate::complete);
  EXPECT_EQ(Part(pages, 0, 2, 100, page_bytes, 1).fate, Fate::refused);
  EXPECT_EQ(Part(pages, 0, 3, 0, 100, 1).fate, Fate::kept);
}

TEST(OpenPages, PagesThatOthersWriteTooAreRefused) {
  OpenPages pages(1);
  pages.add_file(10);
  pages.refuse(0, 9);
  EXPECT_EQ(Part(pages, 0, 9, 0, 100, 1).fate, Fate::refused);
}

}  // namespace
}  // namespace outcrop
