// The fields of a simulation: in which rings of the window their values lie, and which of them are arrays on disk.
//
//     field          copies     arrays       rings
//     read only      1          itself       one; it never changes
//     updated        1          itself       one; updates overwrite the value they replace
//     updated        2          itself       two that take turns: neighbours still read what an update replaces
//     two levels     2          newest and   two; a step needs the value before the newest, too
//                               previous
//
// The first copies of all fields are rings 0, 1, ... in the order of the fields; behind them come the second copies. When a
// pass begins, the newest value of a field is in its first copy.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "outcrop/kernel/kernel.h"

namespace outcrop {

struct Field {
  bool is_static = false;     ///< only read
  bool is_double = false;     ///< has two copies
  bool has_previous = false;  ///< both are arrays on disk
  bool flips = false;         ///< a step leaves its newest value in the other copy
};

/// A value of a field that lies in a ring and is, or will be, an array on disk.
struct Entry {
  std::size_t field = 0;
  int age = 0;  ///< 0: the newest value, 1: the one before
};

class Fields {
 public:
  explicit Fields(std::vector<Field> fields) : fields_(std::move(fields)) {
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      second_.push_back(fields_[i].is_double ? fields_.size() + doubles_.size() : i);
      if (fields_[i].is_double) doubles_.push_back(i);
      if (fields_[i].is_static) statics_.push_back({i, 0});
      if (!fields_[i].is_static) state_.push_back({i, 0});
      if (fields_[i].has_previous) state_.push_back({i, 1});
    }
  }

  std::size_t size() const { return fields_.size(); }
  std::size_t rings() const { return fields_.size() + doubles_.size(); }
  const std::vector<Entry> &state() const { return state_; }      ///< arrays that a pass reads and writes
  const std::vector<Entry> &statics() const { return statics_; }  ///< arrays that it only reads
  const std::vector<std::size_t> &doubles() const { return doubles_; }
  bool is_static(std::size_t field) const { return fields_[field].is_static; }

  /// The ring of copy 0 or 1 of a field.
  std::size_t ring(std::size_t field, std::size_t copy) const { return copy == 0 ? field : second_[field]; }

  /// The ring that holds a value after so many steps.
  std::size_t ring(const Entry &entry, long steps) const {
    const bool is_second = (fields_[entry.field].flips && steps % 2 != 0) != (entry.age == 1);
    return ring(entry.field, is_second ? 1 : 0);
  }

 private:
  std::vector<Field> fields_;
  std::vector<std::size_t> second_, doubles_;
  std::vector<Entry> state_, statics_;
};

/// What a level calls: the kernel of its stage, and the rings of its operands.
struct StageCall {
  outcrop_kernel kernel = nullptr;
  std::vector<std::size_t> sources, targets;
};

/// A level is one stage of a step. Calls repeat after two steps, because copies take turns.
struct Stages {
  std::vector<StageCall> calls;    ///< of an even step, then of an odd one
  std::vector<std::byte> scalars;  ///< those of each step behind each other, or one set for all
  std::size_t scalars_bytes = 0;   ///< from one step's to the next one's; 0: the same for all

  long per_step() const { return static_cast<long>(calls.size() / 2); }
  const StageCall &at(long level) const { return calls[static_cast<std::size_t>(level - 1) % calls.size()]; }
  const void *scalars_of(long level) const {
    return scalars.data() + static_cast<std::size_t>((level - 1) / per_step()) * scalars_bytes;
  }
};

}  // namespace outcrop
