// SPDX-License-Identifier: Apache-2.0
// How long what may take, as it follows from what the user has set. Pure; nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace r2ccl {

/// A queue pair with this Local ACK Timeout (NCCL_IB_TIMEOUT) sends a packet again that was not acknowledged
/// for so long: what then comes back may be the answer to either. 0: it never does.
constexpr uint64_t resend_after(int ib_timeout) {
  return ib_timeout == 0 ? ~uint64_t{0} : uint64_t{4096} << ib_timeout;
}

struct Bounds {
  uint64_t fail;   ///< R2CC_FAIL_BOUND_MS: without a path for so long, a channel may fail
  uint64_t probe;  ///< R2CC_PROBE_MS: no probe is taken for lost earlier

  /// How long a rail that has just failed is left alone, where there are others.
  uint64_t bar() const { return std::min(kBarNs, fail / 8); }
  /// How long a path out of use is left as it is: traffic is to flow again first, and a probe that was given
  /// up may still be answered, at either end.
  uint64_t retired() const { return std::clamp(fail / 4, kLeastRetiredNs, kLongestRetiredNs); }
  /// No probe is waited for longer.
  uint64_t longest_probe() const { return std::min(fail / 4, kLongestProbeNs); }
  /// How long the first transfer over a path may take where others wait for that: `limit` is what a probe may
  /// take, `left` the time until the channel fails, which the `untried` rails share.
  uint64_t first_probe(uint64_t limit, uint64_t left, uint64_t untried) const {
    return std::max(first_probe(0), std::min(first_probe(limit), left / untried));
  }
  /// … where nobody waits.
  uint64_t first_probe(uint64_t limit) const { return std::max(kFirstProbes * probe, limit); }
  /// A path that has carried for so long was one, whether or not anything moved.
  uint64_t proven() const { return 4 * probe; }

  /// A migration that takes longer is looked at each millisecond, no longer at once.
  static constexpr uint64_t kHotNs = 20'000'000;
  /// A program that closes a channel waits no longer for its queue pairs to be destroyed.
  static constexpr uint64_t kTearDownNs = 5'000'000'000;
  /// A peer that answers promptly has by then.
  static constexpr uint64_t kPromptAnswerNs = 20'000'000;

 private:
  static constexpr uint64_t kBarNs = 50'000'000;
  static constexpr uint64_t kLeastRetiredNs = 100'000'000, kLongestRetiredNs = 4'000'000'000;
  static constexpr uint64_t kLongestProbeNs = 2'000'000'000;
  static constexpr uint64_t kFirstProbes = 4;  // a first probe may take this many probe deadlines
};

}  // namespace r2ccl
