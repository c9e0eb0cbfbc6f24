// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace r2ccl {
namespace {

std::atomic<LogSink> g_sink{nullptr};

void to_stderr(LogLevel level, const char* /*file*/, int /*line*/, const char* text) {
  static const LogLevel threshold = [] {
    const char* wanted = std::getenv("R2CC_DEBUG");
    if (wanted && std::strcmp(wanted, "INFO") == 0) return LogLevel::kInfo;
    if (wanted && std::strcmp(wanted, "TRACE") == 0) return LogLevel::kTrace;
    return LogLevel::kWarn;
  }();
  if (level > threshold) return;
  std::fprintf(stderr, "R2CCL %s [%d] %s\n", level == LogLevel::kWarn ? "WARN" : "INFO", int(getpid()), text);
}

}  // namespace

void set_log_sink(LogSink sink) { g_sink.store(sink, std::memory_order_release); }

void log_line(LogLevel level, const char* file, int line, const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  LogSink sink = g_sink.load(std::memory_order_acquire);
  (sink ? sink : to_stderr)(level, file, line, text);
}

}  // namespace r2ccl
