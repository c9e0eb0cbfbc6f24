// SPDX-License-Identifier: Apache-2.0
// What runs in the rxe fabric's guest: scenarios of `run`, the command of `guest`, the conformance suite.
#pragma once

#include <array>
#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/cli/commands.h"

namespace r2bench {

/// Whether rxe devices can be made without a guest (R2BENCH_RXE_HERE=1, as in the guest itself).
bool rxe_is_here();

/// The folder that the guest boots from, made if needed (minutes: a kernel package of 70 MB is fetched;
/// console.err says so). Ends early, with an empty path, when `cancel` becomes true. Throws UsageError with
/// what is missing and how to get it.
std::string guest_image(const Console& console, const std::atomic<bool>& cancel);

/// Runs `command` in a fresh guest in this working directory; what it prints goes to the console. `writable`:
/// a folder that exists, or empty. Returns its exit status. Throws UsageError.
int run_in_rxe_guest(const std::vector<std::string>& command, const std::filesystem::path& writable,
                     const Console& console, const std::atomic<bool>& cancel);

/// The same for one command in each of two guests (run_in_two_guests); in each the other is known as node0 or
/// node1. Each line that is printed says whose it is. Returns the first status that is not 0.
int run_in_two_rxe_guests(const std::array<std::vector<std::string>, 2>& commands,
                          const std::filesystem::path& writable, const Console& console,
                          const std::atomic<bool>& cancel);

/// `run --fabric rxe` outside of the guest: the same command in it, its results in the same folder, its exit
/// status.
int run_scenarios_in_guest(const RunArguments& arguments, const std::vector<Scenario>& scenarios,
                           const Console& console);

}  // namespace r2bench
