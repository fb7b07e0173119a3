#include "outcrop/aggregate/text/listing.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/crc32c.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::string_view tail = "crc32c ";

std::uint32_t checksum_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

}  // namespace

std::string with_checksum(const std::string &lines) {
  return lines + std::string(tail) + std::to_string(checksum_of(lines)) + '\n';
}

std::string_view checked_lines(std::string_view text, const std::string &path) {
  const std::size_t last = text.rfind(tail);
  std::uint32_t checksum = 0;
  std::string_view end = last == std::string::npos ? std::string_view() : text.substr(last);
  const bool is_ended = take(end, tail) && take_number(end, checksum) && end == "\n";
  if (!is_ended || checksum != checksum_of(text.substr(0, last)))
    throw CorruptionError(path + " is damaged: checksum mismatch");
  return text.substr(0, last);
}

std::string read_text(const std::string &path) {
  const outcrop::File file = outcrop::File::open(path, false, false);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)).data(), text.size());
  return text;
}

void write_durably(const std::string &path, const std::string &text) {
  const std::string beside = path + unfinished;
  outcrop::File::create(beside, text.size());
  const outcrop::File file = outcrop::File::open(beside, true, false);
  file.write(0, std::as_bytes(std::span(text)).data(), text.size());
  file.flush();
  if (std::rename(beside.c_str(), path.c_str()) != 0) throw StorageError("rename", beside, 0, 0, errno);
  flush_folder(folder_of(path));
}

void flush_folder(const std::string &folder) {
  const Descriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() < 0 || fsync(handle.get()) != 0) throw StorageError("flush", folder, 0, 0, errno);
}

std::string folder_of(const std::string &path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace outcrop::aggregate
