#include "outcrop/trajectory/places.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/threads.hpp"

namespace outcrop {
namespace {

constexpr const char *manifest_name = "trajectory.txt";
constexpr const char *member_name = "member.txt";
constexpr const char *group_name = "zarr.json";
constexpr const char *unfinished_name = "unfinished.txt";
constexpr std::uint64_t max_manifest_bytes = std::uint64_t{1} << 30;
constexpr std::uint64_t flush_threads = 16;
constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

std::string reason(int error) { return std::system_category().message(error); }

std::string size_text(std::uint64_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  double count = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; count >= 1024 && unit + 1 < units.size(); ++unit) count /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g %s", count, units[unit]);
  return text.data();
}

OpenFolder open_folder(const std::string &path) {
  OpenFolder found{path, Descriptor(::open(path.c_str(), folder_flags))};
  if (found.handle.get() < 0) throw InputError("directory ", path, " cannot be used: ", reason(errno));
  return found;
}

OpenFolder open_inside(const OpenFolder &folder, const std::string &name) {
  OpenFolder found{folder.path_of(name),
                   Descriptor(openat(folder.handle.get(), name.c_str(), folder_flags | O_NOFOLLOW))};
  if (found.handle.get() < 0) throw StorageError("open", found.path, errno);
  return found;
}

void flush_names(const OpenFolder &folder) {
  if (fsync(folder.handle.get()) != 0) throw StorageError("flush", folder.path, errno);
}

void write(const File &file, const std::string &content, std::uint64_t offset) {
  file.write(offset, reinterpret_cast<const std::byte *>(content.data()), content.size());
}

// Replaces a file. A reader sees either the old content or the new content. If `durable` is true, a reader also sees
// one of these two contents after a power cut.
void replace_file(const OpenFolder &folder, const std::string &name, const std::string &content, bool durable) {
  const int handle = folder.handle.get();
  const std::string beside = name + ".tmp";
  unlinkat(handle, beside.c_str(), 0);  // a killed process may have left this file
  const File made = File::make(handle, beside, 0666, folder.path_of(name));
  try {
    write(made, content, 0);
    if (durable) made.flush();
    if (renameat(handle, beside.c_str(), handle, name.c_str()) != 0) throw StorageError("rename", made.path(), errno);
  } catch (...) {
    unlinkat(handle, beside.c_str(), 0);
    throw;
  }
  if (durable) flush_names(folder);
}

std::string read_file(const OpenFolder &folder, const std::string &name) {
  const File file = File::open(name, false, false, folder.handle.get(), folder.path_of(name));
  const std::uint64_t size = file.size();
  if (size > max_manifest_bytes) throw CorruptionError(file.path(), " is damaged: ", size, " bytes");
  std::string content(size, '\0');
  file.read(0, reinterpret_cast<std::byte *>(content.data()), size);
  return content;
}

bool has(const OpenFolder &folder, const char *name) {
  struct stat status {};
  return fstatat(folder.handle.get(), name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

// Returns true if a further directory belongs to the trajectory with this identity.
bool is_member(const OpenFolder &folder, const std::string &identity, std::size_t place) {
  return has(folder, member_name) && read_file(folder, member_name) == member_text(identity, place);
}

void lock(const OpenFolder &folder) {
  if (flock(folder.handle.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK)
    throw InputError(folder.path, " is in use by another process, or by an open trajectory of this process");
  throw StorageError("lock", folder.path, errno);
}

std::string random_identity() {
  std::array<std::uint32_t, 4> numbers{};
  if (getrandom(numbers.data(), sizeof numbers, 0) != static_cast<ssize_t>(sizeof numbers))
    throw StorageError("read", "random bytes", errno);
  std::string text;
  for (const std::uint32_t number : numbers) text += hex(number);
  return text;
}

std::filesystem::path nearest_existing(std::filesystem::path path) {
  std::error_code error;
  while (!std::filesystem::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  return path;
}

// Returns true if `name` is the only name in the folder.
bool has_only(const OpenFolder &folder, const std::string &name) {
  std::error_code error;
  const std::filesystem::directory_iterator names(folder.path, error);
  return !error && has(folder, name.c_str()) && std::distance(begin(names), end(names)) == 1;
}

// Removes a file. Also removes the temporary file that remains if a process was killed while it replaced the file.
void discard(int folder, const std::string &name) {
  unlinkat(folder, name.c_str(), 0);
  unlinkat(folder, (name + ".tmp").c_str(), 0);
}

void require_empty(const std::string &path) {
  std::error_code error;
  if (std::filesystem::is_empty(path, error)) return;
  const OpenFolder folder = open_folder(path);
  if (has(folder, manifest_name))
    throw InputError("directory ", path, " holds a trajectory; open it, or give an empty directory");
  throw InputError("directory ", path,
                   has(folder, member_name) ? " holds states of another trajectory" : " is not empty",
                   "; remove its files, or give an empty directory");
}

std::filesystem::path absolute_path(const std::string &given) {
  if (given.empty()) return {};  // std::filesystem::absolute() would throw
  const std::filesystem::path path = std::filesystem::absolute(given).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// Checks a directory without changing anything. Returns the absolute path.
std::string checked(const std::string &given) {
  const bool printable = std::ranges::all_of(given, [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
  if (given.empty() || !printable || given.size() > 4000)
    throw InputError("the path of a directory must be text without control characters");
  const std::filesystem::path path = absolute_path(given);
  const std::filesystem::path existing = nearest_existing(path);
  std::error_code error;
  if (!std::filesystem::is_directory(existing, error))
    throw InputError("directory ", given, " cannot be made: ", existing.string(), " is a file");
  if (access(existing.c_str(), W_OK | X_OK) != 0)
    throw InputError("directory ", given, " cannot be written: no permission in ", existing.string());
  if (existing == path) require_empty(path.string());
  return path.string();
}

struct Room {
  std::string path, why;
  std::uint64_t states = 0;
};

// Returns the maximum number of bytes that an old and a new manifest need together. `bytes` is the size of the present
// manifest.
std::uint64_t two_manifests(const TrajectoryManifest &manifest, std::uint64_t bytes) {
  constexpr std::uint64_t bytes_per_line = 6, bytes_per_sum = 9;
  const std::uint64_t missing = manifest.states - manifest.committed();
  const std::uint64_t most = bytes + missing * (bytes_per_line + bytes_per_sum * manifest.fields.size());
  return 2 * round_up(std::min(most, max_manifest_bytes), AlignedMemory::page_bytes);
}

// Returns the number of bytes that commits need in the first directory, without the files of states. A commit writes a
// new manifest and new metadata files for Zarr before it removes the old manifest and the old metadata files.
std::uint64_t commit_bytes(const StateLayout &layout, std::uint64_t states,
                           const std::vector<DirectoryLimit> &directories) {
  TrajectoryManifest manifest{std::string(32, '0'), layout.dtype(), layout.fields(), states, states, {}, {}};
  for (const DirectoryLimit &one : directories) manifest.places.push_back({absolute_path(one.path), states});
  constexpr std::uint64_t block = AlignedMemory::page_bytes;
  std::uint64_t bytes = two_manifests(manifest, manifest.to_text().size());
  bytes += 2 * round_up(layout.group_metadata(states).size(), block);
  for (std::size_t field = 0; field < layout.count(); ++field)
    bytes += block + 2 * round_up(layout.array_metadata(field, states).size(), block);
  return bytes;
}

// Returns the number of states for which each directory has room. Directories on the same file system share the free
// bytes of this file system.
std::vector<Room> rooms(const std::vector<DirectoryLimit> &directories, const StateLayout &layout,
                        std::uint64_t states) {
  const std::uint64_t stored_bytes = layout.stored_bytes();
  std::map<dev_t, std::uint64_t> free;
  std::vector<Room> found;
  for (const auto &[given, limit] : directories) {
    const std::string path = checked(given), existing = nearest_existing(path).string();
    for (const Room &other : found)
      if ((other.path + "/").starts_with(path + "/") || (path + "/").starts_with(other.path + "/"))
        throw InputError("directory ", given, " is the same as, or inside of, ", other.path);
    struct stat status {};
    struct statvfs room {};
    if (stat(existing.c_str(), &status) != 0 || statvfs(existing.c_str(), &room) != 0)
      throw InputError("directory ", given, " cannot be used: ", reason(errno));
    std::uint64_t &left = free.try_emplace(status.st_dev, std::uint64_t{room.f_bavail} * room.f_frsize).first->second;
    if (found.empty()) left -= std::min(left, commit_bytes(layout, states, directories));
    const bool limited = limit > 0 && limit < left;
    const std::uint64_t bytes = limited ? limit : left, fit = std::min(states, bytes / stored_bytes);
    left -= fit * stored_bytes;
    found.push_back({path, (limited ? "limit " : "free ") + size_text(bytes), fit});
  }
  return found;
}

[[noreturn]] void refuse(std::uint64_t states, std::uint64_t stored_bytes, std::uint64_t in_memory,
                         const std::vector<Room> &found) {
  std::uint64_t fit = in_memory;
  std::string where = in_memory > 0 ? std::to_string(in_memory) + " in memory, " : "";
  for (const Room &room : found) {
    fit += room.states;
    where += std::to_string(room.states) + " in " + room.path + " (" + room.why + "), ";
  }
  where.resize(where.size() - 2);
  throw InputError("no room for ", states, " states of ", size_text(stored_bytes), ": ", fit, " fit: ", where,
                   "; give a directory or limit with more room, or fewer states");
}

StateLayout layout_of(const TrajectoryManifest &manifest, const std::string &label) {
  try {
    return {manifest.fields, manifest.dtype};
  } catch (const InputError &error) {
    throw CorruptionError(label, " is damaged: ", error.what());
  }
}

// Makes a directory and its missing parents. Returns the new directories, in the order from the innermost to the
// outermost.
std::vector<std::filesystem::path> make_directory(const std::string &given) {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (std::filesystem::path path = given; !std::filesystem::exists(path, error); path = path.parent_path())
    missing.push_back(path);
  std::filesystem::create_directories(given, error);
  if (error) throw InputError("directory ", given, " cannot be made: ", error.message());
  for (const std::filesystem::path &path : missing) {
    const Descriptor parent(::open(path.parent_path().c_str(), folder_flags));
    // failures are ignored, because the process may lack the permission to flush this folder
    if (parent.get() >= 0) fsync(parent.get());
  }
  return missing;
}

}  // namespace

Places Places::create(const StateLayout &layout, std::uint64_t states, std::uint64_t memory_bytes,
                      const std::vector<DirectoryLimit> &directories) {
  if (states == 0) throw InputError("states must be at least 1");
  remove_unfinished(directories);
  const std::uint64_t in_memory = std::min(states, memory_bytes / layout.buffer_bytes());
  const std::vector<Room> found = rooms(directories, layout, states);
  std::uint64_t room = 0;
  for (const Room &one : found) room += one.states;
  if (room < states - in_memory) refuse(states, layout.stored_bytes(), in_memory, found);
  std::uint64_t left = room >= states ? states : states - in_memory;
  TrajectoryManifest manifest{random_identity(), layout.dtype(), layout.fields(), states, in_memory, {}, {}};
  for (const Room &one : found) {
    const std::uint64_t taken = std::min(left, one.states);
    left -= taken;
    manifest.places.push_back({manifest.places.empty() ? "." : one.path, taken});
  }
  Places places(layout, std::move(manifest));
  std::vector<std::filesystem::path> made;
  try {
    for (const Room &one : found) {
      const std::vector<std::filesystem::path> more = make_directory(one.path);
      made.insert(made.begin(), more.begin(), more.end());
      OpenFolder folder = open_folder(one.path);
      lock(folder);
      require_empty(one.path);  // another process may have made a trajectory since the check
      places.folders_.push_back(std::move(folder));
    }
    places.make_files();
  } catch (...) {
    places.remove_files();
    std::error_code ignored;
    for (const std::filesystem::path &path : made) std::filesystem::remove(path, ignored);
    throw;
  }
  return places;
}

// Before any other file is made, the first directory gets the manifest under the name `unfinished_name`. If the process
// is killed, the manifest with this name tells the next process which files to remove. When all files are complete, the
// manifest gets its usual name.
void Places::make_files() {
  const OpenFolder &own = folders_[0];
  const std::string text = manifest_.to_text();
  const File mark = File::make(own.handle.get(), unfinished_name, 0666, own.path_of(unfinished_name));
  write(mark, text, 0);
  mark.flush();
  flush_names(own);
  for (std::size_t i = 0; i < folders_.size(); ++i) {
    const OpenFolder &place = folders_[i];
    if (i > 0) replace_file(place, member_name, member_text(manifest_.identity, i), true);
    for (const StateField &field : layout_.fields())
      if (mkdirat(place.handle.get(), field.name.c_str(), 0777) != 0)
        throw StorageError("create", place.path_of(field.name), errno);
  }
  std::vector<std::string> indices;
  for (std::size_t field = 0; field < layout_.count(); ++field) indices.push_back(layout_.index(field));
  for (std::uint64_t state = 0; state < manifest_.states; ++state) {
    if (!has_file(state)) continue;
    const OpenFolder &place = folders_[place_of(state)];
    for (std::size_t field = 0; field < layout_.count(); ++field) {
      const std::string name = layout_.file_name(field, state), path = place.path_of(name);
      const File file = File::make(place.handle.get(), name, 0666, path);
      file.allocate(layout_.file_bytes(field));
      write(file, indices[field], layout_.cell_bytes(field));
      if (&place != folders_.data() && symlinkat(path.c_str(), folders_[0].handle.get(), name.c_str()) != 0)
        throw StorageError("link", label(field, state), errno);
    }
  }
  keep_room(text.size());
  show_states();
  for (const OpenFolder &place : folders_) {
    for (const StateField &field : layout_.fields()) flush_names(open_inside(place, field.name));
    flush_names(place);
  }
  if (renameat(own.handle.get(), unfinished_name, own.handle.get(), manifest_name) != 0)
    throw StorageError("rename", own.path_of(unfinished_name), errno);
  flush_names(own);
}

// Removes the files that remain if a process was killed while it made or removed a trajectory. The content of the
// directory is not trusted, so files in further directories are removed only if the caller gives these directories,
// too.
void Places::remove_unfinished(const std::vector<DirectoryLimit> &directories) {
  OpenFolder own{directories[0].path, Descriptor(::open(directories[0].path.c_str(), folder_flags))};
  if (own.handle.get() < 0 || !has(own, unfinished_name)) return;
  lock(own);
  if (!has(own, unfinished_name) || has(own, manifest_name)) return;  // another process has just finished
  const std::string file = own.path_of(unfinished_name);
  TrajectoryManifest manifest;
  std::optional<Places> old;
  try {
    manifest = TrajectoryManifest::parse(read_file(own, unfinished_name), file);
    old.emplace(Places(layout_of(manifest, file), manifest));
  } catch (const CorruptionError &) {
    if (!has_only(own, unfinished_name))
      throw InputError("directory ", own.path, " is not empty, and its ", unfinished_name,
                       " is damaged; remove its files, or give an empty directory");
    unlinkat(own.handle.get(), unfinished_name, 0);  // the process was killed before it had written this first file
    return;
  }
  for (std::size_t i = 1; i < manifest.places.size(); ++i) {
    const std::string &further = manifest.places[i].path;
    OpenFolder folder{further, Descriptor(::open(further.c_str(), folder_flags))};
    if (has_only(folder, std::string(member_name) + ".tmp") || is_member(folder, manifest.identity, i)) {
      if (std::ranges::none_of(directories, [&](const auto &one) { return absolute_path(one.path) == further; }))
        throw InputError("directory ", own.path, " holds an unfinished trajectory with files in ", further,
                         "; give both directories, or remove these files");
      lock(folder);
    } else {
      folder.handle.reset();  // no files of the unfinished trajectory are there
    }
    old->folders_.push_back(std::move(folder));
  }
  old->folders_.insert(old->folders_.begin(), std::move(own));
  old->remove_files();
}

Places Places::open(const std::string &path) {
  OpenFolder own{path, Descriptor(::open(path.c_str(), folder_flags))};
  if (own.handle.get() < 0) throw InputError(path, " holds no trajectory: ", reason(errno));
  if (!has(own, manifest_name) && !has(own, unfinished_name))
    throw InputError(path, " holds no trajectory: ", manifest_name, " is missing");
  lock(own);
  if (!has(own, manifest_name))
    throw InputError(path, " holds an unfinished trajectory: a process was killed while it made or removed the ",
                     "trajectory; make the trajectory again, or delete the directory");
  const std::string file = own.path_of(manifest_name);
  TrajectoryManifest manifest = TrajectoryManifest::parse(read_file(own, manifest_name), file);
  Places places(layout_of(manifest, file), manifest);
  flush_names(own);  // an earlier process may have been killed after its rename and before this flush
  for (const StateField &field : manifest.fields) open_inside(own, field.name);  // refuses links
  places.folders_.push_back(std::move(own));
  for (std::size_t i = 1; i < manifest.places.size(); ++i) {
    const std::string &further = manifest.places[i].path;
    OpenFolder folder{further, Descriptor(::open(further.c_str(), folder_flags))};
    if (folder.handle.get() < 0)
      throw StorageError("open", further, text_from("it holds states of ", path, ": ", reason(errno)), errno);
    if (!is_member(folder, manifest.identity, i))
      throw StorageError("open", further, "it does not hold states of " + path + "; restore its previous content", 0);
    lock(folder);
    places.folders_.push_back(std::move(folder));
  }
  places.show_states();
  return places;
}

bool Places::has_file(std::uint64_t state) const {
  return state >= manifest_.memory_states || manifest_.all_have_files();
}

// Returns the index of the directory that has the files of a state. States that are not in memory have their files in
// the first directories, because their files are written first.
std::size_t Places::place_of(std::uint64_t state) const {
  const std::uint64_t in_memory = manifest_.memory_states;
  std::uint64_t slot = state >= in_memory ? state - in_memory : manifest_.states - in_memory + state;
  for (std::size_t i = 0; i < manifest_.places.size(); ++i) {
    if (slot < manifest_.places[i].states) return i;
    slot -= manifest_.places[i].states;
  }
  throw InputError("state ", state, " has no file");
}

std::string Places::label(std::size_t field, std::uint64_t state) const {
  return folders_[place_of(state)].path_of(layout_.file_name(field, state));
}

File Places::open_file(std::size_t field, std::uint64_t state, bool direct) {
  OpenFolder &place = folders_[place_of(state)];
  const std::string name = layout_.file_name(field, state), path = place.path_of(name);
  if (direct && place.sample) return place.sample->open_like(name, place.handle.get(), path);
  File file = File::open(name, true, direct, place.handle.get(), path);
  if (direct) place.sample = File::open(name, true, true, place.handle.get(), path);
  return file;
}

// Several threads flush files at the same time, because the system can combine simultaneous flushes of one device.
void Places::flush(std::uint64_t first, std::uint64_t last) {
  in_parallel((last - first) * layout_.count(), flush_threads, [&](std::uint64_t file) {
    open_file(file % layout_.count(), first + file / layout_.count(), false).flush();
  });
}

void Places::commit(std::vector<std::uint32_t> sums) {
  TrajectoryManifest next = manifest_;
  next.sums = std::move(sums);
  const std::string text = next.to_text();
  replace_file(folders_[0], manifest_name, text, true);
  manifest_ = std::move(next);
  try {
    keep_room(text.size());
  } catch (const StorageError &) {  // the commit is complete, and a later commit may find room
  }
  show_states();
}

// Allocates a file with the bytes that the manifests of the next commits need, so that these commits succeed on a full
// disk. The allocated file has the name of the temporary file that the next commit makes. So the next commit removes
// the allocated file. The present manifest has `bytes` bytes.
void Places::keep_room(std::uint64_t bytes) {
  if (!manifest_.all_have_files()) return;  // commits are not possible
  const OpenFolder &own = folders_[0];
  const std::string name = std::string(manifest_name) + ".tmp";
  const std::uint64_t needed = two_manifests(manifest_, bytes), used = round_up(bytes, AlignedMemory::page_bytes);
  File::make(own.handle.get(), name, 0666, own.path_of(name)).allocate(needed - std::min(needed, used));
}

// Writes the number of committed states into the metadata for readers of Zarr. Outcrop itself does not read these
// files. If the metadata cannot be written, for example because the disk is full, the next commit or the next open()
// writes the metadata.
void Places::show_states() {
  const OpenFolder &own = folders_[0];
  const std::uint64_t states = manifest_.committed();
  try {
    for (std::size_t field = 0; field < layout_.count(); ++field)
      replace_file(open_inside(own, layout_.fields()[field].name), group_name, layout_.array_metadata(field, states),
                   false);
    replace_file(own, group_name, layout_.group_metadata(states), false);
  } catch (const StorageError &) {
  }
}

// Removes all files. Files and folders that do not exist are ignored. First the manifest is renamed, because the states
// are not complete any more. The renamed manifest is removed last, so that a later process can still remove files that
// remain.
void Places::remove_files() {
  if (folders_.empty()) return;
  const int own = folders_[0].handle.get();
  renameat(own, manifest_name, own, unfinished_name);
  unlinkat(own, (std::string(manifest_name) + ".tmp").c_str(), 0);
  for (std::size_t i = folders_.size(); i-- > 0;) {
    const int folder = folders_[i].handle.get();
    for (const StateField &field : layout_.fields()) {
      const Descriptor inside(openat(folder, field.name.c_str(), folder_flags | O_NOFOLLOW));
      if (inside.get() < 0) continue;
      for (std::uint64_t state = 0; state < manifest_.states; ++state) {
        const std::string name = layout_.file_name(static_cast<std::size_t>(&field - layout_.fields().data()), state);
        unlinkat(inside.get(), name.substr(field.name.size() + 1).c_str(), 0);
      }
      discard(inside.get(), group_name);
      unlinkat(folder, field.name.c_str(), AT_REMOVEDIR);
    }
    discard(folder, i > 0 ? member_name : group_name);
    if (i > 0) fsync(folder);  // after a power cut, no file may be left that no manifest describes
  }
  unlinkat(own, unfinished_name, 0);
}

void Places::close() {
  for (OpenFolder &place : folders_) {
    place.handle.reset();
    place.sample.reset();
  }
}

void Places::remove() {
  remove_files();
  for (OpenFolder &place : folders_) {
    place.sample.reset();
    rmdir(place.path.c_str());  // a folder with other files is kept
  }
}

}  // namespace outcrop
