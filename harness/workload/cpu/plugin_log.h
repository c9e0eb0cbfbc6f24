// SPDX-License-Identifier: Apache-2.0
// The logger that is handed to the plugin: prints every line to stderr (the rank's log file) and keeps the
// warnings, which tell the user which NIC failed and why.
#pragma once

#include <string>
#include <vector>

#include "r2ccl/plugin/nccl_net_abi.h"

namespace r2bench {

/// ncclDebugLogger_t. INFO and below only with NCCL_DEBUG=INFO or TRACE in the environment.
void plugin_logger(r2ccl::nccl_abi::ncclDebugLogLevel level, unsigned long subsystems, const char* file,
                   int line, const char* format, ...) __attribute__((format(printf, 5, 6)));

/// The WARN lines so far: the first 20 and the last 20.
std::vector<std::string> plugin_warnings();

/// The last WARN line that the calling thread was handed, if that is less than a second ago: what the plugin said
/// in the call that has just failed. Else empty.
std::string warning_just_now();

}  // namespace r2bench
