// Pages of files of which only some bytes have come so far: direct I/O takes whole pages, and what is to be written begins and
// ends anywhere.
//
//     file      | page 7     | page 8     | page 9     |
//     first          ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒               page 8 can be written, 7 and 9 are kept
//     later                                 ▒▒▒▒▒▒▒▒▒▒      page 9 is complete
//
// A page for which there is no room is refused, then and ever after. All its bytes have to take the way through the page cache:
// of a page that is written both ways the system may keep old bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "outcrop/base/aligned.hpp"

namespace outcrop {

/// Any thread may call it; every byte of a page comes once.
class OpenPages {
 public:
  static constexpr std::size_t page_bytes = AlignedMemory::page_bytes;

  enum class Fate {
    complete,  ///< the last bytes have come, and the page is given back
    kept,
    refused,
  };

  /// Takes room for that many pages; memory is touched as they come.
  explicit OpenPages(std::size_t pages);

  /// Files are numbered as they are added. Pages of one that are not its own alone can be refused from the start.
  std::size_t add_file(std::uint64_t pages);
  void refuse(std::size_t file, std::uint64_t page) { refused_[file][page] = true; }

  /// Bytes begin <= i < end of a page, some but not all of it. They lie at their place in `data`, which has room for the page
  /// and holds all of it when it is complete.
  Fate add(std::size_t file, std::uint64_t page, std::size_t begin, std::size_t end, std::byte *data);

  /// Pages that are kept now.
  std::size_t size() const;

 private:
  struct Open {
    std::byte *data = nullptr;
    std::size_t bytes = 0;
  };

  static std::uint64_t key(std::size_t file, std::uint64_t page) { return (std::uint64_t{file} << 40) | page; }

  mutable std::mutex mutex_;
  AlignedMemory memory_;
  std::vector<std::byte *> free_;
  std::unordered_map<std::uint64_t, Open> open_;
  std::vector<std::vector<bool>> refused_;  // by file
};

}  // namespace outcrop
