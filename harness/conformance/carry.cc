// SPDX-License-Identifier: Apache-2.0
#include "harness/conformance/carry.h"

#include <array>

namespace r2bench::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 65536;
constexpr int kDepth = 8;
constexpr int kStart = 2 * kDepth;  ///< completions that do not count

}  // namespace

double carried_bits_per_s(Device& device_a, Device& device_b, std::chrono::milliseconds time) {
  EndpointOptions options;
  options.timeout = 20;  // a machine that is busy is no failure
  Pair pair(device_a, device_b, options, options);
  const std::array<Endpoint*, 2> ends = {&pair.a, &pair.b};
  std::array<int, 2> outstanding{};
  int completions = 0;
  Clock::time_point start{};
  for (;;) {
    for (size_t i = 0; i < ends.size(); ++i) {
      while (outstanding[i] < kDepth && ends[i]->post({.bytes = kBytes}) == 0) ++outstanding[i];
      if (outstanding[i] == 0) throw Broken("nothing can be posted");
      while (const auto completion = ends[i]->poll()) {
        if (completion->status != IBV_WC_SUCCESS) throw Broken("a write: " + status_name(completion->status));
        --outstanding[i];
        if (++completions == kStart) start = Clock::now();
      }
    }
    if (completions <= kStart) continue;
    const auto passed = Clock::now() - start;
    if (passed >= time)
      return 8.0 * double(kBytes) * (completions - kStart) / std::chrono::duration<double>(passed).count();
  }
}

}  // namespace r2bench::conformance
