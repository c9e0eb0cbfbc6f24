// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/ticker.h"

#include <time.h>

#include <algorithm>

#include "harness/measure/statistics.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

Ticker::Ticker(std::chrono::microseconds period) : period_(period), thread_([this] { run(); }) {}

Ticker::~Ticker() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

Distribution Ticker::stop() {
  stop_ = true;
  thread_.join();
  return summarize(std::move(late_ms_));
}

void Ticker::run() {
  const uint64_t step = uint64_t(std::chrono::nanoseconds(period_).count());
  uint64_t deadline = r2ccl::now_ns() + step;
  while (!stop_) {
    const timespec until{time_t(deadline / 1'000'000'000), long(deadline % 1'000'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
    const uint64_t now = r2ccl::now_ns();
    late_ms_.push_back(double(now - deadline) / 1e6);
    deadline = std::max(deadline + step, now);  // a long sleep counts once, not once per missed tick
  }
}

}  // namespace r2bench
