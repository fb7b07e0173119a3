#include <algorithm>

#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"
#include "protocol_histories.hpp"

namespace outcrop::model {
namespace {

using aggregate::NodeIndex;

constexpr std::size_t step_bytes = 3000, files_count = 2;

std::byte value(std::uint64_t turn, std::size_t place) { return static_cast<std::byte>(turn * 29 + place * 5 + 1); }

// A random history of a program. The program writes node files. In each turn, the program first writes the node files
// at the next base, and then writes their index. In some turns, the program also merges the node files into one file.
class Life {
 public:
  Life(std::uint64_t seed, Mutation mutation) : storage_(seed, mutation) {}

  History live() {
    return history_of(storage_, [this] {
      storage_.run_well([](Files &files) {
        const auto folder = files.folder("home");
        for (std::size_t i = 0; i < files_count; ++i) folder->create(name_of(i), 0);
        folder->flush();
      });
      for (std::uint64_t round = 3 + storage_.random.below(5); round-- > 0;)
        storage_.run({[this](Files &files) { work(files); }}, weather_of(storage_.random));
      storage_.run_well([this](Files &files) { check(files); });
    });
  }

 private:
  static std::string name_of(std::size_t file) { return "out.node-" + std::to_string(file); }

  void work(Files &files) {
    try {
      check(files);
      const auto folder = files.folder("home");
      for (std::uint64_t count = 1 + storage_.random.below(4); count-- > 0;) {
        write_turn(*folder);
        if (storage_.random.below(2) > 0) continue;
        aggregate::merge("home/out.index", "home/out", files);
        merged_ = announced_;
      }
    } catch (const StorageError &) {  // the program ends
    }
  }

  void write_turn(Folder &folder) {
    NodeIndex index = last_;
    index.files.clear();
    for (std::size_t i = 0; i < files_count; ++i) index.files.push_back(name_of(i));
    index.ranges = {{{0, step_bytes / 2}, 0, 0}, {{step_bytes / 2, step_bytes}, 1, 0}};
    const std::uint64_t turn = announced_ + 1, base = announced_ * step_bytes;
    index.add_step(base);
    for (std::size_t i = 0; i < files_count; ++i) {
      const auto file = folder.open(name_of(i), true, true);
      const std::size_t begin = i * step_bytes / 2;
      Bytes bytes(step_bytes / 2);
      for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = value(turn, begin + at);
      file->write(base + begin, bytes.data(), bytes.size());
      file->flush();
    }
    aggregate::write_durably(folder, "out.index", to_text(index));
    last_ = index;
    announced_ = turn;
  }

  // Checks the index. If the program has announced an index, there must be an index that is at least as new as the last
  // announced index. The node files must contain all bytes that the index lists. Then checks the merged file. If the
  // program has announced a merged file, there must be a merged file that is at least as new as the last announced one.
  // Its bytes must be right.
  void check(Files &files) {
    const auto folder = files.folder("home");
    const std::vector<std::string> names = folder->names();
    const auto has = [&](const std::string &name) { return std::ranges::find(names, name) != names.end(); };
    if (has("out.index")) {
      try {
        last_ = aggregate::node_index_of(aggregate::read_text(*folder, "out.index"), "out.index");
      } catch (const CorruptionError &) {
        throw Wrong{"an index is damaged"};
      }
      if (last_.bases.size() < announced_) throw Wrong{"an older index is there than was announced"};
      folder->flush();
      announced_ = last_.bases.size();
      check_bytes(*folder);
    } else if (announced_ > 0) {
      throw Wrong{"the index is gone"};
    }
    if (has("out")) check_whole(*folder);
    if (!has("out") && merged_ > 0) throw Wrong{"the merged file is gone"};
  }

  void check_bytes(Folder &folder) {
    for (std::size_t i = 0; i < files_count; ++i) {
      const auto file = folder.open(name_of(i), false, true);
      Bytes bytes(step_bytes / 2);
      for (std::uint64_t turn = 1; turn <= announced_; ++turn) {
        const std::size_t begin = i * step_bytes / 2;
        if (file->size() < (turn - 1) * step_bytes + begin + bytes.size()) throw Wrong{"a node's file is too short"};
        file->read((turn - 1) * step_bytes + begin, bytes.data(), bytes.size());
        for (std::size_t at = 0; at < bytes.size(); ++at)
          if (bytes[at] != value(turn, begin + at)) throw Wrong{"bytes of an announced step are not in a node's file"};
      }
    }
  }

  void check_whole(Folder &folder) {
    const auto file = folder.open("out", false, true);
    Bytes bytes(file->size());
    if (bytes.size() % step_bytes != 0 || bytes.size() < merged_ * step_bytes)
      throw Wrong{"the merged file is not one that was announced, nor a later one"};
    file->read(0, bytes.data(), bytes.size());
    for (std::size_t at = 0; at < bytes.size(); ++at)
      if (bytes[at] != value(at / step_bytes + 1, at % step_bytes)) throw Wrong{"the merged file is a mixture"};
  }

  Storage storage_;
  NodeIndex last_;
  std::uint64_t announced_ = 0, merged_ = 0;
};

}  // namespace

History live_of_listings(std::uint64_t seed, Mutation mutation) { return Life(seed, mutation).live(); }

}  // namespace outcrop::model
