// SPDX-License-Identifier: Apache-2.0
// Non-blocking TCP for control messages, and the choice of the interface they use.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/control/endpoint.h"

namespace r2ccl::control {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept { *this = std::move(other); }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  int release();
  /// A forked child closes its copy, too: a socket that lives on there would answer for its dead parent.
  void close_in_child();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
  bool closes_in_child_ = false;
};
/// In a forked child: closes its copies of all those, so that the peers learn of the parent's end when it
/// comes. Async-signal-safe.
void close_all_in_child();

/// How soon the kernel gives up a connection over which nothing gets through, neither data nor its reset.
/// A stopped process is not affected: its kernel goes on acknowledging.
enum class Silence : uint8_t {
  kLong,   ///< 10 s: nobody makes another connection
  kShort,  ///< 1 to 1.5 s when something is sent, 2 s when nothing is: the conversation goes on over the next
           ///< one
};

struct InterfaceWish;  // interface.h
/// Listens on an ephemeral port of the interface that choose() takes; `interface` becomes its name.
Result<Descriptor> listen_any(const InterfaceWish& wish, Endpoint& where, std::string* interface = nullptr);
/// `address` is an IPv4 or IPv6 one.
Endpoint endpoint_of(const sockaddr* address);
/// Starts a connection; it is established when the descriptor becomes writable. A forked child closes its
/// copy. With `refused`: whether it was refused at once, because nobody listens there.
Result<Descriptor> start_connect(const Endpoint& where, bool* refused = nullptr,
                                 Silence silence = Silence::kLong);

Reach reach(const Descriptor& connection);

/// Options of every control connection: no delay, and `silence`.
void tune(int fd, Silence silence = Silence::kLong);

/// Bytes on their way in and out of one connection. A forked child has no copy of it.
class Stream {
 public:
  Stream() = default;
  explicit Stream(Descriptor fd);
  Stream(Stream&&) = default;
  Stream& operator=(Stream&& other) noexcept {
    close();
    fd_ = std::move(other.fd_);
    silent_ = other.silent_;
    incoming = std::move(other.incoming);
    outgoing = std::move(other.outgoing);
    return *this;
  }
  ~Stream() { close(); }
  int fd() const { return fd_.get(); }
  bool open() const { return bool(fd_); }
  void close() { fd_ = Descriptor(); }
  /// Sends what it can of `outgoing`. False: the connection is broken.
  bool flush();
  /// Reads what is there into `incoming`. False: the peer closed it, or it is broken.
  bool fill();
  bool wants_to_write() const { return !outgoing.empty(); }
  /// It is broken because nothing got through, and nobody said so: see Silence.
  bool silent() const { return silent_; }

  std::vector<std::byte> incoming;
  std::vector<std::byte> outgoing;

 private:
  bool broken(int error);
  Descriptor fd_;
  bool silent_ = false;
};

}  // namespace r2ccl::control
