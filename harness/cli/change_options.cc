// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/change_options.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "harness/cli/list_option.h"

namespace r2bench {

CLI::Option* add_seed(CLI::App& command, uint64_t& seed, const std::string& help) {
  return command.add_option("--seed", seed, help)
      ->check(
          [](const std::string& text) {
            uint64_t number = 0;
            const char* const end = text.data() + text.size();
            const auto [at, error] = std::from_chars(text.data(), end, number);
            if (error == std::errc() && at == end) return std::string();
            return "'" + text + "' is no whole number of at most 64 bits";
          },
          "");
}

void ChangeOptions::add_to(CLI::App& command, const std::string& group) {
  add_list(command, "--modes", modes,
           "Modes to use instead of the scenario's, separated by commas: baseline, migrate, "
           "balance, allreduce, or the label of one of its modes")
      ->group(group);
  has_repeats =
      command
          .add_option(
              "--repeats", repeats,
              "Number of rounds; each round injects the scenario's faults once (default: the scenario's)")
          ->check(CLI::Range(1, 10000))
          ->group(group);
  has_seed = add_seed(command, seed, "Seed of everything random (default: the scenario's)")->group(group);
  command.add_option("--set", set, "Override a key of the scenario, such as --set workload.bytes='4 MiB'")
      ->allow_extra_args(false)
      ->group(group);
}

LoadOptions ChangeOptions::load() const {
  LoadOptions options;
  options.modes = modes;
  if (has_repeats->count() > 0) options.repeats = repeats;
  if (has_seed->count() > 0) options.seed = seed;
  for (const std::string& text : set) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--set " + text + ": write --set key=value");
    options.set.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return options;
}

}  // namespace r2bench
