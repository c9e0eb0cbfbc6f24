// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/base/cpu_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

namespace r2ccl {

std::optional<uint64_t> waited_for_cpu_ns() noexcept {
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  char text[96];
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return std::nullopt;
  text[length] = '\0';
  uint64_t ran = 0, waited = 0;
  if (std::sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &waited) != 2) return std::nullopt;
  return waited;
}

}  // namespace r2ccl
