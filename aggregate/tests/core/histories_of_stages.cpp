#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/base/error.hpp"
#include "protocol_histories.hpp"

namespace outcrop::model {
namespace {

using aggregate::Recovery;
using aggregate::Stage;
using aggregate::StageName;

constexpr std::size_t target_bytes = 12'000, half = target_bytes / 2, steps_most = 63;
constexpr const char *stage_name = "stage", *target_name = "home/target";

// Returns the byte that a step writes at a place. step_of() returns the step that has written a byte.
std::byte value(std::size_t step, std::size_t place) {
  return static_cast<std::byte>(step << 2 | ((place * 7 + place / 512) & 3));
}
std::size_t step_of(std::byte value) { return static_cast<std::size_t>(value) >> 2; }

struct Step {
  std::vector<std::pair<std::size_t, std::size_t>> runs;  // begin, length
  bool is_sealed = false;
};

class Life {
 public:
  Life(std::uint64_t seed, Mutation mutation) : storage_(seed, mutation) {}

  History live() {
    return history_of(storage_, [this] {
      storage_.run_well([](Files &files) {
        const auto folder = files.folder("home");
        folder->create("target", target_bytes);
        folder->open("target", true, true)->flush();
        folder->flush();
      });
      for (std::uint64_t round = 2 + storage_.random.below(5); round-- > 0;) {
        const auto program = [this](Files &files) { work(files); };
        const bool two = storage_.random.below(3) == 0;
        is_alone_ = !two;
        storage_.run(two ? std::vector<std::function<void(Files &)>>{program, program}
                         : std::vector<std::function<void(Files &)>>{program},
                     weather_of(storage_.random));
      }
      end_well();
    });
  }

 private:
  // Ends the history. Recovers the stage, and checks that the target has all sealed steps. Then simulates another power
  // cut, and repeats the check.
  void end_well() {
    storage_.run_well([this](Files &files) {
      const Recovery found = aggregate::recover_stage(stage_name, target_name, 0, files);
      if (!found.failed.empty()) throw Wrong{"what is staged cannot be drained: " + found.failed.front()};
      if (!found.busy.empty()) throw Wrong{"a dead writer counts as living"};
    });
    check_target();
    storage_.run({[](Files &files) { files.folder("nowhere"); }}, {.power_cuts = true, .kill_within = 1});
    storage_.run_well([](Files &files) {
      const Recovery found = aggregate::recover_stage(stage_name, target_name, 0, files);
      if (!found.failed.empty()) throw Wrong{"after another power cut: " + found.failed.front()};
    });
    check_target();
  }

  // Checks the bytes of the target. The target must have the bytes of all sealed steps, in the order of the steps. The
  // target may also have complete steps that were not sealed.
  void check_target() {
    const Bytes found = storage_.content("home", "target");
    std::set<std::size_t> shown;
    for (const std::byte each : found) shown.insert(step_of(each));
    Bytes expected(target_bytes);
    for (std::size_t number = 0; number < steps_.size(); ++number)
      if (steps_[number].is_sealed || shown.contains(number + 1))
        for (const auto &[begin, length] : steps_[number].runs)
          for (std::size_t i = begin; i < begin + length; ++i) expected[i] = value(number + 1, i);
    for (std::size_t i = 0; i < target_bytes; ++i)
      if (found[i] != expected[i])
        throw Wrong{"byte " + std::to_string(i) + " is of step " + std::to_string(step_of(found[i])) + ", not of " +
                    std::to_string(step_of(expected[i]))};
  }

  // Returns the steps whose writers were killed before they wrote a list. Recovery must report these steps.
  std::set<std::string> begun() const {
    std::set<std::string> names, whole;
    for (const std::string &each : storage_.names_in(stage_name))
      if (const auto name = StageName::of(each)) {
        const std::string step = StageName{name->step, name->writer, aggregate::StageFile::data}.text();
        (name->kind == aggregate::StageFile::data ? names : whole).insert(step);
      }
    for (const std::string &each : whole) names.erase(each);
    return names;
  }

  void work(Files &files) {
    try {
      const std::set<std::string> expected = begun();
      const Recovery found = aggregate::recover_stage(stage_name, target_name, 1, files);
      std::set<std::string> lost;
      for (const StageName &each : found.lost) lost.insert(each.text());
      if (is_alone_ && found.failed.empty() && !std::ranges::includes(lost, expected))
        throw Wrong{"a lost step is not named"};
      if (!found.busy.empty()) return;  // another process writes
      if (!found.failed.empty()) {
        if (!storage_.had_errors()) throw Wrong{"what is staged cannot be drained: " + found.failed.front()};
        return;
      }
      write_steps(files);
    } catch (const StorageError &) {  // the program ends
    } catch (const InputError &) {    // the program also ends if another process is writing
    }
  }

  void write_steps(Files &files) {
    std::array<std::optional<Stage>, 2> stages;
    const std::uint64_t room = storage_.random.below(2) == 0 ? 0 : 90'000;
    for (std::uint32_t writer = 0; writer < 2; ++writer)
      stages[writer].emplace(aggregate::StageSpec{stage_name, target_name, writer, room, false, files});
    for (std::uint64_t step = 0, count = storage_.random.below(7); step < count && steps_.size() < steps_most; ++step)
      for (std::uint32_t writer = 0; writer < 2 && steps_.size() < steps_most; ++writer) {
        write_step(*stages[writer], step, writer);
        if (storage_.random.below(2) == 0) stages[writer]->drain_next();
      }
    if (storage_.random.below(2) == 0)
      for (auto &stage : stages) stage->finish();
  }

  void write_step(Stage &stage, std::uint64_t number, std::uint32_t writer) {
    Step made;
    std::uint64_t bytes = 0;
    for (std::size_t at = writer * half + storage_.random.below(2000), end = (writer + 1) * half; at < end;) {
      const std::size_t length = std::min<std::size_t>(end - at, 1 + storage_.random.below(5000));
      made.runs.emplace_back(at, length);
      bytes += length;
      at += length + storage_.random.below(3) * 700;
    }
    steps_.push_back(made);
    const std::size_t index = steps_.size() - 1;
    bool has_begun = false;
    try {
      stage.begin(number, bytes, made.runs.size());
      has_begun = true;
      for (const auto &[begin, length] : made.runs) {
        Bytes content(length);
        for (std::size_t i = 0; i < length; ++i) content[i] = value(index + 1, begin + i);
        stage.append(begin, content);
      }
      stage.seal();
      steps_[index].is_sealed = true;
    } catch (const StorageError &) {
      if (has_begun) stage.drop();
      if (storage_.random.below(2) == 0) throw;
    }
    if (steps_[index].is_sealed && storage_.random.below(3) == 0) read_back(stage, index);
  }

  void read_back(Stage &stage, std::size_t index) {
    const auto [begin, length] = steps_[index].runs.front();
    Bytes content(length);
    if (!stage.read(begin, content)) throw Wrong{"a step that was just sealed is not in the stage"};
    for (std::size_t i = 0; i < length; ++i)
      if (content[i] != value(index + 1, begin + i)) throw Wrong{"the stage gives other bytes than were sealed"};
  }

  Storage storage_;
  std::vector<Step> steps_;
  bool is_alone_ = false;
};

}  // namespace

History live_of_stages(std::uint64_t seed, Mutation mutation) { return Life(seed, mutation).live(); }

}  // namespace outcrop::model
