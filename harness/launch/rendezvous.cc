// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/rendezvous.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

namespace r2bench {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kIntroduction{2000};  // of a caller
constexpr milliseconds kConnect{1000};       // to one address
constexpr milliseconds kBetweenTries{100};

/// Any address, of IPv4 or IPv6.
union Address {
  sockaddr any;
  sockaddr_in four;
  sockaddr_in6 six;
};

/// Of a listener for both families an IPv4 caller has an address of IPv6 that stands for its own.
Address plain(Address address) {
  if (address.any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&address.six.sin6_addr)) return address;
  Address four{};
  four.four.sin_family = AF_INET;
  four.four.sin_port = address.six.sin6_port;
  memcpy(&four.four.sin_addr, &address.six.sin6_addr.s6_addr[12], sizeof(four.four.sin_addr));
  return four;
}

std::string text_of(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.any.sa_family == AF_INET)
    inet_ntop(AF_INET, &address.four.sin_addr, text, sizeof(text));
  else
    inet_ntop(AF_INET6, &address.six.sin6_addr, text, sizeof(text));
  return text;
}

/// Those of IPv4 first. Addresses of one link only (fe80::) are left out: they mean nothing elsewhere.
void each_address(const std::function<void(const ifaddrs&, const Address&)>& look) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const sa_family_t family : {sa_family_t(AF_INET), sa_family_t(AF_INET6)}) {
    for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
      if (!entry->ifa_addr || entry->ifa_addr->sa_family != family || !(entry->ifa_flags & IFF_UP)) continue;
      Address address{};
      memcpy(&address, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address.six.sin6_addr)) continue;
      look(*entry, address);
    }
  }
  freeifaddrs(list);
}

int connect_to(const addrinfo& to, std::string& why) {
  const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0 && connect(fd, to.ai_addr, to.ai_addrlen) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      pollfd ready{fd, POLLOUT, 0};
      socklen_t length = sizeof(error);
      if (poll(&ready, 1, int(kConnect.count())) == 0)
        error = ETIMEDOUT;
      else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (fd >= 0 && error == 0) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  why = strerror(error);
  if (fd >= 0) close(fd);
  return -1;
}

/// A connected socket to the first of the host's addresses that answers, or -1 with the reason.
int connect_to_address(std::string host, const std::string& port, std::string& why) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    why = host + ": " + gai_strerror(error);
    return -1;
  }
  int fd = -1;
  for (const addrinfo* one = found; one && fd < 0; one = one->ai_next) fd = connect_to(*one, why);
  freeaddrinfo(found);
  if (fd < 0) why = host + ":" + port + ": " + why;
  return fd;
}

/// Listens for both families, for IPv4 alone where the kernel has no IPv6. -1 with errno.
int listen_at(uint16_t port, uint16_t& bound) {
  const int yes = 1, no = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    Address address{};
    address.any.sa_family = sa_family_t(family);
    if (family == AF_INET6) {
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
      address.six.sin6_port = htons(port);
    } else {
      address.four.sin_port = htons(port);
    }
    socklen_t length = family == AF_INET6 ? sizeof(address.six) : sizeof(address.four);
    if (bind(fd, &address.any, length) == 0 && listen(fd, 64) == 0 &&
        getsockname(fd, &address.any, &length) == 0) {
      bound = ntohs(family == AF_INET6 ? address.six.sin6_port : address.four.sin_port);
      return fd;
    }
    const int error = errno;
    close(fd);
    errno = error;
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) return -1;
  }
  return -1;
}

}  // namespace

Rendezvous::Rendezvous(std::string secret, uint16_t port)
    : secret_(std::move(secret)), listener_(listen_at(port, port_)) {
  if (listener_ < 0)
    throw std::system_error(errno, std::generic_category(), "TCP port " + std::to_string(port));
}

Rendezvous::~Rendezvous() { close(listener_); }

std::string Rendezvous::addresses() const {
  std::string text, loopback;
  each_address([&](const ifaddrs& entry, const Address& address) {
    const bool is_loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
    std::string& list = is_loopback ? loopback : text;
    const std::string host =
        address.any.sa_family == AF_INET6 ? "[" + text_of(address) + "]" : text_of(address);
    list += (list.empty() ? "" : ",") + host + ":" + std::to_string(port_);
  });
  return text + (text.empty() || loopback.empty() ? "" : ",") + loopback;
}

std::optional<Rendezvous::Caller> Rendezvous::accept(milliseconds wait) {
  pollfd ready{listener_, POLLIN, 0};
  if (poll(&ready, 1, int(wait.count())) <= 0) return std::nullopt;
  Address peer{};
  socklen_t length = sizeof(peer);
  const int fd = accept4(listener_, &peer.any, &length, SOCK_CLOEXEC);
  if (fd < 0) return std::nullopt;
  Caller caller{SecureLink(fd, secret_, SecureLink::End::kRunner, kIntroduction), {}};
  if (auto hello = caller.link.receive(kIntroduction)) {
    caller.hello = std::move(*hello);
    return caller;
  }
  refused_.push_back("a caller from " + text_of(plain(peer)) + " was sent away: " +
                     (caller.link.why().empty() ? "it said nothing" : caller.link.why()));
  return std::nullopt;
}

SecureLink call_runner(const std::string& addresses, const std::string& secret, const nlohmann::json& hello,
                       milliseconds wait, std::string& why) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  SecureLink link;
  do {
    std::istringstream list(addresses);
    for (std::string address; std::getline(list, address, ',');) {
      const size_t colon = address.rfind(':');
      if (colon == std::string::npos) continue;
      const int fd = connect_to_address(address.substr(0, colon), address.substr(colon + 1), why);
      if (fd < 0) continue;
      link = SecureLink(fd, secret, SecureLink::End::kAgent, kIntroduction);
      if (link.send(hello)) return link;
      why = link.why();
    }
    std::this_thread::sleep_for(kBetweenTries);
  } while (std::chrono::steady_clock::now() < deadline);
  return link;
}

std::string interface_of(int fd) {
  Address own{};
  socklen_t length = sizeof(own);
  if (getsockname(fd, &own.any, &length) != 0) return {};
  own = plain(own);
  std::string name;
  each_address([&](const ifaddrs& entry, const Address& address) {
    if (address.any.sa_family == own.any.sa_family && text_of(address) == text_of(own)) name = entry.ifa_name;
  });
  return name;
}

}  // namespace r2bench
