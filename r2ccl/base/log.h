// SPDX-License-Identifier: Apache-2.0
// One line of log at a time, into NCCL's own logger when it gave us one, else to stderr. Never on a hot path.
#pragma once

#include <cstdarg>

namespace r2ccl {

enum class LogLevel { kWarn, kInfo, kTrace };

/// Where lines go. A plain function pointer: it must stay valid for the life of the process (NCCL's logger
/// does). nullptr: stderr, filtered by R2CC_DEBUG (WARN, INFO, TRACE; WARN unless set).
using LogSink = void (*)(LogLevel level, const char* file, int line, const char* text);

void set_log_sink(LogSink sink);
void log_line(LogLevel level, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

}  // namespace r2ccl

#define R2_WARN(...) ::r2ccl::log_line(::r2ccl::LogLevel::kWarn, __FILE__, __LINE__, __VA_ARGS__)
#define R2_INFO(...) ::r2ccl::log_line(::r2ccl::LogLevel::kInfo, __FILE__, __LINE__, __VA_ARGS__)
#define R2_TRACE(...) ::r2ccl::log_line(::r2ccl::LogLevel::kTrace, __FILE__, __LINE__, __VA_ARGS__)
