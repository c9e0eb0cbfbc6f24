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

std::string text_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return text;
}

void each_address(const std::function<void(const ifaddrs&, const sockaddr_in&)>& look) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next)
    if (entry->ifa_addr && entry->ifa_addr->sa_family == AF_INET && (entry->ifa_flags & IFF_UP))
      look(*entry, *reinterpret_cast<const sockaddr_in*>(entry->ifa_addr));
  freeifaddrs(list);
}

/// A connected socket, or -1 with the reason.
int connect_to_address(const std::string& host, const std::string& port, std::string& why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    why = host + ": " + gai_strerror(error);
    return -1;
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = 0;
  if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
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
  freeaddrinfo(found);
  if (fd >= 0 && error == 0) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  why = host + ":" + port + ": " + strerror(fd < 0 ? errno : error);
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace

Rendezvous::Rendezvous(std::string secret, uint16_t port) : secret_(std::move(secret)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(address);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const int error = errno;
    if (listener_ >= 0) close(listener_);
    throw std::system_error(error, std::generic_category(), "TCP port " + std::to_string(port));
  }
  port_ = ntohs(address.sin_port);
}

Rendezvous::~Rendezvous() { close(listener_); }

std::string Rendezvous::addresses() const {
  std::string text, loopback;
  each_address([&](const ifaddrs& entry, const sockaddr_in& address) {
    const bool is_loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
    std::string& list = is_loopback ? loopback : text;
    list += (list.empty() ? "" : ",") + text_of(address) + ":" + std::to_string(port_);
  });
  return text + (text.empty() || loopback.empty() ? "" : ",") + loopback;
}

std::optional<Rendezvous::Caller> Rendezvous::accept(milliseconds wait) {
  pollfd ready{listener_, POLLIN, 0};
  if (poll(&ready, 1, int(wait.count())) <= 0) return std::nullopt;
  sockaddr_in peer{};
  socklen_t length = sizeof(peer);
  const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC);
  if (fd < 0) return std::nullopt;
  Caller caller{SecureLink(fd, secret_, SecureLink::End::kRunner, kIntroduction), {}};
  if (auto hello = caller.link.receive(kIntroduction)) {
    caller.hello = std::move(*hello);
    return caller;
  }
  refused_.push_back("a caller from " + text_of(peer) + " was sent away: " +
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
  sockaddr_in own{};
  socklen_t length = sizeof(own);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return {};
  std::string name;
  each_address([&](const ifaddrs& entry, const sockaddr_in& address) {
    if (address.sin_addr.s_addr == own.sin_addr.s_addr) name = entry.ifa_name;
  });
  return name;
}

}  // namespace r2bench
