// SPDX-License-Identifier: Apache-2.0
// What a program has to do before it can know how its children ended.
#pragma once

#include <csignal>

namespace r2bench {

/// Ends that SIGCHLD is ignored, as a program may inherit it: the kernel would keep no child's exit status,
/// and waitpid() would fail with ECHILD.
inline void keep_exit_statuses() {
  struct sigaction now {};
  if (sigaction(SIGCHLD, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) ::signal(SIGCHLD, SIG_DFL);
}

}  // namespace r2bench
