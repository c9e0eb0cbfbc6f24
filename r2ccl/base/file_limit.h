// SPDX-License-Identifier: Apache-2.0
// How many files a process may have open.
#pragma once

#include <sys/resource.h>

#include <algorithm>

namespace r2ccl {

/// Raises the process's limit of open files (RLIMIT_NOFILE) towards its hard limit, to `files` at most. A limit
/// that is as high or cannot be raised stays.
inline void raise_file_limit(rlim_t files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= files) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(files, limit.rlim_max));
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace r2ccl
