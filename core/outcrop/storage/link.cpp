#include "outcrop/storage/link.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

// A message is processed in pieces of this size, so that a piece is still in a cache when its checksum is computed.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;

using Sum = std::array<std::byte, 4>;

// The parts of a batch of messages that are not transferred yet. Each message has two parts, its bytes and its
// checksum.
class Parts {
 public:
  Parts(Link::Messages messages, std::array<Sum, Link::max_batch> &sums) : count_(2 * messages.size()) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      parts_[2 * i] = {messages[i].data(), messages[i].size()};
      parts_[2 * i + 1] = {sums[i].data(), sums[i].size()};
    }
    left_ = std::span(parts_).first(count_);
  }
  Parts(const Parts &) = delete;

  bool empty() const { return left_.empty(); }
  std::size_t complete() const { return (count_ - left_.size()) / 2; }  // number of messages that are complete
  msghdr header() {
    msghdr result{};
    result.msg_iov = left_.data();
    result.msg_iovlen = left_.size();
    return result;
  }
  void advance(std::size_t bytes) { left_ = without_first(left_, bytes); }

 private:
  std::array<iovec, 2 * Link::max_batch> parts_;
  std::size_t count_;
  std::span<iovec> left_;  // the parts that are not transferred yet
};

Sum to_bytes(std::uint32_t crc) {
  Sum bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(crc >> (8 * i));
  return bytes;
}

// The size of the send buffer that a Unix socket gets. TCP adapts the size of a socket's buffer to the connection, but
// a Unix socket keeps its small default buffer. With a small buffer, sender and receiver must wake each other many
// times for each slab. Each wake-up can take milliseconds while other threads compute on all processors. Some systems
// limit the buffer to a smaller size.
constexpr int local_buffer_bytes = 2 << 20;

bool is_connected_stream(int descriptor) {
  int type = 0;
  socklen_t type_bytes = sizeof type;
  sockaddr_storage address;
  socklen_t address_bytes = sizeof address;
  return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_STREAM &&
         getpeername(descriptor, reinterpret_cast<sockaddr *>(&address), &address_bytes) == 0;
}

}  // namespace

Link::Link(int descriptor, const std::string &name) : name_(name), socket_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
  if (!is_connected_stream(socket_.get()))
    throw InputError("descriptor ", descriptor, " is no connected stream socket, so it is no link to ", name);
  // With the option TCP_NODELAY, the last bytes of a message are sent immediately. Only TCP sockets have this option,
  // so a failure of setsockopt() is ignored.
  const int yes = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  int domain = 0;
  socklen_t domain_bytes = sizeof domain;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) == 0 && domain == AF_UNIX)
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &local_buffer_bytes, sizeof local_buffer_bytes);
}

void Link::send(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0;
  for (std::size_t done = 0; done < bytes.size(); done += piece_bytes) {
    const auto piece = bytes.subspan(done, std::min(piece_bytes, bytes.size() - done));
    crc = crc32c(piece, crc);
    send_all(piece, MSG_MORE);
  }
  send_all(to_bytes(crc), 0);
  bytes_sent_ += bytes.size();
}

void Link::receive(std::span<std::byte> bytes) {
  std::uint32_t crc = 0;
  for (std::size_t done = 0; done < bytes.size(); done += piece_bytes) {
    const auto piece = bytes.subspan(done, std::min(piece_bytes, bytes.size() - done));
    receive_all(piece);
    crc = crc32c(piece, crc);
  }
  Sum sum;
  receive_all(sum);
  check(sum == to_bytes(crc));
  bytes_received_ += bytes.size();
}

void Link::send(Messages messages, const Completed &completed) {
  assert(messages.size() <= max_batch);
  if (messages.size() == 1) {
    send(messages[0]);
    return completed(1);
  }
  std::array<Sum, max_batch> sums;
  for (std::size_t i = 0; i < messages.size(); ++i) sums[i] = to_bytes(crc32c(messages[i]));
  Parts parts(messages, sums);
  for (std::size_t done = 0; !parts.empty();) {
    parts.advance(send_some(parts.header(), 0));
    const std::size_t first = done;
    for (; done < parts.complete(); ++done) bytes_sent_ += messages[done].size();
    if (done > first) completed(done - first);
  }
}

void Link::receive(Messages messages, const Completed &completed) {
  assert(messages.size() <= max_batch);
  if (messages.size() == 1) {
    receive(messages[0]);
    return completed(1);
  }
  std::array<Sum, max_batch> sums;
  Parts parts(messages, sums);
  for (std::size_t done = 0; !parts.empty();) {
    msghdr header = parts.header();
    parts.advance(receive_some(header, 0));
    const std::size_t first = done;
    for (; done < parts.complete(); ++done) {
      check(sums[done] == to_bytes(crc32c(messages[done])));
      bytes_received_ += messages[done].size();
    }
    if (done > first) completed(done - first);
  }
}

void Link::cancel() {
  cancelled_ = true;
  shutdown(socket_.get(), SHUT_RDWR);
}

void Link::send_all(std::span<const std::byte> bytes, int flags) const {
  while (!bytes.empty()) {
    iovec part{const_cast<std::byte *>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    bytes = bytes.subspan(send_some(header, flags));
  }
}

void Link::receive_all(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    iovec part{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    bytes = bytes.subspan(receive_some(header, MSG_WAITALL));
  }
}

// Sends at least one byte and returns the number of bytes sent.
std::size_t Link::send_some(const msghdr &parts, int flags) const {
  for (;;) {
    if (cancelled_) fail(0);
    const ssize_t sent = sendmsg(socket_.get(), &parts, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN)
      wait_for_room();
    else if (errno != EINTR)
      fail(errno);
  }
}

// Receives at least one byte and returns the number of bytes received.
std::size_t Link::receive_some(msghdr &parts, int flags) const {
  for (;;) {
    if (cancelled_) fail(0);
    const ssize_t received = recvmsg(socket_.get(), &parts, flags);
    if (received > 0) return static_cast<std::size_t>(received);
    if (received == 0) fail(0);
    if (errno == EAGAIN) {  // the socket is in non-blocking mode
      pollfd one{socket_.get(), POLLIN, 0};
      poll(&one, 1, -1);
    } else if (errno != EINTR)
      fail(errno);
  }
}

void Link::check(bool is_right) const {
  if (!is_right) throw CorruptionError("a message from ", name_, " is damaged: checksum mismatch");
}

// Waits until the socket has room for more bytes. A neighbour can cancel the link while the neighbour's process
// continues. After such a cancel, a TCP connection stays open, and it is possible that the socket never gets room. So
// this function also watches for the end of the neighbour's stream (POLLRDHUP), and fails at the end of the stream. The
// end of the stream always means an error: a neighbour without an error closes the connection only after it has
// received all bytes.
void Link::wait_for_room() const {
  pollfd one{socket_.get(), POLLOUT | POLLRDHUP, 0};
  poll(&one, 1, -1);
  if ((one.revents & POLLRDHUP) != 0 && (one.revents & POLLOUT) == 0) fail(0);
}

// Throws the exception for an errno. `error` is the errno, or 0 if the neighbour has closed the connection.
void Link::fail(int error) const {
  if (cancelled_) throw Cancelled("the connection to " + name_ + " was cancelled");
  const bool is_plain = error == 0 || error == EPIPE || error == ECONNRESET;
  throw CommunicationError(name_ + " has gone" + (is_plain ? "" : ": " + std::system_category().message(error)));
}

}  // namespace outcrop
