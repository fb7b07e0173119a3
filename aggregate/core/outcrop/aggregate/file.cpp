// All ranks open a file together:
//
//     agree on the mode ─► settle stages of earlier programs ─► rank 0 creates the file ─► each aggregator opens its sink
//                          (one rank of each node)              (node files: one rank of each node)
//
// After each phase of opening, all ranks check that no rank has failed. The phases and checks are the same for all
// kinds of sinks (sink.hpp).
#include "outcrop/aggregate/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <set>
#include <type_traits>
#include <utility>

#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

// --- opening ---------------------------------------------------------------------------------------------------------

/// An open file at one rank.
struct Opened {
  std::shared_ptr<Engine> engine;
  std::string path;
  FileOptions options;
  bool writable = false, closed = false;
  bool ample_room = false;                     // the same as OpenMode::ample_room
  FileIdentity identity{};                     // the same as OpenMode::identity
  std::vector<std::shared_ptr<Sink>> sinks{};  // the sink of each domain of this rank
  std::vector<std::string> notes{};
  std::uint64_t steps = 0;           // the number of writes that have begun
  std::set<std::uint64_t> staged{};  // the bases of steps that may still be in a stage
  NodeIndex index{};                 // used only with node files

  ~Opened() {
    try {
      end();
    } catch (const std::exception &) {  // the destructor cannot report the error
    }
  }
  bool is_staged() const { return !options.stage_folder.empty(); }
  void end() {
    engine->settle_all();
    sinks.clear();
  }
};

namespace {

// All ranks must call this function. Runs act() on each rank whose argument `acts` is true. If act() throws an error on
// one of these ranks, all ranks throw this error.
template <typename Act>
void on_ranks(Engine &engine, Failure::Kind kind, bool acts, Act &&act) {
  Task task;
  if (acts) task.failure = attempt(kind, engine.link.rank(), act);
  const auto step = std::make_shared<Step>(engine, std::move(task));
  engine.begin(step, false);
  step->wait();
}

void check_options(const Opened &opened, bool create) {
  const FileOptions &options = opened.options;
  if (options.node_files && opened.is_staged())
    throw InputError("node files are not staged: give either node_files or stage_folder");
  if (options.stage_bytes > 0 && !opened.is_staged())
    throw InputError("stage_bytes " + std::to_string(options.stage_bytes) + " is given without stage_folder");
  if (options.node_files && opened.writable && !create)
    throw InputError("node files are opened for reading only, or created anew");
  if ((options.node_files || opened.is_staged()) && opened.path.find('\n') != std::string::npos)
    throw InputError("a file that is staged or has node files has a newline in its name");
}

std::uint64_t room_of_writer(const Opened &opened) {
  const std::uint64_t bytes = opened.options.stage_bytes;
  return bytes == 0 ? 0 : std::max<std::uint64_t>(1, bytes / std::max(1U, opened.engine->writers));
}

// All ranks must call this function. Returns the lines of all ranks, sorted by rank.
std::vector<std::string> gather_lines(const Link &link, const std::vector<std::string> &mine) {
  std::string text;
  for (const std::string &line : mine) text += line + '\n';
  const std::vector<char> all = link.gather_lists(text);
  std::vector<std::string> lines;
  std::string_view rest(all.data(), all.size());
  while (!rest.empty()) take_rest(rest, lines.emplace_back());
  return lines;
}

void settle_stages(Opened &opened, bool create) {
  Engine &engine = *opened.engine;
  on_ranks(engine, Failure::open, true, [&] {
    check_options(opened, create);
    for (const std::unique_ptr<Aggregator> &each : engine.aggregators)
      if (opened.is_staged()) check_room(room_of_writer(opened), each->work().totals());
    if (!engine.node->leads()) return;
    std::set<std::string> folders(opened.options.settle_folders.begin(), opened.options.settle_folders.end());
    if (opened.is_staged()) folders.insert(opened.options.stage_folder);
    const double limit = engine.link.seconds_most();
    for (const std::string &folder : folders) {
      const std::vector<std::string> found = settle_stage(stage_of_file(folder, opened.path), opened.path, create,
                                                          limit > 0 ? limit : wait_for_ever, opened.identity.data());
      opened.notes.insert(opened.notes.end(), found.begin(), found.end());
    }
  });
  opened.notes = gather_lines(engine.link, opened.notes);
}

// Creates the file at the path that the user has given. If steps must be durable, the function also makes the name of
// the file durable.
void create_empty(const std::string &path, std::uint64_t size_bytes, bool durable, const FileIdentity &identity) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
  if (file.get() < 0) throw StorageError("create", path, 0, 0, errno);
  if (size_bytes > 0 && ftruncate(file.get(), static_cast<off_t>(size_bytes)) != 0)
    throw StorageError("set the size of", path, 0, size_bytes, errno);
  store_identity(file.get(), identity);
  if (!durable) return;
  if (fsync(file.get()) != 0 && errno != EINVAL) throw StorageError("flush", path, 0, 0, errno);
  Files::system().folder(folder_of(path))->flush();
}

// Creates a file with a name that this library has chosen. If a file with this name exists, the function removes it
// first.
void create_anew(const std::string &path) {
  const std::unique_ptr<Folder> folder = Files::system().folder(folder_of(path));
  folder->remove(name_in_folder(path));
  folder->create(name_in_folder(path), 0);
}

// Removes an index durably. The caller must remove the index before it empties the node files of the index.
void remove_index(const std::string &path) {
  const std::unique_ptr<Folder> folder = Files::system().folder(folder_of(path));
  if (folder->remove(name_in_folder(index_of(path)))) folder->flush();
}

void create_files(Opened &opened) {
  Engine &engine = *opened.engine;
  const FileOptions &options = opened.options;
  const int rank = engine.link.rank();
  on_ranks(engine, Failure::create, rank == 0, [&] {
    if (options.node_files)
      remove_index(opened.path);
    else
      create_empty(opened.path, options.size_bytes, options.durable || opened.is_staged(), opened.identity);
  });
  if (options.node_files)
    on_ranks(engine, Failure::create, engine.node->leads() && engine.writers > 0,
             [&] { create_anew(node_file_of(opened.path, rank)); });
}

// All ranks must call this function. Returns an index without steps. For each range of a step, the index names the node
// file in which the range will be.
NodeIndex make_index(const Opened &opened) {
  Engine &engine = *opened.engine;
  std::set<int> nodes;  // the nodes that have an aggregator
  for (const int rank : engine.summary.aggregators) nodes.insert(engine.summary.nodes[static_cast<std::size_t>(rank)]);
  const auto own = static_cast<std::uint32_t>(std::distance(nodes.begin(), nodes.find(engine.node->ranks().front())));
  NodeIndex index;
  index.size_bytes = opened.options.size_bytes;
  for (const int node : nodes)
    index.files.push_back(std::filesystem::path(node_file_of(opened.path, node)).filename().string());
  std::vector<NodeRange> mine;
  for (const std::unique_ptr<Aggregator> &each : engine.aggregators)
    for (std::size_t round = 0; round < each->work().rounds().count(); ++round)
      for (const BufferedRange &run : each->work().runs(round)) mine.push_back({run.file, own});
  index.ranges = joined(engine.link.gather_lists(joined(std::move(mine))));
  return index;
}

NodeIndex read_index(const std::string &path) {
  const std::string index = index_of(path);
  return node_index_of(read_text(*Files::system().folder(folder_of(index)), name_in_folder(index)), index);
}

// Returns the number of bytes that all aggregators of this node together transfer in a step.
std::uint64_t bytes_of_node(const Engine &engine) {
  const PlanSummary &summary = engine.summary;
  std::uint64_t bytes = 0;
  for (std::size_t domain = 0; domain < summary.aggregators.size(); ++domain)
    if (engine.node->local_of(summary.aggregators[domain]) >= 0) bytes += summary.domain_bytes[domain];
  return bytes;
}

std::shared_ptr<Sink> make_sink(const Opened &opened, Aggregator &aggregator) {
  const FileOptions &options = opened.options;
  const auto access = [&](const std::string &path, bool follows_links) {
    const Traffic traffic{.ample_room = opened.ample_room, .own = opened.engine->summary.own};
    return std::make_unique<SharedFile>(path, opened.writable, options.cache_mode, options.durable, traffic,
                                        options.faults, follows_links);
  };
  if (options.node_files) {
    const int node = opened.engine->node->ranks().front();
    return std::make_shared<NodeFile>(index_of(opened.path),
                                      NodeFiles(Files::system().folder(folder_of(opened.path)), opened.index),
                                      opened.writable ? access(node_file_of(opened.path, node), false) : nullptr);
  }
  if (!opened.is_staged() || !opened.writable) return access(opened.path, true);
  const auto writer = static_cast<std::uint32_t>(aggregator.work().domain());
  const std::string target = std::filesystem::absolute(opened.path).string();
  StageSpec spec{stage_of_file(options.stage_folder, opened.path), target, writer, room_of_writer(opened)};
  spec.identity = opened.identity.data();
  return std::make_shared<StagedFile>(std::move(spec), aggregator.work().totals(), options.cache_mode,
                                      opened.ample_room);
}

std::unique_ptr<Opened> open_file(std::shared_ptr<Engine> of_plan, const std::string &path, bool writable, bool create,
                                  const FileOptions &options) {
  std::unique_ptr<Opened> opened(
      new Opened{.engine = std::move(of_plan), .path = path, .options = options, .writable = writable});
  Engine &engine = *opened->engine;
  engine.settle_all();
  OpenMode mine{opened->is_staged(), options.node_files, has_ample_room(bytes_of_node(engine))};
  if (engine.link.rank() == 0) mine.identity = create ? new_identity() : identity_of(path);
  const OpenMode agreed = agree_on_open_mode(engine.link, mine);
  opened->ample_room = agreed.ample_room;
  opened->identity = agreed.identity;
  settle_stages(*opened, create);
  if (options.node_files && create) {
    opened->index = make_index(*opened);
    check_ranges(opened->index.ranges.size());  // the index is the same on all ranks
  }
  if (create) create_files(*opened);
  on_ranks(engine, Failure::open, true, [&] {
    if (options.node_files && !create) opened->index = read_index(path);
    for (const std::unique_ptr<Aggregator> &each : engine.aggregators)
      opened->sinks.push_back(make_sink(*opened, *each));
  });
  return opened;
}

// --- steps -----------------------------------------------------------------------------------------------------------

// All ranks must call this function. Prepares the stages for a step with the base `base`. The new step can overlap a
// staged step that has another base. In this case, the function drains and empties all stages. Without this drain, a
// late drain of the older step could overwrite bytes of the newer step, because a byte can belong to different
// aggregators in the two steps. Different aggregators drain in any order.
void meet_staged(Opened &opened, bool write, std::uint64_t base) {
  if (!opened.is_staged() || !opened.writable) return;
  Engine &engine = *opened.engine;
  const std::uint64_t reach = engine.summary.hull.bytes();
  const auto first = opened.staged.lower_bound(base < reach ? 0 : base - reach + 1);
  bool meets = false;
  for (auto near = first; near != opened.staged.end() && *near < base + reach; ++near) meets = meets || *near != base;
  if (meets) {
    engine.settle_all();
    on_ranks(engine, Failure::flush, true, [&] {
      for (const std::shared_ptr<Sink> &sink : opened.sinks) sink->forget();
    });
    opened.staged.clear();
  }
  if (write) opened.staged.insert(base);
}

// All ranks must call this function. Makes all bytes that were written to the file durable.
void flush_all(Opened &opened) {
  Engine &engine = *opened.engine;
  engine.settle_all();
  on_ranks(engine, Failure::flush, true, [&] {
    for (std::size_t i = 0; i < opened.sinks.size(); ++i)
      if (!opened.sinks[i]->flushes_for_node() || (i == 0 && engine.flushes)) opened.sinks[i]->flush();
  });
  if (!opened.options.node_files || !opened.writable) return;
  on_ranks(engine, Failure::flush, engine.link.rank() == 0, [&] {
    const std::string index = index_of(opened.path);
    write_durably(*Files::system().folder(folder_of(index)), name_in_folder(index), to_text(opened.index));
  });
}

constexpr std::uint64_t max_offset = std::uint64_t{1} << 62;

void check(const Opened &opened, bool write, std::uint64_t base) {
  if (opened.closed) throw InputError(opened.path + " has been closed");
  if (write && !opened.writable) throw InputError(opened.path + " was opened for reading only");
  if (write && opened.engine->reading_only) throw InputError("the plan was made for reading only");
  if (base > max_offset - opened.engine->summary.hull.end)
    throw InputError("base " + std::to_string(base) + " and extents up to " +
                     std::to_string(opened.engine->summary.hull.end) + " go beyond 2^62 bytes");
}

// Makes the task of an operation. If this rank has an error, the task has no data and only reports the error. Therefore
// no other rank waits forever for this rank.
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
  // A write only reads from the memory, so the const_cast is safe.
  for (const Memory &each : memory) task.memory.push_back(const_cast<std::byte *>(each.data()));
  return task;
}

// Begins an operation. If the type `Byte` is const, the operation is a write. Otherwise the operation is a read.
template <typename Byte>
std::shared_ptr<Step> begin(Opened &opened, std::span<const std::span<Byte>> memory, std::uint64_t base,
                            const std::string &problem, bool beside) {
  constexpr bool write = std::is_const_v<Byte>;
  check(opened, write, base);
  meet_staged(opened, write, base);
  Task task = task_of(opened, write ? Task::write : Task::read, memory, base, problem);
  if (write) ++opened.steps;
  // `opened` exists until the operation has ended (Opened::end()).
  if (write && opened.options.node_files) task.succeeded = [&opened, base] { opened.index.add_step(base); };
  const auto step = std::make_shared<Step>(*opened.engine, std::move(task));
  opened.engine->begin(step, beside);
  return step;
}

}  // namespace

// --- operations ------------------------------------------------------------------------------------------------------

Operation::Operation(std::shared_ptr<Engine> engine, std::shared_ptr<Step> step)
    : begun_(std::make_unique<Begun>(std::move(engine), std::move(step))) {}

Operation::Begun::~Begun() {
  try {
    step->settle();
  } catch (const std::exception &) {  // the destructor cannot report the error
  }
}

bool Operation::test() { return begun_->step->test(); }
void Operation::wait() { begun_->step->wait(); }
Timing Operation::timing() const { return begun_->step->timing(); }

// --- files -----------------------------------------------------------------------------------------------------------

File::File(std::unique_ptr<Opened> opened) : opened_(std::move(opened)) {}
File::File(File &&) noexcept = default;
File &File::operator=(File &&) noexcept = default;
File::~File() = default;

File File::create(const Plan &plan, const std::string &path, const FileOptions &options) {
  return File(open_file(plan.engine(), path, true, true, options));
}

File File::open(const Plan &plan, const std::string &path, bool writable, const FileOptions &options) {
  return File(open_file(plan.engine(), path, writable, false, options));
}

Operation File::begin_write(std::span<const std::span<const std::byte>> memory, std::uint64_t base,
                            const std::string &problem) {
  return {opened_->engine, begin(*opened_, memory, base, problem, true)};
}

Operation File::begin_read(std::span<const std::span<std::byte>> memory, std::uint64_t base,
                           const std::string &problem) {
  return {opened_->engine, begin(*opened_, memory, base, problem, true)};
}

Timing File::write(std::span<const std::span<const std::byte>> memory, std::uint64_t base, const std::string &problem) {
  const auto step = begin(*opened_, memory, base, problem, false);
  step->wait();
  return step->timing();
}

Timing File::read(std::span<const std::span<std::byte>> memory, std::uint64_t base, const std::string &problem) {
  const auto step = begin(*opened_, memory, base, problem, false);
  step->wait();
  return step->timing();
}

void File::flush() {
  if (opened_->closed) throw InputError(opened_->path + " has been closed");
  flush_all(*opened_);
}

void File::close() {
  if (std::exchange(opened_->closed, true)) return;
  try {
    if (opened_->writable && (opened_->is_staged() || opened_->options.node_files)) flush_all(*opened_);
  } catch (...) {
    opened_->end();
    throw;
  }
  opened_->end();
}

const std::vector<std::string> &File::notes() const { return opened_->notes; }
const std::string &File::path() const { return opened_->path; }

}  // namespace outcrop::aggregate
