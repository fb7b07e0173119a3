#include "outcrop/storage/store.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <set>
#include <string>

#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

// A single caller waits for each transfer, so they may be larger than a pump's; below what one system call moves.
constexpr std::size_t longest_bytes = std::size_t{64} << 20;

}  // namespace

void Store::flush() {
  std::set<std::string> flushed;  // parts of one device are durable together
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

void Store::read(std::uint32_t file, std::uint64_t offset, std::byte *data, std::size_t length) {
  move(Transfer{false, file, offset, data, length, 0});
}

void Store::write(std::uint32_t file, std::uint64_t offset, const std::byte *data, std::size_t length) {
  move(Transfer{true, file, offset, const_cast<std::byte *>(data), length, 0});  // writes only read it
}

Store::Place Store::place(const Transfer &transfer) const {
  if (transfer.file >= files_.size()) return {};
  const File &file = files_[transfer.file];
  if ((transfer.write && !file.writable()) || !file.holds(transfer.offset, transfer.length)) return {};
  return {file.descriptor(transfer.offset, transfer.data, transfer.length), file.begin() + transfer.offset};
}

void Store::move(Transfer whole) {
  const std::lock_guard lock(moving_);
  while (whole.length > 0) {
    Transfer piece = whole;
    piece.length = std::min(whole.length, longest_bytes);
    std::array<Completion, 1> completion;
    submit({&piece, 1});
    while (reap(completion, true) == 0) {
    }
    const std::int64_t result = completion[0].result;
    if (result == -EAGAIN || result == -EINTR) continue;
    if (result <= 0) {
      const std::string name = whole.file < files().size() ? path(whole.file) : "file " + std::to_string(whole.file);
      throw StorageError(whole.write ? "write" : "read", name, piece.offset, piece.length, static_cast<int>(-result));
    }
    whole.offset += static_cast<std::uint64_t>(result);
    whole.data += result;
    whole.length -= static_cast<std::size_t>(result);
  }
}

}  // namespace outcrop
