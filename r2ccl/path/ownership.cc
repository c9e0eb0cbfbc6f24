// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "r2ccl/path/ownership.h"

namespace r2ccl {

// A wake-up can be missed: release() looks at service_waits_ without a fence, to keep the fast path at one
// exchange. The sleep is therefore short, and only bounds the harm.
constexpr timespec kLongestSleep{0, 200'000};

void ChannelOwnership::acquire() noexcept {
  if (owned_.exchange(1, std::memory_order_acquire) == 0) return;
  service_waits_.store(true, std::memory_order_relaxed);
  while (owned_.exchange(1, std::memory_order_acquire) != 0)
    syscall(SYS_futex, &owned_, FUTEX_WAIT_PRIVATE, 1, &kLongestSleep, nullptr, 0);
  service_waits_.store(false, std::memory_order_relaxed);
}

void ChannelOwnership::wake() noexcept {
  syscall(SYS_futex, &owned_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

#ifdef R2CCL_CHECK_OWNERSHIP
void not_owned(const char* why) noexcept {
  std::fprintf(stderr, "NET/R2CCL: a thread touches a channel without owning it: %s\n", why);
  std::abort();
}
#endif

}  // namespace r2ccl
