// SPDX-License-Identifier: Apache-2.0
// CUDA's Multi-Process Service for the ranks of a run, so that processes that share a GPU run side by side
// and not in turns. A daemon of our own, with its own pipe folder: it changes no setting of a GPU and serves
// nobody else.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>

namespace r2bench {

class MpsDaemon {
 public:
  /// Starts nvidia-cuda-mps-control; where CUDA_MPS_PIPE_DIRECTORY is set, the user's own is taken instead.
  /// Throws UsageError when it is not found or does not start. Call it while no rank runs. `bound`: of its
  /// start, and of its end.
  explicit MpsDaemon(std::chrono::seconds bound = std::chrono::seconds(60));
  /// Ends it. It ends as well, with its folder, when this process dies in any way.
  ~MpsDaemon();
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  /// What its clients need.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  /// For the result: "of this run", or the user's pipe folder.
  std::string describe() const;

 private:
  void start_keeper(const std::string& folder, std::chrono::seconds bound);

  std::map<std::string, std::string> environment_;
  std::string users_;  ///< the pipe folder of the user's own daemon
  pid_t keeper_ = -1;  ///< waits for the end of this process or of the pipe, then quits the daemon
  int keeper_pipe_ = -1;
};

}  // namespace r2bench
