// SPDX-License-Identifier: Apache-2.0
// TCP ports for programs under test, which choose none by themselves.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <stdexcept>

namespace vhca::test {

/// A port below those that the kernel hands out by itself, on which nobody listens and no old connection
/// lingers; within a process another one each time. Throws std::runtime_error when a thousand tries find none.
inline int free_tcp_port() {
  static unsigned next = std::random_device{}() % 12000;
  for (int i = 0; i < 1000; ++i) {
    const int port = 20000 + int(next++ % 12000);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (free) return port;
  }
  throw std::runtime_error("no free TCP port between 20000 and 31999");
}

}  // namespace vhca::test
