// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/bootstrap.h"

#include <arpa/inet.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace r2bench {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::string random_token() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != ssize_t(sizeof(bytes))) fail("getrandom");
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

Bootstrap::Bootstrap(size_t ranks, uint16_t port) : port_(port) {
  if (port == 0) {
    for (size_t r = 0; r < ranks; ++r) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
      pairs_.push_back({ends[0], ends[1]});
    }
    return;
  }
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) fail("socket");
  const int yes = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_, 64) != 0) {
    const int error = errno;
    close(listener_);
    errno = error;
    fail("port " + std::to_string(port) + " on the loopback");
  }
  for (size_t r = 0; r < ranks; ++r) tokens_.push_back(random_token());
}

Bootstrap::~Bootstrap() {
  for (const Pair& pair : pairs_) {
    if (pair.ours >= 0) close(pair.ours);
    if (pair.theirs >= 0) close(pair.theirs);
  }
  if (listener_ >= 0) close(listener_);
}

std::string Bootstrap::control(size_t rank) const {
  if (!pairs_.empty()) return "fd:3";
  return "tcp:" + std::to_string(port_) + ":" + tokens_[rank];
}

void Bootstrap::all_started() {
  for (Pair& pair : pairs_) {
    if (pair.theirs >= 0) close(pair.theirs);
    pair.theirs = -1;
  }
}

void Bootstrap::accept_callers() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) break;
    callers_.emplace_back(fd);
  }
  for (MessageSocket& caller : callers_) {
    const auto message = caller.receive(std::chrono::milliseconds(0));
    if (message && message->value("type", "") == "token")
      known_[message->value("token", "")] = std::move(caller);
  }
  std::erase_if(callers_, [](const MessageSocket& s) { return s.fd() < 0; });
}

MessageSocket Bootstrap::take(size_t rank) {
  if (!pairs_.empty()) return MessageSocket(std::exchange(pairs_[rank].ours, -1));
  accept_callers();
  const auto found = known_.find(tokens_[rank]);
  return found == known_.end() ? MessageSocket() : std::move(found->second);
}

}  // namespace r2bench
