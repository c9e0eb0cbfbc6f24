// SPDX-License-Identifier: Apache-2.0
#include "faultinject/preload/ended_descriptor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace faultinject {
namespace {

constexpr int kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY, which older headers lack: it needs no privilege

// Which epoll sets of this process have `fd`, and with what interest. The kernel tells of it in
// /proc/self/fdinfo; a set that is no descriptor of this process any more is not found.
std::vector<std::pair<int, epoll_event>> epoll_sets_with(int fd) {
  std::vector<std::pair<int, epoll_event>> found;
  DIR* folder = opendir("/proc/self/fdinfo");
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    const int set = atoi(entry->d_name);
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", set);
    FILE* file = entry->d_name[0] != '.' ? fopen(path, "re") : nullptr;
    if (file == nullptr) continue;
    while (fgets(line, sizeof line, file) != nullptr) {
      int target = -1;
      unsigned events = 0;
      unsigned long long data = 0;
      if (sscanf(line, "tfd: %d events: %x data: %llx", &target, &events, &data) != 3 || target != fd)
        continue;
      epoll_event interest{};
      interest.events = events;
      interest.data.u64 = data;
      found.emplace_back(set, interest);
    }
    fclose(file);
  }
  closedir(folder);
  return found;
}

// A descriptor that polls as POLLERR for ever. A userfaultfd does so until it is set up; a write to it, as of
// a provider in user space that reports an event there, fails. Where it is not permitted: a pipe's end whose
// peer is closed, where such a write raises SIGPIPE. -1: none.
int make_ended() {
  const long fault_descriptor = syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly);
  if (fault_descriptor >= 0) return int(fault_descriptor);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  close(ends[0]);
  return ends[1];
}

}  // namespace

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, 0) > 0 && (p.revents & POLLIN) != 0;
}

bool end_descriptor(int fd) {
  const int ended = make_ended();
  if (ended < 0) return false;
  const auto sets = epoll_sets_with(fd);
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK) != 0) fcntl(ended, F_SETFL, O_NONBLOCK);
  dup3(ended, fd, O_CLOEXEC);
  close(ended);
  // A set forgets a description with its last descriptor.
  for (auto [set, interest] : sets) epoll_ctl(set, EPOLL_CTL_ADD, fd, &interest);
  return true;
}

}  // namespace faultinject
