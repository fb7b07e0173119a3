#include "outcrop/storage/link.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
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

Sum to_bytes(std::uint32_t crc) {
  Sum bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(crc >> (8 * i));
  return bytes;
}

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
  // The last bytes of a message leave at once. A socket that is not a socket of TCP refuses this option.
  const int yes = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
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
  if (sum != to_bytes(crc)) throw CorruptionError("a message from ", name_, " is damaged: checksum mismatch");
  bytes_received_ += bytes.size();
}

void Link::cancel() {
  cancelled_ = true;
  shutdown(socket_.get(), SHUT_RDWR);
}

void Link::send_all(std::span<const std::byte> bytes, int flags) const {
  while (!bytes.empty()) {
    if (cancelled_) fail(0);
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), flags | MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    else if (errno == EAGAIN)
      wait_for_room();
    else if (errno != EINTR)
      fail(errno);
  }
}

void Link::receive_all(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    if (cancelled_) fail(0);
    const ssize_t received = recv(socket_.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    if (received > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    else if (received == 0)
      fail(0);
    else if (errno == EAGAIN) {  // the socket is in non-blocking mode
      pollfd one{socket_.get(), POLLIN, 0};
      poll(&one, 1, -1);
    } else if (errno != EINTR)
      fail(errno);
  }
}

// Waits until the socket has room for more bytes. If the neighbour has cancelled the link but its process goes on, the
// system keeps a connection of TCP, and there may never be room. But the system reports that the neighbour sends no
// more. Without an error, a neighbour closes the connection only when it has received everything.
void Link::wait_for_room() const {
  pollfd one{socket_.get(), POLLOUT | POLLRDHUP, 0};
  poll(&one, 1, -1);
  if ((one.revents & POLLRDHUP) != 0 && (one.revents & POLLOUT) == 0) fail(0);
}

// Throws the error for an errno. 0 means that the neighbour has closed the connection.
void Link::fail(int error) const {
  if (cancelled_) throw Cancelled("the connection to " + name_ + " was cancelled");
  const bool is_plain = error == 0 || error == EPIPE || error == ECONNRESET;
  throw CommunicationError(name_ + " has gone" + (is_plain ? "" : ": " + std::system_category().message(error)));
}

}  // namespace outcrop
