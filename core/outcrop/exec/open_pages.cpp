#include "outcrop/exec/open_pages.hpp"

#include <cassert>
#include <cstring>

namespace outcrop {

OpenPages::OpenPages(std::size_t pages) : memory_(pages * page_bytes) {
  free_.reserve(pages);
  for (std::size_t i = pages; i > 0; --i)
    free_.push_back(memory_.data() + (i - 1) * page_bytes);  // the first one first
}

std::size_t OpenPages::add_file(std::uint64_t pages) {
  refused_.emplace_back(pages, false);
  return refused_.size() - 1;
}

OpenPages::Fate OpenPages::add(std::size_t file, std::uint64_t page, std::size_t begin, std::size_t end,
                               std::byte *data) {
  assert(begin < end && end <= page_bytes && end - begin < page_bytes);
  const std::lock_guard lock(mutex_);
  if (refused_[file][page]) return Fate::refused;
  auto found = open_.find(key(file, page));
  if (found == open_.end()) {
    if (free_.empty()) {
      refused_[file][page] = true;
      return Fate::refused;
    }
    found = open_.emplace(key(file, page), Open{free_.back(), 0}).first;
    free_.pop_back();
  }
  Open &open = found->second;
  open.bytes += end - begin;
  assert(open.bytes <= page_bytes);
  if (open.bytes < page_bytes) {
    std::memcpy(open.data + begin, data + begin, end - begin);
    return Fate::kept;
  }
  std::memcpy(data, open.data, begin);
  std::memcpy(data + end, open.data + end, page_bytes - end);
  free_.push_back(open.data);
  open_.erase(found);
  return Fate::complete;
}

std::size_t OpenPages::size() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

}  // namespace outcrop
