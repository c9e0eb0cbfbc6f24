// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/evaluate_faults.h"

#include <algorithm>
#include <cmath>

#include "harness/judge/evaluate_restored.h"
#include "harness/judge/evaluate_throughput.h"
#include "harness/judge/fault_times.h"
#include "harness/judge/job_times.h"
#include "harness/judge/settle_bound.h"
#include "harness/judge/switch_time.h"
#include "harness/measure/affected.h"
#include "harness/measure/restored.h"
#include "harness/scenario/node_name.h"

namespace r2bench {

namespace {

// A strike so close to the job's end, beside W and the floor, cannot show whether the rate would have come
// back: so much, or an operation at the rate that is left.
constexpr double kUnmeasurableMarginMs = 100;
constexpr double kGoodShare = 0.9;  // of the rate before

FaultSample identity(const Scenario& scenario, const Firing& strike) {
  FaultSample sample;
  sample.fault = strike.fault;
  sample.repetition = strike.repetition;
  sample.strike = strike.strike;
  sample.armed_ns = strike.armed_ns;
  sample.t0_ns = strike.t0_ns;
  sample.witnessed = strike.t0_ns != 0;
  if (strike.healed_ns != 0) sample.healed_ns = strike.healed_ns;
  if (is_rank_fault(scenario, strike)) {
    const RankFault& fault = scenario.rank_faults[strike.fault - scenario.faults.size()];
    sample.kind = name(fault.kind);
    sample.target = node_name(fault.node) + "/rank" + std::to_string(fault.local_rank);
    sample.name = fault.name;
  } else {
    const auto& spec = scenario.faults[strike.fault];
    sample.kind = spec.kind->name;
    sample.target = spec.target.text;
    sample.name = spec.name;
  }
  return sample;
}

/// Looks at the strikes of a job, all of them known.
class Faults {
 public:
  Faults(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
         const NicsLeft& left, const JobTimes& times, ModeResult& mode)
      : scenario_(scenario), job_(job), strikes_(strikes), left_(left), times_(times), mode_(mode) {}

  void measure() {
    for (const Firing& strike : strikes_) {
      mode_.faults.push_back(identity(scenario_, strike));
      FaultSample& sample = mode_.faults.back();
      // A job that ended early need not have come to this one.
      if (!(strike.t0_ns == 0 && strike.triggered_ns == 0 && job_.outcome != Outcome::kOk))
        ++mode_.faults_planned;
      if (!sample.witnessed) {
        sample.why_not_sampled = "it never took effect";
        continue;
      }
      ++mode_.faults_witnessed;
      if (is_rank_fault(scenario_, strike))
        sample.why_not_sampled = kNoNicStruck;
      else
        measure(strike, sample);
      if (!sample.sampled) ++mode_.faults_dropped[sample.why_not_sampled];
    }
    summarize_times(mode_);
  }

 private:
  /// It takes no NIC or queue pair away; but a call or a completion that fails may be answered by a fence.
  bool may_break_a_path(const Firing& strike) const {
    const faultinject::FaultKind& kind = *scenario_.faults[strike.fault].kind;
    return kind.takes == faultinject::Takes::kNothing &&
           std::any_of(kind.examples.begin(), kind.examples.end(), [](const faultinject::Example& example) {
             return example.harm == faultinject::Harm::kBreaks ||
                    example.harm == faultinject::Harm::kMayBreak;
           });
  }

  /// The time before the round. Where nothing was delivered in it, the first time up to a later strike of the
  /// round, this one or one before it, in which nothing that had struck acted any more, every channel was
  /// home and an operation was completed.
  Interval undisturbed_before(const Firing& strike) const {
    const Interval usual = {std::max(strike.before_from_ns, times_.first_open_ns()),
                            std::min(strike.t0_ns, times_.round_begin_ns(strike.repetition))};
    if (rate_gbps(job_.record, usual) > 0) return usual;
    std::vector<const Firing*> of_round;
    for (const Firing& each : strikes_)
      if (of_nic(scenario_, each) && each.repetition == strike.repetition && each.t0_ns <= strike.t0_ns)
        of_round.push_back(&each);
    std::sort(of_round.begin(), of_round.end(),
              [](const Firing* a, const Firing* b) { return a->t0_ns < b->t0_ns; });
    uint64_t acted_until_ns = acts_until_ns(*of_round.front());
    for (const Firing* each : of_round) {
      std::string why;
      const auto home_ns = home_since(job_.trace, each->t0_ns, why);
      const Interval since = {std::max(acted_until_ns, home_ns.value_or(UINT64_MAX)), each->t0_ns};
      if (holds_an_operation(since)) return since;
      acted_until_ns = std::max(acted_until_ns, acts_until_ns(*each));
    }
    return usual;
  }

  /// Before the first counted operation, with work behind it that was under way.
  bool struck_in_warm_up(const Firing& strike) const {
    const uint64_t until_ns = job_.first_iteration_ns != 0 ? job_.first_iteration_ns : times_.first_open_ns();
    return strike.t0_ns < until_ns && bytes_between(job_.record.deliveries, strike.t0_ns, until_ns - 1) > 0;
  }

  bool holds_an_operation(const Interval& time) const {
    const auto& operations = job_.record.operations;
    return std::any_of(operations.begin(), operations.end(), [&](const OperationSpan& operation) {
      return operation.complete && operation.span.begin_ns >= time.begin_ns &&
             operation.span.end_ns <= time.end_ns;
    });
  }

  FaultWindow window_of(const Firing& strike) const {
    const auto& spec = scenario_.faults[strike.fault];
    FaultWindow window;
    window.t0_ns = strike.t0_ns;
    window.heal_ns = strike.healed_ns;
    window.end_ns = std::max(times_.round_end_ns(strike.repetition), strike.t0_ns);
    window.until_ns = std::min(window.end_ns, acts_until_ns(strike));
    const Interval undisturbed = undisturbed_before(strike);
    window.before_from_ns = undisturbed.begin_ns;
    window.before_until_ns = undisturbed.end_ns;
    for (const Firing& other : strikes_) {
      if (!of_nic(scenario_, other)) continue;
      if (other.t0_ns > strike.t0_ns) window.until_ns = std::min(window.until_ns, other.t0_ns);
      const bool is_later = other.t0_ns > strike.t0_ns;
      const bool counts = is_later ? takes_away(scenario_, other) || may_break_a_path(other)
                                   : takes_away(scenario_, other) && !may_break_a_path(strike);
      if (&other == &strike || !counts) continue;
      (is_later ? window.later : window.earlier).push_back({other.t0_ns, other.nics, acts_until_ns(other)});
    }
    window.targets = strike.nics;
    window.single_qp = spec.kind->takes == faultinject::Takes::kQueuePairs;
    window.spread = job_.mode->kind == ModeKind::kBalance || job_.mode->kind == ModeKind::kAllReduce;
    window.takes_away = takes_away(scenario_, strike);
    window.limits = left_.limits_for(strike, window.end_ns);
    window.path_rate_bits_per_s = scenario_.fabric.nic_rate_bits_per_s;
    window.operation_ms = operation_ms(job_.record, window.before_from_ns, window.before_until_ns);
    return window;
  }

  void measure(const Firing& strike, FaultSample& sample) {
    const FaultWindow window = window_of(strike);
    analyse_fault(job_.record, window, sample);
    sample.limit_before = left_.limit_at(strike.t0_ns - 1);
    const double waited_ms = open_ms(job_.record, window.t0_ns, window.end_ns);
    const double margin_ms =
        std::max(kUnmeasurableMarginMs, window.operation_ms / std::max(sample.limit, 0.1));
    const bool short_of_time = window.end_ns == std::max(times_.end_ns(), strike.t0_ns) &&
                               waited_ms < sample.window_ms + sample.floor_ms + margin_ms;
    const bool ran_to_its_end = job_.outcome == Outcome::kOk || job_.outcome == Outcome::kCancelled;
    if (sample.sampled && !sample.recover_ms && short_of_time && ran_to_its_end &&
        sample.blackout_ms.value_or(0) <= sample.window_ms) {
      sample.sampled = false;
      sample.why_not_sampled = kJobEnded;
    }
    const bool no_rate = sample.sampled && no_rate_to_judge_by(window, sample);
    if (!sample.sampled && strike.t0_ns >= times_.end_ns() && job_.outcome == Outcome::kOk)
      sample.why_not_sampled = kJobOver;
    if (!sample.sampled && struck_in_warm_up(strike)) sample.why_not_sampled = kInWarmUp;
    if (!has_plugin(scenario_.transport_of(*job_.mode))) {
      sample.sampled = false;
      sample.why_not_sampled = "NCCL's IB transport records no messages";
    }
    if (sample.sampled && (took_nothing(strike, sample, no_rate) || repeats_another(strike, sample))) {
      sample.sampled = false;
      sample.why_not_sampled = kTookNothing;
    }
    if (!sample.sampled) return;
    if (sample.detected_ns) sample.switch_ms = switch_ms(job_.trace, *sample.detected_ns, window.until_ns);
    ++mode_.faults_sampled;
    mode_.floor_ms = std::max(mode_.floor_ms, sample.floor_ms);
    if (!sample.detected_by.empty()) ++mode_.detected_by[sample.detected_by];
    if (sample.recover_ms) {
      mode_.faults_recovered_after_heal += sample.recovered_after_heal;
    } else if (no_rate) {
      sample.why_no_rate_before = window.before_until_ns < window.t0_ns ? kNoRateBeforeRound : kNoRateBefore;
    } else if (job_.mode->kind != ModeKind::kBaseline) {
      ++mode_.faults_unrecovered;
      sample.waited_ms = waited_ms;
    }
  }

  /// No operation had ended before the strike, so nothing tells which rate has to come back, and the job went
  /// on. A stream that left no fenced NIC, was silent for longer than a rate may take to settle, or is silent
  /// at the end has not recovered, whatever the rate before was.
  bool no_rate_to_judge_by(const FaultWindow& window, const FaultSample& sample) const {
    const Record& record = job_.record;
    const bool ran_on = job_.outcome == Outcome::kOk || job_.outcome == Outcome::kCancelled;
    if (!ran_on || sample.before_gbps > 0 || sample.recover_ms) return false;
    if (std::any_of(record.operations.begin(), record.operations.end(), [&](const OperationSpan& operation) {
          return operation.complete && operation.span.end_ns <= window.before_until_ns;
        }))
      return false;
    if (sample.detected_ns && !sample.migrated_ns) return false;
    if (sample.blackout_ms.value_or(0) > settle_bound_ms(true, sample.window_ms)) return false;
    const auto silent = silences(record, window, affected_streams(record, window), sample.window_ms);
    return silent.empty() || silent.back().end_ns < record.open.elapsed(window.end_ns);
  }

  /// The NICs can carry what they could, nobody left the one that was struck, and the rate was good at once
  /// and stayed so: any time until the first good interval is the unevenness of an operation, no recovery.
  /// Without a rate before it the stalls alone tell.
  bool took_nothing(const Firing& strike, const FaultSample& sample, bool no_rate) const {
    return left_.unchanged_by(strike) && !sample.detected_ns &&
           (no_rate || sample.recover_ms.value_or(HUGE_VAL) <= sample.window_ms) &&
           sample.blackout_ms.value_or(0) <= sample.window_ms &&
           (sample.after_gbps <= 0 || sample.after_gbps >= kGoodShare * sample.before_gbps);
  }

  /// Another strike had taken all of its NICs and kept them, and no fence answers this one, or the fence of that
  /// one does: what followed is that one's.
  bool repeats_another(const Firing& strike, const FaultSample& sample) const {
    const auto takes_ports = [&](const Firing& each) {
      return of_nic(scenario_, each) && scenario_.faults[each.fault].kind->takes == faultinject::Takes::kPort;
    };
    if (!takes_ports(strike) || !left_.unchanged_by(strike)) return false;
    return std::any_of(strikes_.begin(), strikes_.end(), [&](const Firing& other) {
      if (&other == &strike || !takes_ports(other) || other.t0_ns > strike.t0_ns ||
          acts_until_ns(other) < acts_until_ns(strike) ||
          !std::all_of(strike.nics.begin(), strike.nics.end(), [&](const NicId& nic) {
            return std::find(other.nics.begin(), other.nics.end(), nic) != other.nics.end();
          }))
        return false;
      if (!sample.detected_ns) return true;
      FaultSample its;
      analyse_fault(job_.record, window_of(other), its);
      return its.detected_ns == sample.detected_ns;
    });
  }

  const Scenario& scenario_;
  const JobRecord& job_;
  const std::vector<Firing>& strikes_;
  const NicsLeft& left_;
  const JobTimes& times_;
  ModeResult& mode_;
};

/// What met nothing in flight, changed nothing and was answered by nobody was not recovered from.
void forget_recovery_from_nothing(FaultSample& sample) {
  if (sample.sampled || sample.detected_ns || sample.limit < sample.limit_before) return;
  sample.recovered_ns.reset();
  sample.recover_ms.reset();
  sample.recovered_after_heal = false;
}

}  // namespace

void evaluate_faults(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
                     const NicsLeft& left, ModeResult& mode) {
  const JobTimes times(scenario, job, strikes);
  Faults(scenario, job, strikes, left, times, mode).measure();
  measure_throughput(scenario, job, strikes, left, times, mode);
  for (FaultSample& sample : mode.faults) forget_recovery_from_nothing(sample);
  measure_restored(scenario, job, strikes, mode);
}

}  // namespace r2bench
