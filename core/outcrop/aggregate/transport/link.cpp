#include "outcrop/aggregate/transport/link.hpp"

#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

void Link::check(int result) const {
  if (result != 0) throw CommunicationError(table_->error(table_->self));
}

outcrop_request Link::send(std::span<const std::byte> data, int to, int tag) const {
  outcrop_request request = 0;
  check(table_->send(table_->self, data.data(), data.size(), to, tag, &request));
  return request;
}

outcrop_request Link::receive(std::span<std::byte> data, int from, int tag) const {
  outcrop_request request = 0;
  check(table_->receive(table_->self, data.data(), data.size(), from, tag, &request));
  return request;
}

void Link::wait(std::span<outcrop_request> requests) const {
  check(table_->wait(table_->self, requests.data(), requests.size()));
}

bool Link::test(std::span<outcrop_request> requests) const {
  int done = 0;
  check(table_->test(table_->self, requests.data(), requests.size(), &done));
  return done != 0;
}

void Link::barrier() const { check(table_->barrier(table_->self)); }

}  // namespace outcrop::aggregate
