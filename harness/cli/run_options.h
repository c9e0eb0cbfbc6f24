// SPDX-License-Identifier: Apache-2.0
// The command line of `run`.
#pragma once

#include "harness/cli/change_options.h"

namespace r2bench {

struct RunCommandOptions {
  RunArguments arguments;
  ChangeOptions changes;
  bool no_plot = false;
  CLI::App* command = nullptr;

  void add_to(CLI::App& app);
  /// Throws UsageError.
  RunArguments finished() const;
};

}  // namespace r2bench
