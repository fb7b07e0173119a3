#include "outcrop/aggregate/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "outcrop/aggregate/access.hpp"
#include "outcrop/aggregate/step.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

struct Opened {
  std::shared_ptr<Engine> engine;
  std::string path;
  bool writable = false, closed = false;
  FileOptions options;
  std::vector<std::shared_ptr<Access>> access;  // for each domain of this rank
};

namespace {

constexpr std::uint64_t offset_most = std::uint64_t{1} << 62;

// All ranks learn whether any of them failed.
void agree(const std::shared_ptr<Engine> &engine, const std::string &path, const Failure &failure) {
  Task task;
  task.failure = failure;
  task.path = path;
  const auto step = std::make_shared<Step>(*engine, std::move(task));
  engine->begin(step, false);
  step->wait();
}

template <typename Do>
Failure attempt(Failure::Doing doing, int rank, Do &&act) {
  try {
    act();
  } catch (const StorageError &error) {
    return Failure::of(doing, rank, error);
  }
  return {};
}

void create_empty(const std::string &path, std::uint64_t size_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) throw StorageError("create", path, 0, 0, errno);
  if (size_bytes > 0 && ftruncate(file.get(), static_cast<off_t>(size_bytes)) != 0)
    throw StorageError("set the size of", path, 0, size_bytes, errno);
}

std::unique_ptr<Opened> open_all(const Plan &plan, const std::string &path, bool writable, const FileOptions &options) {
  auto opened = std::make_unique<Opened>(Opened{plan.engine(), path, writable, false, options, {}});
  Engine &engine = *opened->engine;
  const Failure failure = attempt(Failure::open, engine.link.rank(), [&] {
    for (std::size_t i = 0; i < engine.aggregators.size(); ++i)
      opened->access.push_back(std::make_shared<Access>(path, writable, options.path, options.durable, options.faults));
  });
  agree(opened->engine, path, failure);
  return opened;
}

void check(const Opened &opened, bool write, std::uint64_t base) {
  if (opened.closed) throw InputError(opened.path + " has been closed");
  if (write && !opened.writable) throw InputError(opened.path + " was opened for reading only");
  if (write && opened.engine->reading_only) throw InputError("the plan was made for reading only");
  if (base > offset_most - opened.engine->summary.hull.end)
    throw InputError("base " + std::to_string(base) + " and extents up to " +
                     std::to_string(opened.engine->summary.hull.end) + " go beyond 2^62 bytes");
}

// What one rank gets wrong must not make the others wait for it: it takes part, without data, and all are told.
template <typename Memory>
Task task_of(const Opened &opened, Task::Kind kind, std::span<const Memory> memory, std::uint64_t base) {
  Task task{kind, base, opened.options.durable, {}, {}, opened.access, opened.path};
  const std::span<const std::uint64_t> needed = opened.engine->pattern.memory_bytes();
  std::string wrong;
  if (memory.size() != needed.size())
    wrong = std::to_string(needed.size()) + " variables were declared, " + std::to_string(memory.size()) + " are given";
  for (std::size_t i = 0; i < needed.size() && wrong.empty(); ++i)
    if (memory[i].size() < needed[i])
      wrong = "variable " + std::to_string(i) + " needs " + std::to_string(needed[i]) + " bytes of memory, it has " +
              std::to_string(memory[i].size());
  if (!wrong.empty()) {
    task.failure = Failure::of_input(opened.engine->link.rank(), wrong);
    return task;
  }
  for (const Memory &each : memory) task.memory.push_back(const_cast<std::byte *>(each.data()));  // writing only reads
  return task;
}

std::shared_ptr<Step> begin(const Opened &opened, Task task, bool beside) {
  const auto step = std::make_shared<Step>(*opened.engine, std::move(task));
  opened.engine->begin(step, beside);
  return step;
}

}  // namespace

File::File(std::unique_ptr<Opened> opened) : opened_(std::move(opened)) {}
File::File(File &&) noexcept = default;

File &File::operator=(File &&other) noexcept {
  File closing(std::move(*this));
  opened_ = std::move(other.opened_);
  return *this;
}

File::~File() {
  try {
    if (opened_) close();
  } catch (const std::exception &) {  // nobody is there to be told
  }
}

File File::create(const Plan &plan, const std::string &path, const FileOptions &options) {
  const int rank = plan.rank();
  Failure failure;
  if (rank == 0) failure = attempt(Failure::create, rank, [&] { create_empty(path, options.size_bytes); });
  agree(plan.engine(), path, failure);
  return File(open_all(plan, path, true, options));
}

File File::open(const Plan &plan, const std::string &path, bool writable, const FileOptions &options) {
  return File(open_all(plan, path, writable, options));
}

Operation File::begin_write(std::span<const std::span<const std::byte>> memory, std::uint64_t base) {
  check(*opened_, true, base);
  return {opened_->engine, begin(*opened_, task_of(*opened_, Task::write, memory, base), true)};
}

Operation File::begin_read(std::span<const std::span<std::byte>> memory, std::uint64_t base) {
  check(*opened_, false, base);
  return {opened_->engine, begin(*opened_, task_of(*opened_, Task::read, memory, base), true)};
}

void File::write(std::span<const std::span<const std::byte>> memory, std::uint64_t base) {
  check(*opened_, true, base);
  begin(*opened_, task_of(*opened_, Task::write, memory, base), false)->wait();
}

void File::read(std::span<const std::span<std::byte>> memory, std::uint64_t base) {
  check(*opened_, false, base);
  begin(*opened_, task_of(*opened_, Task::read, memory, base), false)->wait();
}

void File::flush() {
  if (opened_->closed) throw InputError(opened_->path + " has been closed");
  Engine &engine = *opened_->engine;
  engine.settle_all();
  Failure failure;
  if (engine.flushes) failure = attempt(Failure::flush, engine.link.rank(), [&] { opened_->access.front()->flush(); });
  agree(opened_->engine, opened_->path, failure);
}

void File::close() {
  opened_->engine->settle_all();
  opened_->access.clear();
  opened_->closed = true;
}

const std::string &File::path() const { return opened_->path; }

}  // namespace outcrop::aggregate
