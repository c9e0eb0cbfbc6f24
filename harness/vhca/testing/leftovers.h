// SPDX-License-Identifier: Apache-2.0
// Who still has a fabric's memory, however it came by it: the proof that nothing is left behind.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace vhca::test {

// The memory of a fabric as the kernel knows it; stays valid when the fabric is gone.
struct MemoryIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  // `path` as in VHCA_FABRIC.
  static MemoryIdentity of(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? MemoryIdentity{status.st_dev, status.st_ino}
                                              : MemoryIdentity{};
  }
};

inline bool maps_text(pid_t pid, const std::string& text) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(text) != std::string::npos) return true;
  return false;
}

inline bool has_open(pid_t pid, const MemoryIdentity& memory) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* const fds = ::opendir(folder.c_str());
  if (!fds) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(fds)) {
    struct stat status {};
    found |= ::stat((folder + "/" + entry->d_name).c_str(), &status) == 0 && status.st_dev == memory.device &&
             status.st_ino == memory.inode;
  }
  ::closedir(fds);
  return found;
}

// Every process that has it mapped or open.
inline std::vector<pid_t> users_of(const MemoryIdentity& memory) {
  char mapped[64];  // as in proc(5): device and inode of each mapping
  std::snprintf(mapped, sizeof mapped, "%02x:%02x %llu ", ::major(memory.device), ::minor(memory.device),
                static_cast<unsigned long long>(memory.inode));
  std::vector<pid_t> users;
  DIR* const proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0 && (maps_text(pid, mapped) || has_open(pid, memory))) users.push_back(pid);
  }
  ::closedir(proc);
  return users;
}

}  // namespace vhca::test
