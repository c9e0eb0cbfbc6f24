// SPDX-License-Identifier: Apache-2.0
// What a program sees of a fault: traffic from device A to device B, a strike in the middle of it, and the
// sequence of completions and events that follow. Knows neither the injector nor the network: the strike is a
// function.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "harness/conformance/endpoint.h"

namespace r2bench::conformance {

/// What is timed of a fault that slows traffic: so many completions, of so many bytes, so many at a time.
inline constexpr int kSlowedCompletions = 60, kInFlight = 8;
inline constexpr size_t kMessageBytes = 16384;

struct StrikeOptions {
  uint8_t timeout = 14, retry = 2;  ///< of the queue pair: 4.096 us * 2^timeout, retry_cnt
  /// Rate and delay: traffic goes on, and kSlowedCompletions take this long at least; 0: the fault breaks
  /// something. How much slower that is than before depends on what else the machine does.
  std::chrono::milliseconds slowed_to{0};
  bool passes = false;           ///< the fault is over by itself: noted is whether traffic stood still for it
  std::function<void()> strike;  ///< returns when it has been asked for; it may take effect later
};

/// {"completions": "SUCCESS+ RETRY_EXC_ERR WR_FLUSH_ERR+", "events_a": […], "events_b": […], "state_a",
/// "port_a", "port_b", "posted_after", "slower", "stalled"}. Throws Broken.
nlohmann::json what_a_program_sees(Device& a, Device& b, const StrikeOptions& options);

}  // namespace r2bench::conformance
