// A link is the connection to a neighbour: a stream socket whose other end belongs to another process or another
// thread. The link gets a connected socket from its creator.
//
//     message:  | bytes | CRC32C of the bytes: 4 bytes, little endian |
//
// The sender and the receiver know the order and the lengths of all messages from their plans. So messages have no
// headers. One system call can transfer several short messages. The combination of messages does not change the bytes
// on the connection. So the sender and the receiver can combine messages in different ways.
//
// All calls block. The link starts no thread, and allocates no memory after its construction. The functions of a link
// also block if the socket is in non-blocking mode. For example, settimeout() of Python sets the non-blocking mode.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "outcrop/storage/file.hpp"

struct msghdr;

namespace outcrop {

/// Sends messages to a neighbour and receives messages. One thread may send while another thread receives.
class Link {
 public:
  /// Duplicates `descriptor`, which must be a connected stream socket. The caller may then close `descriptor`. `name`
  /// is the name of the neighbour, such as "rank 3". Error messages contain `name`. Throws InputError.
  Link(int descriptor, const std::string &name);

  /// These two functions transfer one message. send() and receive() throw CommunicationError if the neighbour has
  /// closed its socket or cannot be reached. After cancel(), both functions throw Cancelled. receive() throws
  /// CorruptionError if the checksum is wrong. After an error, the link cannot be used.
  void send(std::span<const std::byte> bytes);
  void receive(std::span<std::byte> bytes);

  static constexpr std::size_t max_batch = 64;

  /// These two functions transfer up to `max_batch` messages in order, with as few system calls as possible. A system
  /// call can complete only some of the messages. After each system call, the functions call `completed` with the
  /// number of messages that this system call has completed. So the caller can use a message before later messages are
  /// complete. The memory of received messages must not overlap. The functions throw the same errors as the functions
  /// for one message.
  using Messages = std::span<const std::span<std::byte>>;
  using Completed = std::function<void(std::size_t)>;
  void send(Messages messages, const Completed &completed);
  void receive(Messages messages, const Completed &completed);

  /// Closes the connection. Calls of send() and receive() that are running in this process end soon and throw
  /// Cancelled. Calls in the neighbour's process fail. Any thread may call this function.
  void cancel();

  const std::string &name() const { return name_; }

  /// bytes_sent() and bytes_received() return the number of bytes of all complete messages, without their checksums.
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  void send_all(std::span<const std::byte> bytes, int flags) const;
  void receive_all(std::span<std::byte> bytes) const;
  std::size_t send_some(const msghdr &parts, int flags) const;
  std::size_t receive_some(msghdr &parts, int flags) const;
  void check(bool is_right) const;
  void wait_for_room() const;
  [[noreturn]] void fail(int error) const;

  const std::string name_;
  Descriptor socket_;
  std::atomic<bool> cancelled_{false};
  std::atomic<std::uint64_t> bytes_sent_{0}, bytes_received_{0};
};

}  // namespace outcrop
