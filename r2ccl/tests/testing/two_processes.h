// SPDX-License-Identifier: Apache-2.0
// Test support: two processes on two nodes of a virtual fabric, each with its own Net. The fabric's library
// must be first in LD_LIBRARY_PATH (ctest sets it). Failed expectations in a child are counted in its exit
// status.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "harness/vhca/fabric/fabric_host.h"
#include "r2ccl/service/net.h"

namespace r2ccl::testing_support {

using Environment = std::map<std::string, std::string>;

/// One end of the out-of-band link that carries handles between the processes.
struct Link {
  int fd = -1;
  void send(const void* data, size_t bytes) const {
    ASSERT_EQ(::send(fd, data, bytes, MSG_NOSIGNAL), ssize_t(bytes));
  }
  bool receive(void* data, size_t bytes) const {
    size_t got = 0;
    while (got < bytes) {
      const ssize_t n = read(fd, static_cast<char*>(data) + got, bytes - got);
      if (n < 0 && errno == EINTR) continue;  // it was stopped meanwhile
      if (n <= 0) return false;
      got += size_t(n);
    }
    return true;
  }
};

inline void say(const Link& link) { link.send("!", 1); }
inline void wait_for_word(const Link& link) {
  char word;
  EXPECT_TRUE(link.receive(&word, 1));
}

inline vhca::FabricHost make_fabric(int nodes, int nics, uint64_t rate = 0,
                                    std::chrono::nanoseconds one_way = {}) {
  vhca::FabricSpec spec;
  for (int n = 0; n < nodes; ++n)
    spec.nodes.push_back({"node" + std::to_string(n),
                          std::vector<vhca::PortSpec>(size_t(nics), vhca::PortSpec{rate, one_way})});
  return vhca::FabricHost::create(spec);
}

struct Child {
  pid_t pid = -1;
  Link link;
  /// Exit status of a child that has ended by itself; a child that hangs is killed and reported as 124.
  int wait(std::chrono::seconds bound = std::chrono::seconds(30)) const {
    int status = 0;
    const auto deadline = std::chrono::steady_clock::now() + bound;
    while (waitpid(pid, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return 124;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
};

/// Starts `body` in a child process on `node`. The parent's end of the link is in the result.
inline Child start(const vhca::FabricHost& fabric, int node, const Environment& environment,
                   const std::function<void(const Link&)>& body) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const timeval patience{.tv_sec = 60,
                         .tv_usec = 0};  // whoever waits for a process that has died must not wait for ever
  for (const int end : ends)
    EXPECT_EQ(setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    setenv("VHCA_FABRIC", fabric.path().c_str(), 1);
    setenv("VHCA_NODE", ("node" + std::to_string(node)).c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    body(Link{ends[1]});
    fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  close(ends[1]);
  return {pid, Link{ends[0]}};
}

/// Connects as NCCL does: again and again until it is ready. nullptr and a failed expectation after 20 s.
template <typename Try>
Channel* until_ready(Try attempt) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < deadline) {
    Result<Channel*> result = attempt();
    if (!result) {
      ADD_FAILURE() << result.error().message;
      return nullptr;
    }
    if (*result) return *result;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "not connected within 20 s";
  return nullptr;
}

}  // namespace r2ccl::testing_support
