#include "outcrop/aggregate/text/listing.hpp"

#include <span>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::string_view tail = "crc32c ";
constexpr std::uint64_t text_bytes_most = std::uint64_t{1} << 28;

std::string all_of(const OpenFile &file) {
  const std::uint64_t bytes = file.size();
  if (bytes > text_bytes_most)
    throw CorruptionError(file.path() + " has " + std::to_string(bytes) + " bytes, which no such text has");
  std::string text(bytes, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)).data(), text.size());
  return text;
}

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

std::string read_text(const std::string &path) { return all_of(*Files::system().open(path, false, false)); }
std::string read_text(Folder &folder, const std::string &name) { return all_of(*folder.open(name, false, false)); }

void write_durably(Folder &folder, const std::string &name, const std::string &text) {
  const std::string beside = name + unfinished;
  folder.remove(beside);  // of a writer that was killed
  folder.create(beside, text.size());
  const std::unique_ptr<OpenFile> file = folder.open(beside, true, false);
  file->write(0, std::as_bytes(std::span(text)).data(), text.size());
  file->flush();
  folder.rename(beside, name);
  folder.flush();
}

}  // namespace outcrop::aggregate
