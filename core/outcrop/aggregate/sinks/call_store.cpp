#include "outcrop/aggregate/sinks/call_store.hpp"

#include <unistd.h>

#include <cassert>
#include <cerrno>

namespace outcrop::aggregate {
namespace {

class CallStore final : public Store {
 public:
  using Store::Store;

  const char *name() const override { return "calls"; }
  std::size_t depth() const override { return 1; }

  void submit(std::span<const Transfer> transfers) override {
    for (const Transfer &transfer : transfers) {
      assert(!ready_);
      const Place found = place(transfer);
      const auto offset = static_cast<off_t>(found.offset);
      const ssize_t moved = transfer.write ? pwrite(found.descriptor, transfer.data, transfer.length, offset)
                                           : pread(found.descriptor, transfer.data, transfer.length, offset);
      completion_ = {transfer.tag, moved < 0 ? -errno : moved};
      ready_ = true;
    }
  }

  std::size_t reap(std::span<Completion> completions, bool) override {
    if (!ready_ || completions.empty()) return 0;
    completions[0] = completion_;
    ready_ = false;
    return 1;
  }

 private:
  Completion completion_;
  bool ready_ = false;
};

}  // namespace

std::unique_ptr<Store> make_call_store(std::vector<outcrop::File> files) {
  return std::make_unique<CallStore>(std::move(files));
}

}  // namespace outcrop::aggregate
