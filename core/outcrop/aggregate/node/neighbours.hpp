// Are the other processes of this node still there? Who waits for one of them looks now and then.
#pragma once

#include <span>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

class Neighbours {
 public:
  Neighbours() = default;
  /// Process numbers; of the calling process may be among them.
  explicit Neighbours(std::span<const int> processes);

  /// Index of one that has ended, -1 when all are there.
  int gone() const;

 private:
  struct Process {
    int index = 0, number = 0;
    Descriptor handle;  // none where the system does not give one: then the number is all there is
  };
  std::vector<Process> processes_;
};

}  // namespace outcrop::aggregate
