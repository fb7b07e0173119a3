#include "outcrop/aggregate/sinks/node_files.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop::aggregate {

// --- the index -----------------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view head = "outcrop node files 1\n";

constexpr std::uint64_t max_end = std::uint64_t{1} << 62;

// Returns true if `name` is the name of a file without a folder. A path is refused, because it could lead out of the
// folder of the index.
bool is_plain_name(const std::string &name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Returns true if an index has the properties that all readers of node files assume.
bool is_valid(const NodeIndex &index) {
  std::uint64_t end = 0;
  for (const NodeRange &each : index.ranges) {
    if (each.range.begin < end || each.range.end <= each.range.begin || each.range.end > max_end) return false;
    if (each.file >= index.files.size()) return false;
    end = each.range.end;
  }
  const auto fits = [&](std::uint64_t base) { return base <= max_end - end; };
  std::vector<std::uint64_t> bases = index.bases;
  std::ranges::sort(bases);
  return index.size_bytes <= max_end && std::ranges::all_of(index.files, is_plain_name) &&
         std::ranges::all_of(bases, fits) && std::ranges::adjacent_find(bases) == bases.end();
}

// Parses the lines of an index. Returns false if a line is invalid, or if the order of the lines differs from the order
// in to_text().
bool take_index(std::string_view text, NodeIndex &index) {
  if (!take_all(text, head, "size ", index.size_bytes, "\n")) return false;
  while (take(text, "file "))
    if (!take_rest(text, index.files.emplace_back())) return false;
  while (take(text, "range ")) {
    auto &[range, file, padding] = index.ranges.emplace_back();
    if (!take_all(text, range.begin, " ", range.end, " ", file, "\n")) return false;
  }
  while (take(text, "step "))
    if (!take_all(text, index.bases.emplace_back(), "\n")) return false;
  return text.empty() && is_valid(index);
}

}  // namespace

void NodeIndex::add_step(std::uint64_t base) {
  std::erase(bases, base);
  bases.push_back(base);
}

std::uint64_t NodeIndex::end() const {
  if (ranges.empty() || bases.empty()) return size_bytes;
  return std::max(size_bytes, *std::ranges::max_element(bases) + ranges.back().range.end);
}

void check_ranges(std::size_t ranges) {
  // "range ", two numbers of at most 19 digits, a number of 10 digits, two blanks and a newline. The other lines
  // contain the names of the files and the steps.
  constexpr std::size_t longest_range = 6 + 2 * 19 + 10 + 3, other_lines = std::size_t{1} << 26;
  constexpr std::size_t max_ranges = (max_text_bytes - other_lines) / longest_range;
  if (ranges > max_ranges)
    throw InputError("a step has " + std::to_string(ranges) +
                     " contiguous ranges of bytes, but the index of node files can list at most " +
                     std::to_string(max_ranges) + "; declare longer contiguous extents, or write one file");
}

std::string to_text(const NodeIndex &index) {
  std::ostringstream text;
  text << head << "size " << index.size_bytes << '\n';
  for (const std::string &name : index.files) text << "file " << name << '\n';
  for (const NodeRange &each : index.ranges)
    text << "range " << each.range.begin << ' ' << each.range.end << ' ' << each.file << '\n';
  for (const std::uint64_t base : index.bases) text << "step " << base << '\n';
  return with_checksum(text.str());
}

NodeIndex node_index_of(const std::string &text, const std::string &path) {
  NodeIndex index;
  if (!take_index(checked_lines(text, path), index))
    throw CorruptionError(path + " is not an index of node files that this version reads");
  return index;
}

std::vector<NodeRange> joined(std::vector<NodeRange> ranges) {
  std::ranges::sort(ranges, {}, [](const NodeRange &each) { return each.range.begin; });
  join_neighbours(ranges, 0, [](NodeRange &before, const NodeRange &next) {
    if (before.range.end != next.range.begin || before.file != next.file) return false;
    before.range.end = next.range.end;
    return true;
  });
  return ranges;
}

std::string index_of(const std::string &path) { return path + ".index"; }
std::string node_file_of(const std::string &path, int node) { return path + ".node-" + std::to_string(node); }

// --- reading all files ---------------------------------------------------------------------------------------------

NodeFiles::NodeFiles(std::unique_ptr<Folder> folder, NodeIndex index)
    : folder_(std::move(folder)), index_(std::move(index)), files_(index_.files.size()) {}

const OpenFile &NodeFiles::file(std::uint32_t number) {
  if (!files_[number]) files_[number] = folder_->open(index_.files[number], false, false);
  return *files_[number];
}

// Reads the part of the range `wanted` that the step with the base `base` has written. Adds the other parts of `wanted`
// to `missing`.
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
  for (std::size_t i = index_.bases.size(); i-- > 0 && !missing.empty();) {  // from the newest step to the oldest step
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

std::uint64_t NodeFiles::next_written(std::uint64_t offset) const {
  std::uint64_t found = index_.end();
  for (const std::uint64_t base : index_.bases) {
    const auto next = std::ranges::partition_point(
        index_.ranges, [&](const NodeRange &each) { return base + each.range.end <= offset; });
    if (next != index_.ranges.end()) found = std::min(found, std::max(offset, base + next->range.begin));
  }
  return std::max(found, offset);
}

void NodeFiles::check_sizes() {
  if (index_.bases.empty()) return;
  const std::uint64_t last = *std::ranges::max_element(index_.bases);
  std::vector<std::uint64_t> ends(files_.size(), 0);
  // The ranges are in ascending order, so the last range of each file has the largest end.
  for (const NodeRange &each : index_.ranges) ends[each.file] = last + each.range.end;
  for (std::uint32_t number = 0; number < ends.size(); ++number)
    if (ends[number] > 0 && file(number).size() < ends[number])
      throw CorruptionError(file(number).path() + " has " + std::to_string(file(number).size()) +
                            " bytes, but its index requires at least " + std::to_string(ends[number]));
}

namespace {

constexpr std::uint64_t chunk_bytes = std::uint64_t{4} << 20;

// Copies all chunks that contain written bytes. Then makes the copy durable, reads the copy again, and compares the
// checksums.
void copy_checked(NodeFiles &files, OpenFile &copy, std::uint64_t size) {
  const AlignedMemory memory(chunk_bytes);
  const auto part_at = [&](std::uint64_t offset) {
    return std::span<std::byte>(memory.data(), std::min(chunk_bytes, size - offset));
  };
  const auto next = [&](std::uint64_t from) { return round_down(files.next_written(from), chunk_bytes); };
  std::vector<std::pair<std::uint64_t, std::uint32_t>> checksums;  // the offset and the checksum of each chunk
  for (std::uint64_t at = next(0); at < size; at = next(at + chunk_bytes)) {
    const std::span<std::byte> part = part_at(at);
    if (!files.read(at, part)) continue;  // no step has written this part, so the copy has a hole here
    copy.write(at, part.data(), part.size());
    checksums.emplace_back(at, crc32c(part));
  }
  copy.flush();
  for (const auto &[offset, checksum] : checksums) {
    const std::span<std::byte> part = part_at(offset);
    copy.read(offset, part.data(), part.size());
    if (crc32c(part) != checksum)
      throw CorruptionError(copy.path() + " does not contain the bytes that were written to it at offset " +
                            std::to_string(offset));
  }
}

}  // namespace

std::uint64_t merge(const std::string &index, const std::string &target, Files &system) {
  std::unique_ptr<Folder> folder = system.folder(folder_of(index));
  NodeIndex content = node_index_of(read_text(*folder, name_in_folder(index)), index);
  NodeFiles files(std::move(folder), std::move(content));
  for (const std::string &name : files.index().files)
    if (std::error_code none; std::filesystem::equivalent(folder_of(index) + "/" + name, target, none))
      throw InputError("the target " + target + " is one of the node files; choose another name");
  files.check_sizes();
  const std::uint64_t size = files.index().end();
  const std::unique_ptr<Folder> target_folder = system.folder(folder_of(target));
  const std::string name = name_in_folder(target), temporary = name + unfinished;
  target_folder->remove(temporary);  // a merge that was killed may have left this file
  target_folder->create(temporary, size, Allocation::as_written);
  try {
    copy_checked(files, *target_folder->open(temporary, true, true), size);
    target_folder->rename(temporary, name);
  } catch (...) {
    try {
      target_folder->remove(temporary);
    } catch (const StorageError &) {  // the next merge will remove the file
    }
    throw;
  }
  target_folder->flush();
  return size;
}

void NodeFile::read(std::uint64_t offset, std::byte *data, std::size_t length) {
  if (offset + length > files_.index().end())
    throw StorageError("read", path_, offset, length, 0);  // error number 0 means that the file ends too early
  files_.read(offset, {data, length});
}

}  // namespace outcrop::aggregate
