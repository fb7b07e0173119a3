// Blocking pread and pwrite by a pool of threads: works wherever files do.
#include "outcrop/storage/backends.hpp"
#include "outcrop/storage/pool.hpp"

namespace outcrop {
namespace {

class ThreadStore final : public PoolStore {
 public:
  using PoolStore::PoolStore;
  ~ThreadStore() override { stop(); }
  const char *name() const override { return "threads"; }

 protected:
  std::int64_t move(const Transfer &transfer) override { return move_by_call(transfer); }
};

}  // namespace

std::unique_ptr<Store> make_thread_store(std::vector<File> files, std::size_t depth) {
  return std::make_unique<ThreadStore>(std::move(files), depth);
}

}  // namespace outcrop
