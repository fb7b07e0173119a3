#include "outcrop/aggregate/file.hpp"

#include <cassert>
#include <utility>

#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

namespace {

constexpr std::uint64_t max_offset = std::uint64_t{1} << 62;

void check(const Opened &opened, bool write, std::uint64_t base) {
  if (opened.closed) throw InputError(opened.path + " has been closed");
  if (write && !opened.writable) throw InputError(opened.path + " was opened for reading only");
  if (write && opened.engine->reading_only) throw InputError("the plan was made for reading only");
  if (base > max_offset - opened.engine->summary.hull.end)
    throw InputError("base " + std::to_string(base) + " and extents up to " +
                     std::to_string(opened.engine->summary.hull.end) + " go beyond 2^62 bytes");
}

// Makes the task of an operation. A rank with an error gets a task without data, so that the other ranks do not wait
// for this rank. The task tells all ranks the error.
template <typename Memory>
Task task_of(const Opened &opened, Task::Kind kind, std::span<const Memory> memory, std::uint64_t base,
             std::string wrong) {
  // A staged step needs no flush, because its bytes are already durable in the stage.
  Task task{kind, base, opened.options.durable && !opened.is_staged(), {}, {}, opened.steps, opened.sinks};
  const std::span<const std::uint64_t> needed = opened.engine->pattern.memory_bytes();
  if (wrong.empty() && memory.size() != needed.size())
    wrong = std::to_string(needed.size()) + " variables were declared, " + std::to_string(memory.size()) + " are given";
  for (std::size_t i = 0; i < needed.size() && wrong.empty(); ++i)
    if (memory[i].size() < needed[i])
      wrong = "variable " + std::to_string(i) + " needs " + std::to_string(needed[i]) + " bytes of memory, it has " +
              std::to_string(memory[i].size());
  if (!wrong.empty()) {
    task.failure = Failure::of_input(opened.engine->link.rank(), wrong);
    return task;
  }
  // A write only reads the memory, so the const_cast is safe.
  for (const Memory &each : memory) task.memory.push_back(const_cast<std::byte *>(each.data()));
  return task;
}

template <typename Memory>
std::shared_ptr<Step> begin(Opened &opened, Task::Kind kind, std::span<const Memory> memory, std::uint64_t base,
                            const std::string &problem, bool beside) {
  const bool write = kind == Task::write;
  check(opened, write, base);
  meet_staged(opened, write, base);
  Task task = task_of(opened, kind, memory, base, problem);
  if (write) ++opened.steps;
  if (write && opened.options.node_files) opened.index.add_step(base);
  const auto step = std::make_shared<Step>(*opened.engine, std::move(task));
  opened.engine->begin(step, beside);
  return step;
}

}  // namespace

// --- operations ------------------------------------------------------------------------------------------------------

Operation::Operation(std::shared_ptr<Engine> engine, std::shared_ptr<Step> step)
    : engine_(std::move(engine)), step_(std::move(step)) {}

Operation &Operation::operator=(Operation &&other) noexcept {
  if (this == &other) return *this;
  abandon();
  engine_ = std::move(other.engine_);
  step_ = std::move(other.step_);
  return *this;
}

void Operation::abandon() noexcept {
  try {
    if (step_) step_->settle();
  } catch (const std::exception &) {  // the destructor cannot report the error
  }
  step_.reset();
  engine_.reset();
}

bool Operation::test() {
  assert(step_);
  return step_->test();
}

void Operation::wait() {
  assert(step_);
  step_->wait();
}

Timing Operation::timing() const {
  assert(step_);
  return step_->timing();
}

// --- files -----------------------------------------------------------------------------------------------------------

File::File(std::unique_ptr<Opened> opened) : opened_(std::move(opened)) {}
File::File(File &&) noexcept = default;

File &File::operator=(File &&other) noexcept {
  File closing(std::move(*this));
  opened_ = std::move(other.opened_);
  return *this;
}

File::~File() {
  try {
    if (!opened_) return;
    opened_->engine->settle_all();
    opened_->sinks.clear();
  } catch (const std::exception &) {  // the destructor cannot report the error
  }
}

File File::create(const Plan &plan, const std::string &path, const FileOptions &options) {
  return File(open_file(plan.engine(), path, true, true, options));
}

File File::open(const Plan &plan, const std::string &path, bool writable, const FileOptions &options) {
  return File(open_file(plan.engine(), path, writable, false, options));
}

Operation File::begin_write(std::span<const std::span<const std::byte>> memory, std::uint64_t base,
                            const std::string &problem) {
  return {opened_->engine, begin(*opened_, Task::write, memory, base, problem, true)};
}

Operation File::begin_read(std::span<const std::span<std::byte>> memory, std::uint64_t base,
                           const std::string &problem) {
  return {opened_->engine, begin(*opened_, Task::read, memory, base, problem, true)};
}

Timing File::write(std::span<const std::span<const std::byte>> memory, std::uint64_t base, const std::string &problem) {
  const auto step = begin(*opened_, Task::write, memory, base, problem, false);
  step->wait();
  return step->timing();
}

Timing File::read(std::span<const std::span<std::byte>> memory, std::uint64_t base, const std::string &problem) {
  const auto step = begin(*opened_, Task::read, memory, base, problem, false);
  step->wait();
  return step->timing();
}

void File::flush() {
  if (opened_->closed) throw InputError(opened_->path + " has been closed");
  flush_all(*opened_);
}

void File::close() {
  if (std::exchange(opened_->closed, true)) return;
  const auto end = [this] {
    opened_->engine->settle_all();
    opened_->sinks.clear();
  };
  try {
    if (opened_->writable && (opened_->is_staged() || opened_->options.node_files)) flush_all(*opened_);
  } catch (...) {
    end();
    throw;
  }
  end();
}

const std::vector<std::string> &File::notes() const { return opened_->notes; }
const std::string &File::path() const { return opened_->path; }

}  // namespace outcrop::aggregate
