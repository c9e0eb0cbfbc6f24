// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/plugin_log.h"

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace r2bench {
namespace {

constexpr size_t kKeep = 20;

struct Log {
  std::mutex mutex;
  std::vector<std::string> warnings;
};
Log& log() {
  static Log* const instance = new Log;  // never destroyed: the plugin may log while the process ends
  return *instance;
}

struct Warning {
  std::string text;
  std::chrono::steady_clock::time_point at;
};
thread_local Warning t_last;

bool wanted(r2ccl::nccl_abi::ncclDebugLogLevel level) {
  if (level == r2ccl::nccl_abi::NCCL_LOG_WARN) return true;
  static const int most = [] {
    const char* debug = std::getenv("NCCL_DEBUG");
    if (!debug) return 0;
    if (!strcmp(debug, "TRACE")) return int(r2ccl::nccl_abi::NCCL_LOG_TRACE);
    if (!strcmp(debug, "INFO")) return int(r2ccl::nccl_abi::NCCL_LOG_INFO);
    return 0;
  }();
  return int(level) <= most;
}

}  // namespace

void plugin_logger(r2ccl::nccl_abi::ncclDebugLogLevel level, unsigned long, const char* file, int line,
                   const char* format, ...) {
  if (!wanted(level)) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const bool warn = level == r2ccl::nccl_abi::NCCL_LOG_WARN;
  fprintf(stderr, "%s %s:%d %s\n", warn ? "WARN" : "INFO", file ? file : "?", line, text);
  if (!warn) return;
  t_last = {text, std::chrono::steady_clock::now()};
  std::lock_guard lock(log().mutex);
  auto& kept = log().warnings;
  if (kept.size() == 2 * kKeep) kept.erase(kept.begin() + kKeep);
  kept.emplace_back(text);
}

std::vector<std::string> plugin_warnings() {
  std::lock_guard lock(log().mutex);
  return log().warnings;
}

std::string warning_just_now() {
  return std::chrono::steady_clock::now() - t_last.at < std::chrono::seconds(1) ? t_last.text : "";
}

}  // namespace r2bench
