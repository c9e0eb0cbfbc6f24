// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/health/rail_health.h"

#include <algorithm>

namespace r2ccl::health {

// A rail that stayed up for this many settling times after a failback is no longer called flapping.
constexpr uint64_t kForgiveAfterSettles = 50;

void RailHealth::wait_longer() { wait_ns_ = std::min(wait_ns_ * 2, policy_.ceiling_ns); }

void RailHealth::failed(uint64_t now) {
  if (was_restored_ && now - since_ < kForgiveAfterSettles * policy_.settle_ns)
    wait_longer();
  else
    wait_ns_ = policy_.first_wait_ns;
  state_ = RailState::kDown;
  next_try_ = now + wait_ns_;
}

void RailHealth::hint_active(uint64_t now) {
  if (state_ == RailState::kDown && wait_ns_ <= policy_.first_wait_ns * 8)
    next_try_ = std::min(next_try_, now);
}

void RailHealth::try_failed(uint64_t now) {
  state_ = RailState::kDown;
  wait_longer();
  next_try_ = now + wait_ns_;
}

void RailHealth::try_succeeded(uint64_t now) {
  state_ = RailState::kProbation;
  since_ = now;
}

void RailHealth::restored(uint64_t now) {
  state_ = RailState::kUp;
  since_ = now;
  was_restored_ = true;
}

}  // namespace r2ccl::health
