// SPDX-License-Identifier: Apache-2.0
// A rank of the engine nccl: takes its configuration from the runner, makes its communicators, runs verified
// operations for as long as the runner grants them, and reports. The whole life of one r2bench-nccl-rank
// process.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "harness/workload/nccl/communicators.h"
#include "harness/workload/nccl/gpu_data.h"
#include "harness/workload/nccl/nccl_library.h"
#include "harness/workload/nccl/nccl_options.h"
#include "harness/workload/runner_talk.h"

namespace r2bench {

class NcclRank {
 public:
  explicit NcclRank(MessageSocket socket) : talk_(std::move(socket)) {}

  /// Everything from the first message to the last, then ends the process with a RankExit: threads of NCCL
  /// and of the driver may never end.
  [[noreturn]] int run();

 private:
  void set_up();
  void greet(const cuda::Gpu& gpu);
  void iterate();
  /// One operation on prepared buffers: run, compare. A warm-up has no number and leaves no trace.
  void operate(std::optional<uint64_t> number);
  /// Replaces the communicators within operation `number`, or before it; this rank may be left out then.
  void renew(uint64_t number);
  /// Starts the operation on the group's communicators and waits for its end.
  void carry_out(bool renews, std::optional<uint64_t> number);
  /// Throws RunnerTalk::Aborted when the runner has ended the job.
  void look_up() const {
    if (talk_.aborted()) throw RunnerTalk::Aborted{};
  }
  void verify();
  void report_correctness(const char* type);
  int fail(const char* kind, const std::string& text, int exit_code);

  RunnerTalk talk_;
  RankConfig config_;
  NcclOptions options_;
  std::unique_ptr<nccl::Library> nccl_;
  std::unique_ptr<GpuData> data_;
  std::unique_ptr<Communicators> communicators_;

  bool left_out_ = false;    ///< of the communicators that the others have gone on with
  uint64_t operations_ = 0;  ///< warm-ups included
  uint64_t wrong_ = 0, reported_wrong_ = 0, checked_ = 0, checked_iterations_ = 0;
  std::optional<uint64_t> cpu_from_ns_;  ///< when the first counted operation began
  uint64_t cpu_ns_ = 0;
  uint64_t cpu_by_side_ns_[2] = {};  ///< within counted operations
};

}  // namespace r2bench
