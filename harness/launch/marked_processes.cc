// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/marked_processes.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

extern char** environ;

namespace r2bench {
namespace {

constexpr int kRounds = 50;  // those that fork meanwhile are found in the next one
constexpr int kRoundMs = 10;
constexpr int kRoundsWithout = 2;

bool is_mark(const char* entry) {
  for (const char* variable : {kMarkVariable, kCommandMarkVariable}) {
    const size_t length = std::strlen(variable);
    if (std::strncmp(entry, variable, length) == 0 && entry[length] == '=') return true;
  }
  return false;
}

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
  return kill_rounds([&] { return kill_round(entry); });  // a zombie has no environment any more
}

size_t kill_rounds(const std::function<size_t()>& kill_round) {
  size_t count = 0;
  int without = 0;
  for (int round = 0; round < kRounds; ++round) {
    const size_t more = kill_round();
    count += more;
    without = more == 0 ? without + 1 : 0;
    if (without == kRoundsWithout) break;
    ::poll(nullptr, 0, kRoundMs);
  }
  return count;
}

void blank_marks() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (is_mark(*entry)) (*entry)[0] = '_';
}

std::vector<char*> environment_without_marks() {
  std::vector<char*> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (!is_mark(*entry)) entries.push_back(*entry);
  entries.push_back(nullptr);
  return entries;
}

}  // namespace r2bench
