// These tests check that two processes can map the same segment. They also check that a file of another kind is
// refused.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t bytes = std::uint64_t{5} << 20;

TEST(AggregateSegment, IsSharedWithAnotherProcess) {
  const std::shared_ptr<Segment> made = Segment::make(bytes, 4096);
  for (std::uint64_t i = 0; i < bytes; i += 4096) ASSERT_EQ(made->data()[i], std::byte{0});
  made->data()[bytes - 1] = std::byte{7};
  const Segment::Address address = made->address();
  const pid_t child = fork();
  if (child == 0) {
    std::string reason;
    const std::shared_ptr<Segment> found = Segment::attach(address, reason);
    if (!found || found->data() == made->data() || found->data()[bytes - 1] != std::byte{7}) _exit(1);
    found->data()[1] = std::byte{9};
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(made->data()[1], std::byte{9});
}

TEST(AggregateSegment, IsTheSameMappingInOneProcess) {
  const std::shared_ptr<Segment> made = Segment::make(bytes, 4096);
  std::string reason;
  EXPECT_EQ(Segment::attach(made->address(), reason), made);
}

TEST(AggregateSegment, IsNotTakenForAnother) {
  const std::shared_ptr<Segment> made = Segment::make(bytes, 4096);
  Segment::Address address = made->address();
  ++address.inode;
  std::string reason;
  EXPECT_EQ(Segment::attach(address, reason), nullptr);
  EXPECT_NE(reason.find("is not the shared memory"), std::string::npos) << reason;
  address.descriptor = 1 << 20;
  EXPECT_EQ(Segment::attach(address, reason), nullptr);
  EXPECT_NE(reason.find("cannot be opened"), std::string::npos) << reason;
}

TEST(AggregateSegment, IsRefusedWhereThereIsNoMemoryForIt) {
  EXPECT_THROW(Segment::make(std::uint64_t{1} << 50, 4096), InputError);
}

}  // namespace
}  // namespace outcrop::aggregate
