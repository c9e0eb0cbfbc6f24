// SPDX-License-Identifier: Apache-2.0
// What this machine has for each fabric, and what is missing with the command that mends it: for `r2bench
// doctor`.
#pragma once

#include <string>
#include <vector>

namespace r2bench {

struct Readiness {
  std::string fabric;
  std::vector<std::string> has;      ///< one fact a line
  std::vector<std::string> missing;  ///< one sentence each, with the command; empty: scenarios can run on it
  bool ready() const { return missing.empty(); }
};

/// `lib_dir`: the build's lib folder, with vhca/.
Readiness vhca_readiness(const std::string& lib_dir);
/// `python`: a path, empty when there is none. Makes nothing.
Readiness rxe_readiness(const std::string& python);
/// The host's own devices: names, links, rates, GIDs, NUMA nodes; two active ports are what a scenario needs
/// at least.
Readiness verbs_readiness();

/// NVIDIA GPUs, one fact a line: "0000:3b:00.0 NVIDIA H100, NUMA node 0". `root` is where /proc and /sys lie.
std::vector<std::string> gpus(const std::string& root = "/");

/// Whether NICs can reach GPU memory: "nvidia_peermem is loaded", "dma-buf (Linux 6.1, …)", or why not.
std::string gpu_direct();

}  // namespace r2bench
