// SPDX-License-Identifier: Apache-2.0
// When the window of the retained rate begins. Pure.
#pragma once

namespace r2bench {

/// Reasons why a strike has no times (FaultSample::why_not_sampled); it begins no window either.
inline constexpr char kTookNothing[] = "it took nothing from its NIC";
inline constexpr char kNoNicStruck[] = "no NIC was struck";

/// Open time from the last strike of a round to the window of its retained rate. `takes_away`: the fault
/// takes ports or queue pairs away, it does not only slow them. `window_ms`: W (harness/measure/README.md).
double settle_bound_ms(bool takes_away, double window_ms);

}  // namespace r2bench
