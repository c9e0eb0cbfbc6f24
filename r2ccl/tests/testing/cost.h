// SPDX-License-Identifier: Apache-2.0
// Test support: what a process costs, as the kernel counts it; of any process of the same user.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "r2ccl/tests/testing/two_processes.h"

namespace r2ccl::testing_support {

/// Queue pairs of a process with so many channels, R2CC_STANDBYS of which may have a path that stands by. Of
/// both processes: an active path and, for the first of them, a standby; each with a probe's pair.
inline size_t queue_pairs_of_both(int channels, int standbys) {
  return size_t(2 * 2 * (channels + std::min(channels, standbys)));
}

struct Cost {
  long own_kib = -1;     ///< anonymous memory
  long shared_kib = -1;  ///< memory of the virtual HCA that the process has touched
  int threads = 0;
  double cpu_seconds = 0;         ///< of all threads that are there, but for …
  double device_cpu_seconds = 0;  ///< … the virtual HCA's own, which a real NIC would not need

  static Cost of(pid_t pid) {
    Cost cost;
    const std::string process = "/proc/" + std::to_string(pid);
    std::ifstream status(process + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("RssAnon:", 0) == 0) cost.own_kib = std::stol(line.substr(8));
      if (line.rfind("RssShmem:", 0) == 0) cost.shared_kib = std::stol(line.substr(9));
    }
    DIR* tasks = opendir((process + "/task").c_str());
    if (!tasks) return cost;
    while (const dirent* entry = readdir(tasks)) {
      if (entry->d_name[0] == '.') continue;
      ++cost.threads;
      const std::string task = process + "/task/" + entry->d_name;
      uint64_t nanoseconds = 0;
      std::string name;
      std::ifstream(task + "/schedstat") >> nanoseconds;
      std::ifstream(task + "/comm") >> name;
      (name == "vhca-engine" ? cost.device_cpu_seconds : cost.cpu_seconds) += double(nanoseconds) / 1e9;
    }
    closedir(tasks);
    return cost;
  }
};

}  // namespace r2ccl::testing_support
