// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/evaluate_throughput.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/judge/ports.h"
#include "harness/judge/settle_bound.h"

namespace r2bench {
namespace {

// The window of `retained` is this long or longer, in W: whole operations, wherever it begins within one.
constexpr double kLeastWindows = 2;

class Rounds {
 public:
  Rounds(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
         const NicsLeft& left, const JobTimes& times, ModeResult& mode)
      : scenario_(scenario), job_(job), strikes_(strikes), left_(left), times_(times), mode_(mode) {}

  void measure() {
    std::map<size_t, size_t> last;  // index of the strike, and of its sample
    for (size_t i = 0; i < strikes_.size(); ++i)
      if (of_nic(scenario_, strikes_[i]) && strikes_[i].t0_ns <= times_.end_ns() &&
          mode_.faults[i].why_not_sampled != kTookNothing &&
          !leaves_last_place(mode_.faults[i].strike, mode_.faults[i].why_not_sampled)) {
        const auto [entry, added] = last.try_emplace(strikes_[i].repetition, i);
        if (!added && strikes_[i].t0_ns >= strikes_[entry->second].t0_ns) entry->second = i;
      }
    Throughput& t = mode_.throughput;
    double limits = 0;
    for (const auto& [repetition, index] : last) {
      limits += mode_.faults[index].limit;
      measure_round(strikes_[index], mode_.faults[index], last.size() > 1);
    }
    t.rounds = last.size();
    if (t.rounds > 0) t.limit = limits / double(t.rounds);
    if (t.rounds_measured > 0) {
      t.before_gbps /= double(t.rounds_measured);
      t.after_gbps /= double(t.rounds_measured);
      t.retained /= double(t.rounds_measured);
    } else {
      uint64_t until = job_.record.end_ns;
      for (const FaultSample& sample : mode_.faults)
        if (sample.witnessed) until = std::min(until, sample.t0_ns);
      t.before_gbps = rate_gbps(job_.record, {times_.first_open_ns(), until});
    }
    t.ports_gbps = job_.ports_limit ? ports_gbps(scenario_, job_.mode->kind) : 0;
  }

 private:
  void measure_round(const Firing& strike, const FaultSample& sample, bool several) {
    Throughput& t = mode_.throughput;
    const Record& record = job_.record;
    const double bound_ms = settle_bound_ms(takes_away(scenario_, strike), sample.window_ms);
    t.bound_ms = std::max(t.bound_ms, bound_ms);
    const uint64_t end_ns = std::min(
        {times_.round_end_ns(strike.repetition), acts_until_ns(strike), left_.next_change_ns(strike.t0_ns)});
    const uint64_t begin_ns =
        record.open.time_at(record.open.elapsed(strike.t0_ns) + uint64_t(std::llround(bound_ms * 1e6)));
    const double room_ms = open_ms(record, strike.t0_ns, end_ns) - bound_ms;
    std::string why;
    if (sample.before_gbps <= 0)
      why = "nothing was delivered before the fault";
    else if (room_ms < kLeastWindows * sample.window_ms)
      why = (end_ns >= times_.end_ns() ? std::string("the job ended ")
                                       : std::string("the NICs that are left changed ")) +
            std::to_string(std::llround(open_ms(record, strike.t0_ns, end_ns))) +
            " ms after the last fault, and " +
            std::to_string(std::llround(bound_ms + kLeastWindows * sample.window_ms)) + " ms are wanted";
    if (!why.empty()) {
      if (t.why_not.empty())
        t.why_not = (several ? "round " + std::to_string(strike.repetition + 1) + ": " : "") + why;
      return;
    }
    const double after = rate_gbps(record, {begin_ns, end_ns});
    const double retained = after / sample.before_gbps;
    t.before_gbps += sample.before_gbps;
    t.after_gbps += after;
    t.retained += retained;
    ++t.rounds_measured;
    // Where the mode can carry nothing at all, nothing is to come back.
    if (sample.limit <= 0 || (sample.recover_ms && *sample.recover_ms <= bound_ms))
      ++t.rounds_settled;
    else
      t.worst_unsettled =
          t.rounds_measured - t.rounds_settled == 1 ? retained : std::min(t.worst_unsettled, retained);
  }

  const Scenario& scenario_;
  const JobRecord& job_;
  const std::vector<Firing>& strikes_;
  const NicsLeft& left_;
  const JobTimes& times_;
  ModeResult& mode_;
};

}  // namespace

void measure_throughput(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
                        const NicsLeft& left, const JobTimes& times, ModeResult& mode) {
  Rounds(scenario, job, strikes, left, times, mode).measure();
}

}  // namespace r2bench
