#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <sstream>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/exec/slot_file.hpp"
#include "outcrop/storage/checksums.hpp"
#include "protocol_histories.hpp"

namespace outcrop::model {
namespace {

constexpr std::size_t tile_bytes = AlignedMemory::page_bytes, array_bytes = 3 * tile_bytes + 700;
constexpr const char *folder_name = "array";

struct Record {
  std::uint64_t generation = 0, attempt = 0;
  CommittedTiles tiles;
};

std::uint32_t checksum_of(const std::string &line) { return crc32c(std::as_bytes(std::span(line))); }

// Returns the text of a record. The text has a line of numbers, and a line with the checksum of the first line.
std::string text_of(const Record &record) {
  std::ostringstream line;
  line << record.generation << ' ' << record.attempt;
  for (std::size_t i = 0; i < record.tiles.slots.size(); ++i)
    line << ' ' << unsigned{record.tiles.slots[i]} << ' ' << record.tiles.checksums[i];
  return line.str() + '\n' + std::to_string(checksum_of(line.str()));
}

Record record_of(const std::string &text, std::size_t tiles) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string line = text.substr(0, end);
  if (end == text.size() || text.substr(end + 1) != std::to_string(checksum_of(line)))
    throw CorruptionError("a record is damaged");
  std::istringstream numbers(line);
  Record record;
  numbers >> record.generation >> record.attempt;
  record.tiles.slots.resize(tiles);
  record.tiles.checksums.resize(tiles);
  for (std::size_t i = 0; i < tiles; ++i) {
    unsigned slot = 0;
    numbers >> slot >> record.tiles.checksums[i];
    record.tiles.slots[i] = static_cast<std::uint8_t>(slot);
  }
  return record;
}

std::string read_text(Folder &folder, const std::string &name) {
  const std::unique_ptr<OpenFile> file = folder.open(name, false, false);
  std::string text(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)).data(), text.size());
  return text;
}

// Writes a temporary file, makes it durable, renames it, and makes the folder durable. A commit of an array consists of
// the same steps.
void write_durably(Folder &folder, const std::string &name, const std::string &text) {
  const std::string beside = name + ".tmp";
  folder.remove(beside);
  folder.create(beside, text.size());
  const std::unique_ptr<OpenFile> file = folder.open(beside, true, false);
  file->write(0, std::as_bytes(std::span(text)).data(), text.size());
  file->flush();
  folder.rename(beside, name);
  folder.flush();
}

class Life {
 public:
  Life(std::uint64_t seed, Mutation mutation) : storage_(seed, mutation) {}

  History live() {
    return history_of(storage_, [this] {
      storage_.run_well([](Files &files) {
        const auto folder = files.own_folder(folder_name, true);
        folder->create("tiles", 2 * SlotFile::stride_bytes(array_bytes));
        folder->open("tiles", true, true)->flush();
        folder->flush();
      });
      for (std::uint64_t round = 3 + storage_.random.below(6); round-- > 0;) {
        const auto program = [this](Files &files) { work(files); };
        const bool two = storage_.random.below(4) == 0;
        storage_.run(two ? std::vector<std::function<void(Files &)>>{program, program}
                         : std::vector<std::function<void(Files &)>>{program},
                     weather_of(storage_.random));
      }
      storage_.run_well([this](Files &files) { open(files); });
    });
  }

 private:
  struct Open {
    std::unique_ptr<Folder> folder;
    std::unique_ptr<FolderLock> held;
    std::unique_ptr<SlotFile> slots;
    std::uint64_t generation = 0;
    Bytes content = Bytes(array_bytes);
  };

  static std::string name_of(std::uint64_t generation) { return "commit." + std::to_string(generation % 2); }

  // Opens the array with its last commit. Returns nothing if another process holds the lock of the array.
  std::optional<Open> open(Files &files) {
    Open opened;
    opened.folder = files.own_folder(folder_name, false);
    opened.held = opened.folder->hold("lock", 0);
    if (!opened.held) return {};
    // the name of the last commit must be durable before a process overwrites the slots of the previous commit
    opened.folder->flush();
    opened.slots = std::make_unique<SlotFile>(std::string(folder_name) + "/tiles", array_bytes, tile_bytes, true, 1,
                                              SlotFile::Way::best, files);
    std::vector<Record> records;
    const auto names = opened.folder->names();
    for (const std::uint64_t which : {0, 1}) {
      if (std::ranges::find(names, name_of(which)) == names.end()) continue;
      try {
        records.push_back(record_of(read_text(*opened.folder, name_of(which)), opened.slots->tiles()));
      } catch (const CorruptionError &) {
        throw Wrong{"a record is damaged"};
      }
    }
    std::ranges::sort(records, std::greater{}, &Record::generation);
    for (const Record &record : records) {
      const std::vector<DamagedTile> damaged = opened.slots->load(record.tiles, opened.content.data());
      const bool is_unreadable = std::ranges::any_of(damaged, [](const DamagedTile &tile) { return tile.error != 0; });
      if (is_unreadable) throw StorageError("read", "tiles", 0, 0, EIO);  // the next read may succeed
      if (!damaged.empty()) continue;
      check(record, opened.content);
      opened.generation = record.generation;
      return opened;
    }
    if (announced_ > 0) throw Wrong{"no commit is whole, generation " + std::to_string(announced_) + " was announced"};
    return opened;  // no commit was announced, so the array begins without one
  }

  void check(const Record &found, const Bytes &content) {
    if (found.generation < announced_)
      throw Wrong{"generation " + std::to_string(found.generation) + " is there, " + std::to_string(announced_) +
                  " was announced"};
    if (found.generation == announced_ && found.attempt != announced_attempt_)
      throw Wrong{"another generation " + std::to_string(announced_) + " is there than was announced"};
    if (content != attempts_.at(found.attempt)) throw Wrong{"a commit is a mixture"};
  }

  void work(Files &files) {
    try {
      std::optional<Open> found = open(files);
      if (found) commit_some(*found);
    } catch (const StorageError &) {  // the program ends
      return;
    }
  }

  void commit_some(Open &found) {
    for (std::uint64_t commit = 1 + storage_.random.below(6); commit-- > 0;) {
      for (std::size_t tile = 0; tile * tile_bytes < array_bytes; ++tile)
        if (storage_.random.below(2) == 0)
          for (std::size_t i = tile * tile_bytes; i < std::min(array_bytes, (tile + 1) * tile_bytes); i += 97)
            found.content[i] = static_cast<std::byte>(storage_.random.below(256));
      const std::uint64_t attempt = ++attempt_;
      attempts_[attempt] = found.content;
      try {
        found.slots->write_changed(found.content.data());
        const Record record{found.generation + 1, attempt, found.slots->written()};
        write_durably(*found.folder, name_of(record.generation), text_of(record));
        found.slots->accept();
        found.generation = announced_ = record.generation;
        announced_attempt_ = attempt;
      } catch (const StorageError &) {
        if (storage_.random.below(2) == 0) throw;
      }
    }
  }

  Storage storage_;
  std::map<std::uint64_t, Bytes> attempts_;
  std::uint64_t attempt_ = 0, announced_ = 0, announced_attempt_ = 0;
};

}  // namespace

History live_of_slots(std::uint64_t seed, Mutation mutation) { return Life(seed, mutation).live(); }

}  // namespace outcrop::model
