// Tools for tests of aggregation: ranks that are threads of one process, and random patterns of access.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "outcrop/aggregate/file.hpp"
#include "outcrop/aggregate/transport/transport.hpp"

namespace outcrop::aggregate {

// Runs act(rank, transport) in a separate thread for each rank. If some ranks throw exceptions, rethrows the exception
// of the lowest of these ranks.
inline void on_ranks(ThreadRanks &ranks, int size, const std::function<void(int, outcrop_transport &)> &act) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        act(rank, ranks.transport(rank));
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        ranks.fail();  // the other ranks must not wait for a rank that has failed
      }
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::exception_ptr &each : thrown)
    if (each) std::rethrow_exception(each);
}

// A folder for a test. The destructor removes the folder.
class Folder {
 public:
  explicit Folder(const std::string &where = ::testing::TempDir()) {
    std::string name = where + "/outcrop-aggregate-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for tests in " + where);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string &name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Calls visit(file offset, memory offset, bytes) for each block of an extent. The function finds the blocks with loops
// over all repetitions. It does not use the arithmetic that is tested.
template <typename Visit>
void expand(const Extent &extent, Visit &&visit, std::size_t level = 0, std::uint64_t file = 0,
            std::uint64_t memory = 0) {
  if (extent.block_bytes == 0) return;
  if (level == extent.dims.size())
    return visit(extent.file_offset + file, extent.memory_offset + memory, extent.block_bytes);
  for (std::uint64_t i = 0; i < extent.dims[level].count; ++i)
    expand(extent, visit, level + 1, file + i * extent.dims[level].file_stride_bytes,
           memory + i * extent.dims[level].memory_stride_bytes);
}

using Random = std::mt19937_64;

inline std::uint64_t below(Random &random, std::uint64_t end) { return random() % end; }

// A random declaration for each rank. The declarations do not overlap. `windows` has ranges of the file in which tests
// search for extents.
struct RandomPattern {
  std::vector<Declaration> ranks;
  std::vector<Range> windows;

  RandomPattern(Random &random, int size);
  std::uint64_t end() const { return windows.back().end; }

 private:
  Declaration &someone(Random &random) { return ranks[below(random, ranks.size())]; }
  std::uint64_t add_pieces(Random &random, std::uint64_t begin);
  std::uint64_t add_records(Random &random, std::uint64_t begin);
  std::uint64_t add_grid(Random &random, std::uint64_t begin);
};

}  // namespace outcrop::aggregate
