// SPDX-License-Identifier: Apache-2.0
// The asking end, for commands: finds what runs, and asks it one thing after the other.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/control/control_socket.h"
#include "harness/launch/message_socket.h"

namespace r2bench {

/// The server went away in the middle.
class ControlLost : public ControlError {
 public:
  using ControlError::ControlError;
};

/// Sends `request` and returns the answer. Throws ControlError with the server's own words when it is an
/// error, or when none came within ten seconds; ControlLost when the connection ended.
nlohmann::json ask(MessageSocket& server, const nlohmann::json& request);

/// Connects to `name`, or, when that is empty, to the only one that runs. Throws ControlError when there is
/// none, or when there are several (it says which). `chosen` becomes the name.
MessageSocket connect_to_running(const std::string& name, std::string& chosen);

}  // namespace r2bench
