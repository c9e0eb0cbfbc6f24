// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/settle_bound.h"

#include <algorithm>
#include <iterator>

namespace r2bench {

bool leaves_last_place(size_t strike, const std::string& why_not_sampled) {
  return strike > 0 && (why_not_sampled == kJobOver || why_not_sampled == kJobEnded);
}

bool met_nothing(size_t strike, const std::string& why_not_sampled) {
  return leaves_last_place(strike, why_not_sampled) ||
         std::find(std::begin(kMetNothing), std::end(kMetNothing), why_not_sampled) != std::end(kMetNothing);
}

double settle_bound_ms(bool takes_away, double window_ms) {
  // What has lost its NIC is moved by then; a NIC that is slow or late has to be found first: three
  // operations of the slowest kind, 0.3 to 2 s at the rates of our scenarios.
  constexpr double kSettleBoundMs = 250;
  constexpr double kSettleBoundSlowMs = 2000;
  constexpr double kWindows = 4;
  return std::max(takes_away ? kSettleBoundMs : kSettleBoundSlowMs, kWindows * window_ms);
}

}  // namespace r2bench
