// SPDX-License-Identifier: Apache-2.0
// What is kept of the rate, and what comes back.
#include "harness/base/format.h"
#include "harness/judge/held_up.h"
#include "harness/judge/metric.h"

namespace r2bench {
namespace {

std::string rounds_of(size_t some, size_t all) {
  return std::to_string(some) + " of " + std::to_string(all) + (all == 1 ? " round" : " rounds");
}

/// Why the rate of a round is missing; empty when none is.
std::string unmeasured(const ModeResult& mode) {
  const Throughput& t = mode.throughput;
  if (t.rounds_measured == t.rounds && t.rounds > 0) return "";
  if (mode.outcome != Outcome::kOk && mode.outcome != Outcome::kCancelled)
    return std::string("the job ended (") + name(mode.outcome) +
           ") before the rate behind the fault was measured";
  if (t.rounds == 0) return "no fault struck a NIC";
  return "measured in " + rounds_of(t.rounds_measured, t.rounds) + ": " + t.why_not;
}

/// What did not come back in one round: nothing of it, whatever other rounds bring.
Value never(const std::string& why) {
  Value value = Value::of(0, why);
  value.final = true;
  return value;
}

/// A round that did not settle decides, whatever others are not known.
Value settled(const ModeResult& mode) {
  const Throughput& t = mode.throughput;
  if (t.rounds_settled < t.rounds_measured)
    return {std::nullopt,
            "no",
            "no: " + rounds_of(t.rounds_settled, t.rounds_measured) + " within " + milliseconds(t.bound_ms),
            {},
            true};
  if (const std::string why = unmeasured(mode); !why.empty()) return Value::none(why);
  return {std::nullopt, "yes", "yes" + (t.rounds > 1 ? ", " + rounds_of(t.rounds, t.rounds) : ""), {}};
}

Value retained(const ModeResult& mode) {
  const Throughput& t = mode.throughput;
  if (t.rounds_settled < t.rounds_measured)
    // What has not come back within the bound has not been retained, whatever a mean over all rounds says.
    return never("not settled within " + milliseconds(t.bound_ms) + " in " +
                 rounds_of(t.rounds_measured - t.rounds_settled, t.rounds_measured) + " (" +
                 short_number(t.worst_unsettled) + " at worst, " + short_number(t.retained) + " on average)");
  if (const std::string why = unmeasured(mode); !why.empty()) return Value::none(why);
  return Value::of(t.retained, short_number(t.retained) +
                                   (t.rounds > 1 ? " (" + rounds_of(t.rounds, t.rounds) + ")" : ""));
}

Value restored(const ModeResult& mode) {
  const Restored& r = mode.restored;
  const std::string left_out = r.rounds_not_healed > 0
                                   ? "; " + std::to_string(r.rounds_not_healed) + " more round" +
                                         (r.rounds_not_healed > 1 ? "s" : "") +
                                         " had not healed: " + r.why_not_healed
                                   : "";
  const std::string ratio =
      r.ratio
          ? fixed(*r.ratio, 3) + " (" +
                (r.rounds > 1 ? "worst of " + std::to_string(r.rounds) + " rounds: " : "") + "median of " +
                std::to_string(r.operations_after) + " operations: " + milliseconds(r.after_ms) + ", of " +
                std::to_string(r.operations_before) + " before: " + milliseconds(r.before_ms) + ")"
          : "";
  if (r.rounds_late > 0)
    return never("not every channel was home in time in " + rounds_of(r.rounds_late, r.rounds) +
                 (ratio.empty() ? "" : ": " + ratio) + left_out);
  if (!r.ratio || r.rounds_home < r.rounds || !r.why_not.empty())
    return Value::none(r.why_not.empty() ? "not measured" : r.why_not);
  return Value::of(*r.ratio, ratio + left_out);
}

std::string rate_doubt(const ModeResult& mode) { return held_up(mode.throughput); }

}  // namespace

namespace metrics_of {

std::vector<Metric> rates() {
  const Needs needs = {.fault = true, .trace = true, .deliveries = true};
  return {
      {.info = {.name = "settled",
                .words = {"yes", "no"},
                .meaning = "whether in every round the rate was back when the window of retained_bw began",
                .needs = needs},
       .wanted = "",
       .value = [](const Measured& m) { return settled(m.mode); }},
      {.info = {.name = "retained_bw",
                .meaning = "rate in a fixed window after the last fault of each round, divided by the rate "
                           "before the fault; 0 if the rate was not back when the window began",
                .needs = needs},
       .wanted = "a ratio",
       .value = [](const Measured& m) { return retained(m.mode); },
       .doubt = rate_doubt},
      {.info = {.name = "restored",
                .meaning = "rate once everything is repaired, divided by the rate before the first fault "
                           "(from medians of operation times), in the worst round; 0 if a channel did not "
                           "fail back in time",
                .needs = needs},
       .wanted = "a ratio",
       .value = [](const Measured& m) { return restored(m.mode); },
       .doubt = rate_doubt},
  };
}

}  // namespace metrics_of
}  // namespace r2bench
