#include "model_storage.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "outcrop/base/error.hpp"

namespace outcrop::model {

// ---------------------------------------------------------------------------------------------- the view of a process

class ModelFile final : public OpenFile {
 public:
  ModelFile(Storage &storage, Storage::Process &process, Storage::Directory &folder, std::string name,
            Storage::InodeRef inode, std::string path)
      : storage_(storage),
        process_(process),
        folder_(folder),
        name_(std::move(name)),
        inode_(std::move(inode)),
        path_(std::move(path)) {}

  const std::string &path() const override { return path_; }
  std::uint64_t size() const override { return inode_->seen.size(); }

  void read(std::uint64_t offset, std::byte *data, std::size_t length) const override {
    const bool is_last = storage_.begin(process_, "read", path_);
    offset = place(offset);
    if (storage_.fails()) throw StorageError("read", path_, offset, length, EIO);
    if (offset + length > size()) throw StorageError("read", path_, offset, length, 0);
    if (length > 0) std::memcpy(data, inode_->seen.data() + offset, length);
    storage_.end(process_, is_last);
  }

  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override {
    const bool is_last = storage_.begin(process_, "write", path_);
    offset = place(offset);
    const bool fails = storage_.fails();
    if (fails || (is_last && storage_.random.below(2) == 0)) length = storage_.random.below(length + 1);
    storage_.write(*inode_, offset, data, length);
    storage_.end(process_, is_last);
    if (fails) throw StorageError("write", path_, offset, length, storage_.random.below(2) == 0 ? EIO : ENOSPC);
  }

  void flush() override {
    const bool is_last = storage_.begin(process_, "flush", path_);
    const bool fails = storage_.fails();
    Storage::InodeRef flushed = inode_;
    if (storage_.mutation_ == Mutation::no_flush_before_rename && name_.ends_with(".tmp")) flushed = nullptr;
    if (storage_.mutation_ == Mutation::flush_of_the_wrong_file)
      for (const auto &[name, other] : folder_.seen)
        if (name != name_) flushed = other;
    if (storage_.mutation_ == Mutation::record_before_data && !name_.ends_with(".tmp")) {
      storage_.flushed_late_.push_back(inode_);
      flushed = nullptr;
    }
    if (flushed && fails) storage_.flush_badly(*flushed);
    if (flushed && !fails) storage_.flush(*flushed);
    storage_.end(process_, is_last);
    if (fails) throw StorageError("flush", path_, 0, 0, EIO);
  }

 private:
  std::uint64_t place(std::uint64_t offset) const {
    const bool is_one = storage_.mutation_ == Mutation::overwrite_of_current_slot && name_ == "tiles";
    return is_one ? offset % (size() / 2) : offset;
  }

  Storage &storage_;
  Storage::Process &process_;
  Storage::Directory &folder_;
  const std::string name_;
  const Storage::InodeRef inode_;
  const std::string path_;
};

class ModelLock final : public FolderLock {
 public:
  ModelLock(Storage &storage, std::string path, int process)
      : storage_(storage), path_(std::move(path)), process_(process) {}
  ~ModelLock() override {
    if (const auto found = storage_.held_.find(path_); found != storage_.held_.end() && found->second == process_)
      storage_.held_.erase(found);
  }

 private:
  Storage &storage_;
  const std::string path_;
  const int process_;
};

class ModelFolder final : public Folder {
 public:
  ModelFolder(Storage &storage, Storage::Process &process, std::string path)
      : storage_(storage), process_(process), path_(std::move(path)), directory_(storage.directory(path_)) {}

  const std::string &path() const override { return path_; }

  std::unique_ptr<OpenFile> open(const std::string &name, bool, bool) override {
    const bool is_last = storage_.begin(process_, "open", whole(name));
    const auto found = directory_.seen.find(name);
    if (found == directory_.seen.end()) throw StorageError("open", whole(name), 0, 0, ENOENT);
    if (storage_.fails()) throw StorageError("open", whole(name), 0, 0, EIO);
    storage_.end(process_, is_last);
    return std::make_unique<ModelFile>(storage_, process_, directory_, name, found->second, whole(name));
  }

  void create(const std::string &name, std::uint64_t size, Allocation) override {
    const bool is_last = storage_.begin(process_, "create", whole(name));
    if (directory_.seen.contains(name)) throw StorageError("create", whole(name), 0, 0, EEXIST);
    if (storage_.fails()) throw StorageError("create", whole(name), 0, size, ENOSPC);
    const auto inode = std::make_shared<Storage::Inode>();
    inode->seen.resize(size);
    inode->sizes.push_back(size);
    change({"", name, inode});
    storage_.end(process_, is_last);
  }

  void rename(const std::string &from, const std::string &to) override {
    const bool is_last = storage_.begin(process_, "rename", whole(from));
    const auto found = directory_.seen.find(from);
    if (found == directory_.seen.end()) throw StorageError("rename", whole(from), 0, 0, ENOENT);
    const bool fails = storage_.fails();
    if (!fails || storage_.random.below(2) == 0) change({from, to, found->second});
    storage_.end(process_, is_last);
    if (fails) throw StorageError("rename", whole(from), 0, 0, EIO);
  }

  bool remove(const std::string &name) override {
    if (process_.is_dead) return false;
    const bool is_last = storage_.begin(process_, "remove", whole(name));
    const auto found = directory_.seen.find(name);
    if (found == directory_.seen.end()) {
      storage_.end(process_, is_last);
      return false;
    }
    const bool fails = storage_.fails();
    if (!fails || storage_.random.below(2) == 0) change({name, "", found->second});
    storage_.end(process_, is_last);
    if (fails) throw StorageError("remove", whole(name), 0, 0, EIO);
    return true;
  }

  std::vector<std::string> names() override {
    const bool is_last = storage_.begin(process_, "list", path_);
    if (storage_.fails()) throw StorageError("read", path_, 0, 0, EIO);
    std::vector<std::string> found;
    for (const auto &[name, inode] : directory_.seen) found.push_back(name);
    storage_.end(process_, is_last);
    return found;
  }

  void flush() override {
    const bool is_last = storage_.begin(process_, "flush folder", path_);
    const bool fails = storage_.fails();
    std::vector<Storage::Change> &changes = directory_.changes;
    const std::size_t count = fails ? storage_.random.below(changes.size() + 1) : changes.size();
    for (std::size_t i = 0; i < count; ++i) Storage::apply(directory_.durable, changes[i]);
    changes.erase(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(count));
    storage_.end(process_, is_last);
    if (fails) throw StorageError("flush", path_, 0, 0, EIO);
    for (const Storage::InodeRef &late : std::exchange(storage_.flushed_late_, {})) {
      const bool is_over = storage_.begin(process_, "flush late", path_);
      storage_.flush(*late);
      storage_.end(process_, is_over);
    }
  }

  std::unique_ptr<FolderLock> hold(const std::string &name, double seconds) override {
    const std::string path = whole(name);
    for (;;) {
      const bool is_last = storage_.begin(process_, "hold", path);
      if (storage_.fails()) throw StorageError("lock", path, 0, 0, EIO);
      if (!directory_.seen.contains(name)) change({"", name, std::make_shared<Storage::Inode>()});
      const auto found = storage_.held_.find(path);
      const bool is_free = found == storage_.held_.end() || storage_.processes_[index(found->second)]->is_dead ||
                           storage_.processes_[index(found->second)]->has_ended;
      const bool is_ours = !is_free && found->second == process_.number;
      if (is_free || storage_.mutation_ == Mutation::clean_up_without_the_lock) {
        storage_.held_[path] = process_.number;
        auto held = std::make_unique<ModelLock>(storage_, path, process_.number);
        storage_.end(process_, is_last);
        return held;
      }
      storage_.end(process_, is_last);
      if (seconds == 0 || is_ours) return nullptr;
      storage_.let_go_on(*storage_.processes_[index(found->second)]);
    }
  }

 private:
  static std::size_t index(int process) { return static_cast<std::size_t>(process); }
  std::string whole(const std::string &name) const { return path_ + "/" + name; }
  void change(const Storage::Change &made) {
    Storage::apply(directory_.seen, made);
    directory_.changes.push_back(made);
  }

  Storage &storage_;
  Storage::Process &process_;
  const std::string path_;
  Storage::Directory &directory_;
};

class ModelFiles final : public Files {
 public:
  ModelFiles(Storage &storage, Storage::Process &process) : storage_(storage), process_(process) {}

  std::unique_ptr<Folder> folder(const std::string &path) override { return own_folder(path, true); }

  std::unique_ptr<Folder> own_folder(const std::string &path, bool make) override {
    const bool is_last = storage_.begin(process_, "folder", path);
    const bool is_there = storage_.directories_.contains(path);
    std::unique_ptr<Folder> made;
    if (is_there || make) made = std::make_unique<ModelFolder>(storage_, process_, path);
    storage_.end(process_, is_last);
    return made;
  }

  std::unique_ptr<OpenFile> open(const std::string &path, bool writable, bool direct) override {
    return folder(folder_of(path))->open(name_in_folder(path), writable, direct);
  }

 private:
  Storage &storage_;
  Storage::Process &process_;
};

// ---------------------------------------------------------------------------------------------- processes

// Lets another process run: `next`. The calling process then waits until it has its turn again. Only one thread runs at
// a time. Only this function lets another thread run.
void Storage::let_go_on(Process &next) {
  if (next.has_ended || next.number == turn_) return;
  std::unique_lock lock(mutex_);
  const int own = turn_;
  turn_ = next.number;
  changed_.notify_all();
  changed_.wait(lock, [&] { return turn_ == own; });
}

// Prints an operation if OUTCROP_TRACE is set.
void Storage::note(const Process &process, const char *what, const std::string &path) const {
  static const bool is_shown = std::getenv("OUTCROP_TRACE") != nullptr;
  if (is_shown) std::printf("%8lu  process %d  %s %s\n", operations_, process.number, what, path.c_str());
}

bool Storage::begin(Process &process, const char *what, const std::string &path) {
  if (process.is_dead) throw Killed{};
  if (processes_.size() > 1 && random.below(4) == 0) let_go_on(*processes_[random.below(processes_.size())]);
  if (is_off_) kill(process);
  ++operations_;
  note(process, what, path);
  if (process.left == 0 || --process.left > 0) return false;
  if (random.below(3) == 0) kill(process);
  return true;
}

void Storage::end(Process &process, bool is_last) {
  if (is_last) kill(process);
}

void Storage::kill(Process &process) {
  note(process, weather_.power_cuts ? "power cut" : "killed", "");
  process.is_dead = true;
  is_off_ = is_off_ || weather_.power_cuts;
  throw Killed{};
}

bool Storage::fails() {
  if (weather_.error_rate == 0 || !random.happens(weather_.error_rate)) return false;
  had_errors_ = true;
  if (!processes_.empty()) note(*processes_.front(), "fails", "");
  return true;
}

void Storage::run(const std::vector<std::function<void(Files &)>> &programs, const Weather &weather) {
  weather_ = weather;
  had_errors_ = is_off_ = false;
  held_.clear();
  processes_.clear();
  for (const auto &program : programs) {
    static_cast<void>(program);
    const std::uint64_t left = weather.kill_within == 0 ? 0 : 1 + random.below(weather.kill_within);
    processes_.push_back(std::make_unique<Process>(Process{static_cast<int>(processes_.size()), left, false, false}));
  }
  std::exception_ptr thrown;
  const auto live = [&](Process &process) {
    ModelFiles files(*this, process);
    try {
      programs[static_cast<std::size_t>(process.number)](files);
    } catch (const Killed &) {
      process.is_dead = true;
    } catch (...) {
      if (!thrown) thrown = std::current_exception();
    }
    process.has_ended = true;
  };
  turn_ = 0;
  if (programs.size() == 1) {
    live(*processes_.front());
  } else {
    std::vector<std::thread> threads;
    for (const auto &process : processes_)
      threads.emplace_back([&, own = process.get()] {
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [&] { return turn_ == own->number; });
        }
        live(*own);
        const std::lock_guard lock(mutex_);
        for (const auto &other : processes_)
          if (!other->has_ended) turn_ = other->number;
        changed_.notify_all();
      });
    for (std::thread &thread : threads) thread.join();
  }
  if (is_off_) cut_power();
  flushed_late_.clear();
  if (thrown) std::rethrow_exception(thrown);
}

// ---------------------------------------------------------------------------------------------- the device

Storage::Directory &Storage::directory(const std::string &path) { return directories_[path]; }

void Storage::apply(Names &names, const Change &change) {
  if (!change.from.empty()) names.erase(change.from);
  if (!change.to.empty()) names[change.to] = change.inode;
}

void Storage::write(Inode &inode, std::uint64_t offset, const std::byte *data, std::size_t length) {
  if (length == 0) return;
  const std::size_t end = offset + length;
  if (end > inode.seen.size()) {
    inode.seen.resize(end);
    inode.sizes.push_back(end);
  }
  std::memcpy(inode.seen.data() + offset, data, length);
  for (std::size_t sector = offset / sector_bytes; sector * sector_bytes < end; ++sector) {
    const std::size_t begin = sector * sector_bytes, stop = std::min(begin + sector_bytes, inode.seen.size());
    inode.dirty[sector].emplace_back(inode.seen.begin() + static_cast<std::ptrdiff_t>(begin),
                                     inode.seen.begin() + static_cast<std::ptrdiff_t>(stop));
  }
}

namespace {

void put(Bytes &to, std::size_t begin, const Bytes &sector) {
  if (to.size() < begin + sector.size()) to.resize(begin + sector.size());
  std::ranges::copy(sector, to.begin() + static_cast<std::ptrdiff_t>(begin));
}

}  // namespace

void Storage::flush(Inode &inode) {
  inode.durable.resize(inode.seen.size());
  for (const auto &[sector, versions] : inode.dirty) put(inode.durable, sector * sector_bytes, versions.back());
  inode.dirty.clear();
  inode.sizes.clear();
}

// Simulates a flush that fails. The failed flush writes only some sectors to the device. After the failure, the model
// treats all sectors as flushed, as real systems do.
void Storage::flush_badly(Inode &inode) {
  inode.durable.resize(inode.seen.size());
  for (const auto &[sector, versions] : inode.dirty)
    if (random.below(2) == 0) put(inode.durable, sector * sector_bytes, versions.back());
  inode.dirty.clear();
  inode.sizes.clear();
}

void Storage::lose(Inode &inode) {
  if (!inode.sizes.empty() && random.below(3) > 0) inode.durable.resize(inode.sizes[random.below(inode.sizes.size())]);
  const std::size_t size = inode.durable.size();
  for (const auto &[sector, versions] : inode.dirty)
    if (const std::size_t kept = random.below(versions.size() + 1); kept < versions.size())
      put(inode.durable, sector * sector_bytes, versions[kept]);
  inode.durable.resize(size);
  inode.seen = inode.durable;
  inode.dirty.clear();
  inode.sizes.clear();
}

void Storage::lose(Directory &directory) {
  const std::size_t count = random.below(directory.changes.size() + 1);
  std::set<std::string> lost;
  for (std::size_t i = 0; i < directory.changes.size(); ++i) {
    const Change &change = directory.changes[i];
    const bool depends = lost.contains(change.from) || lost.contains(change.to);
    if (weather_.keeps_order ? i < count : !depends && random.below(2) == 0) {
      apply(directory.durable, change);
      continue;
    }
    for (const std::string &name : {change.from, change.to})
      if (!name.empty()) lost.insert(name);
  }
  directory.changes.clear();
  directory.seen = directory.durable;
}

void Storage::cut_power() {
  std::set<InodeRef> inodes;
  for (auto &[path, each] : directories_) {
    lose(each);
    for (const auto &[name, inode] : each.seen) inodes.insert(inode);
  }
  std::vector<InodeRef> in_order;  // sorted by name, because addresses differ at each start of the program
  for (auto &[path, each] : directories_)
    for (const auto &[name, inode] : each.seen)
      if (inodes.erase(inode) > 0) in_order.push_back(inode);
  for (const InodeRef &inode : in_order) lose(*inode);
}

std::set<std::string> Storage::names_in(const std::string &folder) const {
  std::set<std::string> names;
  if (const auto found = directories_.find(folder); found != directories_.end())
    for (const auto &[name, inode] : found->second.seen) names.insert(name);
  return names;
}

Bytes Storage::content(const std::string &folder, const std::string &name) const {
  return directories_.at(folder).seen.at(name)->seen;
}

}  // namespace outcrop::model
