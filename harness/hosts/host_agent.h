// SPDX-License-Identifier: Apache-2.0
// What runs on each machine of a job besides its ranks: does there what the runner says, with a LocalHost,
// and tells it what happens. It ends with the connection to the runner and takes everything with it: nothing
// of a job lives longer than its agent, and no agent longer than its runner.
#pragma once

#include <string>

#include "harness/launch/secure_link.h"

namespace r2bench {

/// What the agent tells first: facts_of_this_host(), its place among those that the launcher started, and the
/// build. `order`, `count`: which of how many.
nlohmann::json agent_hello(int order, int count);

/// Serves the runner at the other end of `link` until that says so or is gone. The folders are the build's.
/// Returns why it ended; empty: the runner said so.
std::string serve_runner(SecureLink link, const std::string& bin_dir, const std::string& lib_dir);

}  // namespace r2bench
