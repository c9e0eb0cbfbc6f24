// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/marked_processes.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace r2bench {
namespace {

constexpr int kRounds = 50;  // those that fork meanwhile are found in the next one
constexpr int kRoundMs = 10;

bool carries(pid_t pid, const std::string& variable) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry == variable) return true;
  return false;
}

size_t kill_round(const std::string& variable) {
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return 0;
  size_t count = 0;
  while (const dirent* entry = ::readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0 || pid == ::getpid()) continue;
    // Held by descriptor, so that the number cannot become somebody else's between the look and the signal.
    const int fd = int(::syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) continue;
    if (carries(pid, variable) && ::syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0) == 0) ++count;
    ::close(fd);
  }
  ::closedir(proc);
  return count;
}

}  // namespace

size_t kill_marked(const std::string& mark, const char* variable) {
  const std::string entry = std::string(variable) + "=" + mark;
  size_t count = 0;
  for (int round = 0; round < kRounds; ++round) {
    const size_t more = kill_round(entry);  // a zombie has no environment any more
    if (more == 0) break;
    count += more;
    ::poll(nullptr, 0, kRoundMs);
  }
  return count;
}

}  // namespace r2bench
