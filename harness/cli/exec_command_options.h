// SPDX-License-Identifier: Apache-2.0
// The command lines of `exec` and `inject`.
#pragma once

#include <string>

#include "harness/cli/commands.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace r2bench {

struct ExecCommandOptions {
  ExecArguments arguments;
  CLI::App* command = nullptr;

  void add_to(CLI::App& app);
  /// Throws UsageError for a rate or a latency that is none.
  ExecArguments finished();

 private:
  std::string fabric_, rate_, latency_, link_;
  int nodes_ = 0, nics_ = 0, ports_ = 0, mtu_ = 0;
  uint64_t seed_ = 0;
  CLI::Option *has_fabric_ = nullptr, *has_nodes_ = nullptr, *has_nics_ = nullptr, *has_rate_ = nullptr,
              *has_latency_ = nullptr, *has_seed_ = nullptr, *has_link_ = nullptr, *has_ports_ = nullptr,
              *has_mtu_ = nullptr;
};

struct InjectOptions {
  InjectArguments arguments;

  void add_to(CLI::App& app);
  bool parsed() const;
  InjectArguments finished();

 private:
  CLI::App *command_ = nullptr, *add_ = nullptr, *remove_ = nullptr, *heal_ = nullptr, *heal_alone_ = nullptr;
};

}  // namespace r2bench
