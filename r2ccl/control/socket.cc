// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/control/socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "r2ccl/control/interface.h"

namespace r2ccl::control {
namespace {

Error failure(const char* call) {
  return Error{ErrorCode::kSystem, std::string(call) + ": " + std::strerror(errno)};
}

socklen_t to_sockaddr(const Endpoint& endpoint, sockaddr_storage& out) {
  out = {};
  if (endpoint.family == AF_INET6) {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(out);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = endpoint.port;
    in6.sin6_scope_id = endpoint.scope;
    std::memcpy(&in6.sin6_addr, endpoint.address, 16);
    return sizeof in6;
  }
  auto& in4 = reinterpret_cast<sockaddr_in&>(out);
  in4.sin_family = AF_INET;
  in4.sin_port = endpoint.port;
  std::memcpy(&in4.sin_addr, endpoint.address, 4);
  return sizeof in4;
}

// A bit for each descriptor that a forked child must close. A fixed table, because a child of a process with
// threads may touch nothing that a lock or the allocator guards. Linux has no higher numbers unless
// fs.nr_open is raised; those stay open there.
constexpr int kNumbers = 1 << 20;
std::array<std::atomic<uint64_t>, kNumbers / 64> g_closed_in_child{};

uint64_t bit(int fd) { return uint64_t{1} << (fd % 64); }
bool has_bit(int fd) { return fd >= 0 && fd < kNumbers; }

}  // namespace

Endpoint endpoint_of(const sockaddr* address) {
  Endpoint endpoint;
  endpoint.family = uint16_t(address->sa_family);
  if (address->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
    endpoint.port = in6->sin6_port;
    endpoint.scope = in6->sin6_scope_id;
    std::memcpy(endpoint.address, &in6->sin6_addr, 16);
  } else {
    const auto* in4 = reinterpret_cast<const sockaddr_in*>(address);
    endpoint.port = in4->sin_port;
    std::memcpy(endpoint.address, &in4->sin_addr, 4);
  }
  return endpoint;
}

void tune(int fd, Silence silence) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  const bool is_short = silence == Silence::kShort;
  set(IPPROTO_TCP, TCP_KEEPIDLE, is_short ? 1 : 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, is_short ? 1 : 8);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, is_short ? 1'000 : 10'000);
}

Stream::Stream(Descriptor fd) : fd_(std::move(fd)) { fd_.close_in_child(); }

void close_all_in_child() {
  for (size_t word = 0; word < g_closed_in_child.size(); ++word) {
    if (g_closed_in_child[word].load() == 0) continue;  // a write would copy the page
    for (uint64_t bits = g_closed_in_child[word].exchange(0); bits != 0; bits &= bits - 1)
      ::close(int(word * 64) + std::countr_zero(bits));
  }
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  if (const int old = release(); old >= 0) ::close(old);
  fd_ = std::exchange(other.fd_, -1);
  closes_in_child_ = std::exchange(other.closes_in_child_, false);
  return *this;
}
Descriptor::~Descriptor() {
  if (const int fd = release(); fd >= 0) ::close(fd);
}
int Descriptor::release() {
  // Before it is closed: another thread may have the same number for something else then.
  if (std::exchange(closes_in_child_, false)) g_closed_in_child[size_t(fd_ / 64)].fetch_and(~bit(fd_));
  return std::exchange(fd_, -1);
}
void Descriptor::close_in_child() {
  if (closes_in_child_ || !has_bit(fd_)) return;
  closes_in_child_ = true;
  g_closed_in_child[size_t(fd_ / 64)].fetch_or(bit(fd_));
}

std::string text(const Endpoint& endpoint) {
  char buffer[INET6_ADDRSTRLEN] = "?";
  inet_ntop(endpoint.family, endpoint.address, buffer, sizeof buffer);
  return std::string(buffer) + ":" + std::to_string(ntohs(endpoint.port));
}

Result<Descriptor> listen_any(const InterfaceWish& wish, Endpoint& where, std::string* name) {
  auto all = interfaces();
  if (!all) return all.error();
  const Interface* interface = choose(*all, wish);
  if (!interface)
    return Error{ErrorCode::kSystem, "no network interface is up that fits '" + wish.names +
                                         "' (NCCL_SOCKET_IFNAME)" +
                                         (wish.family.empty() ? "" : " and " + wish.family)};
  std::optional<Endpoint> chosen = interface->address;
  chosen->port = 0;
  Descriptor fd(socket(chosen->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return failure("socket");
  sockaddr_storage address;
  socklen_t length = to_sockaddr(*chosen, address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return failure("bind");
  if (listen(fd.get(), SOMAXCONN) != 0) return failure("listen");
  length = sizeof address;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return failure("getsockname");
  where = endpoint_of(reinterpret_cast<sockaddr*>(&address));
  if (name) *name = interface->name;
  return fd;
}

Result<Descriptor> start_connect(const Endpoint& where, bool* refused, Silence silence) {
  if (refused) *refused = false;
  Descriptor fd(socket(where.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return failure("socket");
  fd.close_in_child();
  tune(fd.get(), silence);
  sockaddr_storage address;
  const socklen_t length = to_sockaddr(where, address);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 && errno != EINPROGRESS) {
    if (refused) *refused = errno == ECONNREFUSED;
    return Error{ErrorCode::kSystem, "connect to " + text(where) + ": " + std::strerror(errno)};
  }
  return fd;
}

Reach reach(const Descriptor& connection) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return Reach::kBroken;
  if (error != 0) return error == ECONNREFUSED ? Reach::kRefused : Reach::kBroken;
  pollfd look{connection.get(), POLLOUT | POLLRDHUP, 0};
  if (poll(&look, 1, 0) <= 0) return Reach::kPending;
  if (look.revents & (POLLERR | POLLHUP | POLLRDHUP)) return Reach::kBroken;
  return Reach::kReached;
}

bool Stream::broken(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK) return false;
  silent_ = error == ETIMEDOUT;
  return true;
}

bool Stream::flush() {
  while (!outgoing.empty()) {
    const ssize_t sent = send(fd_.get(), outgoing.data(), outgoing.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == ENOTCONN || errno == EINPROGRESS) return true;
      return !broken(errno);
    }
    outgoing.erase(outgoing.begin(), outgoing.begin() + sent);
  }
  return true;
}

bool Stream::fill() {
  // A peer cannot make this buffer grow beyond one read per call; frames are bounded and taken off each time.
  std::byte chunk[8192];
  for (;;) {
    const ssize_t got = recv(fd_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (got > 0) {
      incoming.insert(incoming.end(), chunk, chunk + got);
      return true;
    }
    if (got == 0) return false;
    if (errno == EINTR) continue;
    return !broken(errno);
  }
}

}  // namespace r2ccl::control
