// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/rank_control.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace r2bench {
namespace {

int control_socket(const std::string& where, std::string& token) {
  if (where.rfind("fd:", 0) == 0) return std::atoi(where.c_str() + 3);
  const size_t colon = where.find(':', 4);
  if (where.rfind("tcp:", 0) != 0 || colon == std::string::npos) return -1;
  token = where.substr(colon + 1);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(std::atoi(where.c_str() + 4)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  return -1;
}

}  // namespace

std::optional<MessageSocket> control_connection(const char* program) {
  const char* where = std::getenv("R2BENCH_CONTROL");
  std::string token;
  const int fd = where ? control_socket(where, token) : -1;
  if (fd < 0) {
    fprintf(stderr, "%s is started by r2bench; R2BENCH_CONTROL is '%s'\n", program,
            where ? where : "not set");
    return std::nullopt;
  }
  MessageSocket socket(fd);
  if (!token.empty()) socket.send({{"type", "token"}, {"token", token}});
  return socket;
}

}  // namespace r2bench
