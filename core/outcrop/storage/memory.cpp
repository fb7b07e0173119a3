// Files in memory, for tests and for runs that need no disk. They start as zeros of the size of the file they stand
// for (0 if there is none), grow when written, and go with the store.
#include "outcrop/storage/backends.hpp"
#include "outcrop/storage/pool.hpp"

namespace outcrop {
namespace {

class MemoryStore final : public PoolStore {
 public:
  using PoolStore::PoolStore;
  ~MemoryStore() override { stop(); }
  const char *name() const override { return "memory"; }
  void flush() override {}

 protected:
  std::int64_t move(const Transfer &transfer) override { return move_by_call(transfer); }
};

}  // namespace

std::unique_ptr<Store> make_memory_store(std::vector<File> files, std::size_t depth) {
  return std::make_unique<MemoryStore>(std::move(files), depth);
}

}  // namespace outcrop
