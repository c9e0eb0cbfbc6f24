// SPDX-License-Identifier: Apache-2.0
// The field's words for numbers of verbs.h and errno.h. Pure: the numbers are written down here, and the test
// compares them with the headers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace faultinject {

// Opcodes of send work requests, "write", "write_imm", "send", … (enum ibv_wr_opcode).
std::optional<int> opcode_number(std::string_view name);
const std::vector<std::string>& opcode_names();

// Completion statuses, "RETRY_EXC_ERR" (enum ibv_wc_status); the prefix IBV_WC_ and small letters are
// accepted.
std::optional<int> status_number(std::string_view name);
const std::vector<std::string>& status_names();
std::string status_name(int number);  // the number itself where it has no name

// Async events, "PORT_ERR" (enum ibv_event_type); the prefix IBV_EVENT_ and small letters are accepted.
std::optional<int> event_number(std::string_view name);
const std::vector<std::string>& event_names();
std::string event_name(int number);

// Errors, "ENOMEM".
std::optional<int> errno_number(std::string_view name);
const std::vector<std::string>& errno_names();
std::string errno_name(int number);

}  // namespace faultinject
