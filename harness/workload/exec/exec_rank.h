// SPDX-License-Identifier: Apache-2.0
// A rank of the engine exec: runs the user's command when the runner says so, tells it what the command's
// output says, and how it ended. The whole life of one r2bench-exec-rank process.
#pragma once

#include <optional>
#include <string>

#include "harness/workload/exec/command.h"
#include "harness/workload/exec/exec_options.h"
#include "harness/workload/exec/output_reader.h"
#include "harness/workload/runner_talk.h"

namespace r2bench {

class ExecRank {
 public:
  explicit ExecRank(MessageSocket socket) : talk_(std::move(socket)) {}

  /// Everything from the first message to the last, then ends the process with a RankExit.
  [[noreturn]] int run();

 private:
  /// Runs the command to its end. Returns a RankExit.
  int run_command();
  void hear_line(OutputReader& reader, const std::string& line);
  void report(const OutputReader& reader, const char* type);
  int fail(const char* kind, const std::string& text, int exit_code);

  RunnerTalk talk_;
  std::string label_;
  ExecOptions options_;
  std::optional<Command> command_;  ///< what it leaves behind ends with the job, not with the command
};

}  // namespace r2bench
