// SPDX-License-Identifier: Apache-2.0
// The control connection of a rank program: R2BENCH_CONTROL names it ("fd:N" or "tcp:PORT:TOKEN").
#pragma once

#include <optional>

#include "harness/launch/message_socket.h"

namespace r2bench {

/// Connects and says the token. nullopt: this process was not started by r2bench; the reason is on stderr.
std::optional<MessageSocket> control_connection(const char* program);

}  // namespace r2bench
