#include "outcrop/aggregate/sinks/node_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "outcrop/aggregate/text/listing.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop::aggregate {

NodeFiles::NodeFiles(std::string folder, NodeIndex index)
    : folder_(std::move(folder)), index_(std::move(index)), files_(index_.files.size()) {}

const outcrop::File &NodeFiles::file(std::uint32_t number) {
  if (!files_[number]) files_[number] = outcrop::File::open(folder_ + "/" + index_.files[number], false, false);
  return *files_[number];
}

// The part of `wanted` that the step has; what it has not is added to `missing`.
void NodeFiles::read_step(std::uint64_t base, const Range &wanted, std::uint64_t offset, std::span<std::byte> bytes,
                          std::vector<Range> &missing) {
  std::uint64_t at = wanted.begin;
  const auto has_more = [&](const NodeRange &each) { return base + each.range.end <= at; };
  for (auto next = std::ranges::partition_point(index_.ranges, has_more);
       next != index_.ranges.end() && base + next->range.begin < wanted.end; ++next) {
    const Range here = common({base + next->range.begin, base + next->range.end}, wanted);
    if (at < here.begin) missing.push_back({at, here.begin});
    file(next->file).read(here.begin, bytes.data() + (here.begin - offset), here.bytes());
    at = here.end;
  }
  if (at < wanted.end) missing.push_back({at, wanted.end});
}

bool NodeFiles::read(std::uint64_t offset, std::span<std::byte> bytes) {
  std::vector<Range> missing{{offset, offset + bytes.size()}};
  for (std::size_t i = index_.bases.size(); i-- > 0 && !missing.empty();) {  // the newest first
    std::vector<Range> rest;
    for (const Range &wanted : missing) read_step(index_.bases[i], wanted, offset, bytes, rest);
    missing = std::move(rest);
  }
  std::uint64_t zeros = 0;
  for (const Range &hole : missing) {
    std::memset(bytes.data() + (hole.begin - offset), 0, hole.bytes());
    zeros += hole.bytes();
  }
  return zeros < bytes.size();
}

void NodeFiles::check_sizes() {
  if (index_.bases.empty()) return;
  const std::uint64_t last = *std::ranges::max_element(index_.bases);
  std::vector<std::uint64_t> ends(files_.size(), 0);
  for (const NodeRange &each : index_.ranges) ends[each.file] = last + each.range.end;  // they ascend
  for (std::uint32_t number = 0; number < ends.size(); ++number)
    if (ends[number] > 0 && file(number).size() < ends[number])
      throw CorruptionError(file(number).path() + " has " + std::to_string(file(number).size()) +
                            " bytes, its index says at least " + std::to_string(ends[number]));
}

namespace {

constexpr std::uint64_t chunk_bytes = std::uint64_t{4} << 20;

struct Chunk {
  std::uint64_t offset = 0;
  std::uint32_t checksum = 0;
};

// A file that goes again unless it gets its name.
class Beside {
 public:
  Beside(const std::string &target, std::uint64_t size) : target_(target), path_(target + unfinished) {
    const Descriptor made(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (made.get() < 0) throw StorageError("create", path_, 0, 0, errno);
    if (ftruncate(made.get(), static_cast<off_t>(size)) == 0) return;
    const int error = errno;
    ::unlink(path_.c_str());
    throw StorageError("set the size of", path_, 0, size, error);
  }
  Beside(const Beside &) = delete;
  Beside &operator=(const Beside &) = delete;
  ~Beside() {
    if (!is_named_) ::unlink(path_.c_str());
  }
  void name() {
    if (std::rename(path_.c_str(), target_.c_str()) != 0) throw StorageError("rename", path_, 0, 0, errno);
    is_named_ = true;
    flush_folder(folder_of(target_));
  }
  const std::string &path() const { return path_; }

 private:
  const std::string target_, path_;
  bool is_named_ = false;
};

std::vector<Chunk> copy(NodeFiles &files, const outcrop::File &to, std::uint64_t size, std::span<std::byte> memory) {
  std::vector<Chunk> chunks;
  for (std::uint64_t at = 0; at < size; at += chunk_bytes) {
    const std::span<std::byte> part = memory.first(std::min(chunk_bytes, size - at));
    if (!files.read(at, part)) continue;  // a hole stays one
    to.write(at, part.data(), part.size());
    chunks.push_back({at, crc32c(part)});
  }
  to.flush();
  return chunks;
}

}  // namespace

std::uint64_t merge(const std::string &index, const std::string &target) {
  NodeFiles files(folder_of(index), node_index_of(read_text(index), index));
  const std::string folder = folder_of(index);
  for (const std::string &name : files.index().files)
    if (std::error_code none; std::filesystem::equivalent(folder + "/" + name, target, none))
      throw InputError(target + " is one of the files that it is to be made of");
  files.check_sizes();
  const std::uint64_t size = files.index().end();
  Beside beside(target, size);
  const AlignedMemory memory(chunk_bytes);
  const std::span<std::byte> bytes(memory.data(), chunk_bytes);
  const outcrop::File to = outcrop::File::open(beside.path(), true, true);
  for (const Chunk &chunk : copy(files, to, size, bytes)) {
    const std::span<std::byte> part = bytes.first(std::min(chunk_bytes, size - chunk.offset));
    to.read(chunk.offset, part.data(), part.size());
    if (crc32c(part) != chunk.checksum)
      throw CorruptionError(beside.path() + " does not hold what was written to it at offset " +
                            std::to_string(chunk.offset));
  }
  beside.name();
  return size;
}

}  // namespace outcrop::aggregate
