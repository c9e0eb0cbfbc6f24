// SPDX-License-Identifier: Apache-2.0
// When the window of the retained rate begins. Pure.
#pragma once

#include <cstddef>
#include <string>

namespace r2bench {

/// Reasons why a strike has no times (FaultSample::why_not_sampled); it begins no window either.
inline constexpr char kTookNothing[] = "it took nothing from its NIC";
inline constexpr char kNoNicStruck[] = "no NIC was struck";

/// There was work under way, and no counted operation that could tell how long it stalled.
inline constexpr char kInWarmUp[] = "it struck in the warm-up, which is not measured";

/// The job ended too early for this strike, which did not stall it.
inline constexpr char kJobOver[] = "the job's last operation had ended";
inline constexpr char kJobEnded[] = "the job ended before it could be measured";

/// Reasons why the recovery of a sample is not judged (FaultSample::why_no_rate_before): nothing was
/// delivered in the undisturbed time before this strike, or before the round that it belongs to. Its
/// detection and its blackout count. Never said of a strike that stalled a stream for longer than
/// settle_bound_ms(), or for ever: that one is unrecovered.
inline constexpr char kNoRateBefore[] =
    "it struck before an operation had ended, so that no rate before it is known";
inline constexpr char kNoRateBeforeRound[] =
    "an earlier fault struck before an operation had ended, so that no rate before it is known";

/// Reasons of strikes that met nothing: they have no times, and none is missing. The first three are those of
/// harness/measure/recovery.cc.
inline constexpr const char* kMetNothing[] = {
    "no operation was open",
    "no channel used the target",
    "no segment was in flight on the target",
    kTookNothing,
    kNoNicStruck,
    kJobOver,
};

/// True for those, and for a strike that leaves_last_place(): a fault that repeats until the job ends always
/// has one.
bool met_nothing(size_t strike, const std::string& why_not_sampled);

/// True for a later strike of a fault that repeats: what is measured behind a round's last strike is measured
/// behind the one before.
bool leaves_last_place(size_t strike, const std::string& why_not_sampled);

/// Open time from the last strike of a round to the window of its retained rate. `takes_away`: the fault
/// takes ports or queue pairs away, it does not only slow them. `window_ms`: W (harness/measure/README.md).
double settle_bound_ms(bool takes_away, double window_ms);

}  // namespace r2bench
