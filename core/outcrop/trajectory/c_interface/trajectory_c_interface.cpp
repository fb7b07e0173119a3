// This file defines the functions of outcrop_trajectory.h. Exceptions become error codes.
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/trajectory/c_interface/outcrop_trajectory.h"
#include "outcrop/trajectory/trajectory.hpp"

using namespace outcrop;

struct outcrop_trajectory {
  std::unique_ptr<Trajectory> value;
};

namespace {

thread_local std::string failure;

int failed(int code, const char *text) noexcept {
  try {
    failure = text;
  } catch (const std::bad_alloc &) {
    failure.clear();
  }
  return code;
}

// Calls call(). Returns OUTCROP_TRAJECTORY_OK, or the error code of an exception that call() has thrown.
template <typename Call>
int guarded(Call call) noexcept {
  try {
    call();
    return OUTCROP_TRAJECTORY_OK;
  } catch (const InputError &error) {
    return failed(OUTCROP_TRAJECTORY_INPUT, error.what());
  } catch (const StorageError &error) {
    return failed(OUTCROP_TRAJECTORY_STORAGE, error.what());
  } catch (const CorruptionError &error) {
    return failed(OUTCROP_TRAJECTORY_CORRUPTION, error.what());
  } catch (const std::bad_alloc &) {
    return failed(OUTCROP_TRAJECTORY_MEMORY, "no memory");
  } catch (const std::exception &error) {
    return failed(OUTCROP_TRAJECTORY_BUG, error.what());
  }
}

template <typename Pointer>
Pointer given(Pointer pointer, const char *what) {
  if (pointer == nullptr) throw InputError(what, " is NULL");
  return pointer;
}

Trajectory &trajectory_of(const outcrop_trajectory *trajectory) { return *given(trajectory, "the trajectory")->value; }

// Returns the addresses of the fields of a state. `Byte` and `Address` are both const or both not const.
template <typename Byte, typename Address>
std::vector<Byte *> cells_of(const Trajectory &trajectory, Address *const *fields) {
  std::vector<Byte *> cells;
  for (std::size_t i = 0; i < trajectory.layout().count(); ++i)
    cells.push_back(static_cast<Byte *>(given(given(fields, "the state")[i], "a field of the state")));
  return cells;
}

}  // namespace

const char *outcrop_trajectory_error(void) { return failure.c_str(); }

const char *outcrop_trajectory_version(void) { return OUTCROP_VERSION; }

int outcrop_trajectory_create(const outcrop_trajectory_field *fields, size_t field_count, const char *dtype,
                              uint64_t states, uint64_t memory_bytes, const outcrop_trajectory_directory *directories,
                              size_t directory_count, outcrop_trajectory **made) {
  return guarded([&] {
    *given(made, "the result") = nullptr;
    given(fields, "the list of fields");
    std::vector<StateField> named;
    for (std::size_t i = 0; i < field_count; ++i) {
      if (fields[i].dims > 0) given(fields[i].shape, "the shape of a field");
      named.push_back(
          {given(fields[i].name, "the name of a field"), {fields[i].shape, fields[i].shape + fields[i].dims}});
    }
    if (directory_count == 0) throw InputError("a trajectory needs at least one directory");
    given(directories, "the list of directories");
    std::vector<DirectoryLimit> limits;
    for (std::size_t i = 0; i < directory_count; ++i)
      limits.push_back({given(directories[i].path, "the path of a directory"), directories[i].limit_bytes});
    const StateLayout layout(std::move(named), given(dtype, "the dtype"));
    *made = new outcrop_trajectory{Trajectory::create(layout, states, memory_bytes, limits)};
  });
}

int outcrop_trajectory_open(const char *path, outcrop_trajectory **opened) {
  return guarded([&] {
    *given(opened, "the result") = nullptr;
    *opened = new outcrop_trajectory{Trajectory::open(given(path, "the path"))};
  });
}

uint64_t outcrop_trajectory_states(const outcrop_trajectory *trajectory) {
  return trajectory == nullptr ? 0 : trajectory->value->states();
}

int outcrop_trajectory_push(outcrop_trajectory *trajectory, const void *const *fields, uint64_t *number) {
  return guarded([&] {
    Trajectory &found = trajectory_of(trajectory);
    const std::uint64_t state = found.push(cells_of<const std::byte>(found, fields));
    if (number != nullptr) *number = state;
  });
}

int outcrop_trajectory_pop(outcrop_trajectory *trajectory, const void **fields, uint64_t *number) {
  return guarded([&] {
    Trajectory &found = trajectory_of(trajectory);
    given(fields, "the result");
    const Trajectory::Popped popped = found.pop();
    for (std::size_t i = 0; i < found.layout().count(); ++i) fields[i] = popped.data + found.layout().offset(i);
    if (number != nullptr) *number = popped.state;
  });
}

int outcrop_trajectory_read(outcrop_trajectory *trajectory, uint64_t number, void *const *fields) {
  return guarded([&] {
    Trajectory &found = trajectory_of(trajectory);
    found.read(number, cells_of<std::byte>(found, fields));
  });
}

int outcrop_trajectory_commit(outcrop_trajectory *trajectory) {
  return guarded([&] { trajectory_of(trajectory).commit(); });
}

void outcrop_trajectory_close(outcrop_trajectory **trajectory) {
  if (trajectory == nullptr) return;
  delete *trajectory;
  *trajectory = nullptr;
}

int outcrop_trajectory_remove(outcrop_trajectory **trajectory) {
  const int code = guarded([&] { trajectory_of(*given(trajectory, "the trajectory")).remove(); });
  outcrop_trajectory_close(trajectory);
  return code;
}
