// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/evaluate_faults.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/judge/fault_times.h"
#include "harness/judge/ports.h"
#include "harness/judge/settle_bound.h"
#include "harness/judge/switch_time.h"
#include "harness/measure/affected.h"
#include "harness/measure/restored.h"
#include "harness/measure/statistics.h"
#include "harness/scenario/node_name.h"

namespace r2bench {

namespace {

// A strike so close to the job's end, beside W and the floor, cannot show whether the rate would have come
// back: so much, or an operation at the rate that is left.
constexpr double kUnmeasurableMarginMs = 100;
// The window of `retained` is this long or longer, in W: whole operations, wherever it begins within one.
constexpr double kLeastWindows = 2;
// Every channel is home so long after the last heal of a round, or after 50 operations as they took before.
constexpr double kHomeBoundMs = 5000;
constexpr double kHomeOperations = 50;

constexpr double kGoodShare = 0.9;  // of the rate before

double ms_between(uint64_t from_ns, uint64_t to_ns) { return (double(to_ns) - double(from_ns)) / 1e6; }

double open_ms(const Record& record, uint64_t from_ns, uint64_t to_ns) {
  return ms_between(record.open.elapsed(from_ns), record.open.elapsed(to_ns));
}

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

/// Median of the whole operations of the undisturbed time; where there is none, of all that had ended before.
/// 0 when there was none at all.
double operation_ms(const Record& record, uint64_t from_ns, uint64_t until_ns) {
  std::vector<double> all, undisturbed;
  for (const OperationSpan& operation : record.operations) {
    if (!operation.complete || operation.span.end_ns > until_ns) continue;
    all.push_back(ms_between(operation.span.begin_ns, operation.span.end_ns));
    if (operation.span.begin_ns >= from_ns) undisturbed.push_back(all.back());
  }
  return summarize(undisturbed.empty() ? all : undisturbed).p50;
}

/// Looks at the strikes of a job, all of them known.
class Faults {
 public:
  Faults(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
         const NicsLeft& left, ModeResult& mode)
      : scenario_(scenario), job_(job), strikes_(strikes), left_(left), mode_(mode) {
    // The measured job ends with its last operation; what follows is closing.
    const auto& operations = job.record.operations;
    first_open_ns_ = operations.empty() ? 0 : operations.front().span.begin_ns;
    end_ns_ = first_open_ns_;
    for (const OperationSpan& operation : operations) end_ns_ = std::max(end_ns_, operation.span.end_ns);
    for (const Firing& strike : strikes)
      if (of_nic(strike)) {
        uint64_t& begin = round_begin_ns_.try_emplace(strike.repetition, UINT64_MAX).first->second;
        begin = std::min(begin, strike.t0_ns);
      }
  }

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
    measure_throughput();
    for (FaultSample& sample : mode_.faults) forget_recovery_from_nothing(sample);
  }

 private:
  bool of_nic(const Firing& strike) const { return strike.t0_ns != 0 && !is_rank_fault(scenario_, strike); }

  bool takes_away(const Firing& strike) const { return scenario_.faults[strike.fault].kind->moves_traffic(); }

  /// It takes no NIC or queue pair away; but a call or a completion that fails may be answered by a fence.
  bool may_break_a_path(const Firing& strike) const {
    const faultinject::FaultKind& kind = *scenario_.faults[strike.fault].kind;
    return kind.takes == faultinject::Takes::kNothing &&
           std::any_of(kind.examples.begin(), kind.examples.end(), [](const faultinject::Example& example) {
             return example.harm == faultinject::Harm::kBreaks ||
                    example.harm == faultinject::Harm::kMayBreak;
           });
  }

  /// The next round begins when the job is taken to be undisturbed again.
  uint64_t round_end_ns(size_t repetition) const {
    const auto next = round_begin_ns_.upper_bound(repetition);
    return next == round_begin_ns_.end() ? end_ns_ : std::min(end_ns_, next->second);
  }

  /// The time before the round. Where nothing was delivered in it, the first time up to a later strike of the
  /// round, this one or one before it, in which nothing that had struck acted any more, every channel was
  /// home and an operation was completed.
  Interval undisturbed_before(const Firing& strike) const {
    const Interval usual = {std::max(strike.before_from_ns, first_open_ns_),
                            std::min(strike.t0_ns, round_begin_ns_.at(strike.repetition))};
    if (rate_gbps(job_.record, usual) > 0) return usual;
    std::vector<const Firing*> of_round;
    for (const Firing& each : strikes_)
      if (of_nic(each) && each.repetition == strike.repetition && each.t0_ns <= strike.t0_ns)
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
    const uint64_t until_ns = job_.first_iteration_ns != 0 ? job_.first_iteration_ns : first_open_ns_;
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
    window.end_ns = std::max(round_end_ns(strike.repetition), strike.t0_ns);
    window.until_ns = std::min(window.end_ns, acts_until_ns(strike));
    const Interval undisturbed = undisturbed_before(strike);
    window.before_from_ns = undisturbed.begin_ns;
    window.before_until_ns = undisturbed.end_ns;
    for (const Firing& other : strikes_) {
      if (!of_nic(other)) continue;
      if (other.t0_ns > strike.t0_ns) window.until_ns = std::min(window.until_ns, other.t0_ns);
      const bool is_later = other.t0_ns > strike.t0_ns;
      const bool counts = is_later ? takes_away(other) || may_break_a_path(other)
                                   : takes_away(other) && !may_break_a_path(strike);
      if (&other == &strike || !counts) continue;
      (is_later ? window.later : window.earlier).push_back({other.t0_ns, other.nics, acts_until_ns(other)});
    }
    window.targets = strike.nics;
    window.single_qp = spec.kind->takes == faultinject::Takes::kQueuePairs;
    window.spread = job_.mode->kind == ModeKind::kBalance || job_.mode->kind == ModeKind::kAllReduce;
    window.takes_away = takes_away(strike);
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
    const bool short_of_time = window.end_ns == std::max(end_ns_, strike.t0_ns) &&
                               waited_ms < sample.window_ms + sample.floor_ms + margin_ms;
    const bool ran_to_its_end = job_.outcome == Outcome::kOk || job_.outcome == Outcome::kCancelled;
    if (sample.sampled && !sample.recover_ms && short_of_time && ran_to_its_end &&
        sample.blackout_ms.value_or(0) <= sample.window_ms) {
      sample.sampled = false;
      sample.why_not_sampled = kJobEnded;
    }
    const bool no_rate = sample.sampled && no_rate_to_judge_by(window, sample);
    if (!sample.sampled && strike.t0_ns >= end_ns_ && job_.outcome == Outcome::kOk)
      sample.why_not_sampled = kJobOver;
    if (!sample.sampled && struck_in_warm_up(strike)) sample.why_not_sampled = kInWarmUp;
    if (scenario_.transport_of(*job_.mode) != Transport::kPlugin) {
      sample.sampled = false;
      sample.why_not_sampled = "NCCL's IB transport records no messages";
    }
    if (sample.sampled && took_nothing(strike, sample, no_rate)) {
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

  /// What met nothing in flight, changed nothing and was answered by nobody was not recovered from.
  static void forget_recovery_from_nothing(FaultSample& sample) {
    if (sample.sampled || sample.detected_ns || sample.limit < sample.limit_before) return;
    sample.recovered_ns.reset();
    sample.recover_ms.reset();
    sample.recovered_after_heal = false;
  }

  /// Of each round the window behind its last strike that can be measured: then everything that was planned
  /// is broken.
  void measure_throughput() {
    std::map<size_t, size_t> last;  // index of the strike, and of its sample
    for (size_t i = 0; i < strikes_.size(); ++i)
      if (of_nic(strikes_[i]) && strikes_[i].t0_ns <= end_ns_ &&
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
      t.before_gbps = rate_gbps(job_.record, {first_open_ns_, until});
    }
    t.ports_gbps = job_.ports_limit ? ports_gbps(scenario_, job_.mode->kind) : 0;
  }

  void measure_round(const Firing& strike, const FaultSample& sample, bool several) {
    Throughput& t = mode_.throughput;
    const Record& record = job_.record;
    const double bound_ms = settle_bound_ms(takes_away(strike), sample.window_ms);
    t.bound_ms = std::max(t.bound_ms, bound_ms);
    const uint64_t end_ns = std::min(
        {round_end_ns(strike.repetition), acts_until_ns(strike), left_.next_change_ns(strike.t0_ns)});
    const uint64_t begin_ns =
        record.open.time_at(record.open.elapsed(strike.t0_ns) + uint64_t(std::llround(bound_ms * 1e6)));
    const double room_ms = open_ms(record, strike.t0_ns, end_ns) - bound_ms;
    std::string why;
    if (sample.before_gbps <= 0)
      why = "nothing was delivered before the fault";
    else if (room_ms < kLeastWindows * sample.window_ms)
      why = (end_ns >= end_ns_ ? std::string("the job ended ")
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
  ModeResult& mode_;
  uint64_t first_open_ns_ = 0, end_ns_ = 0;
  std::map<size_t, uint64_t> round_begin_ns_;
};

bool over_once_it_struck(const faultinject::FaultSpec& spec) {
  return spec.kind->ends == faultinject::Ends::kAfterStrikes && spec.ends_by_itself();
}

/// The rate behind the heal of each round whose faults were all healed; how many others there are.
void measure_restored(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
                      ModeResult& mode) {
  struct Round {
    uint64_t struck_ns = UINT64_MAX, healed_ns = 0;
    uint64_t until_ns = UINT64_MAX;  // a strike that leaves_last_place()
    std::string not_healed;          // the name of such a fault
  };
  std::map<size_t, Round> rounds;
  for (size_t i = 0; i < strikes.size(); ++i) {
    const Firing& strike = strikes[i];
    if (strike.t0_ns == 0 || strike.t0_ns > job.record.end_ns) continue;
    Round& round = rounds[strike.repetition];
    if (leaves_last_place(mode.faults[i].strike, mode.faults[i].why_not_sampled)) {
      round.until_ns = std::min(round.until_ns, strike.t0_ns);
      continue;
    }
    round.struck_ns = std::min(round.struck_ns, strike.t0_ns);
    // What is over with its strike, as a queue pair that broke, leaves nothing to be healed.
    if (!is_rank_fault(scenario, strike) && over_once_it_struck(scenario.faults[strike.fault])) {
      round.healed_ns = std::max(round.healed_ns, strike.t0_ns);
      continue;
    }
    if (strike.healed_ns == 0 || strike.healed_ns > job.record.end_ns)
      round.not_healed = identity(scenario, strike).name;
    round.healed_ns = std::max(round.healed_ns, strike.healed_ns);
  }
  std::string why = "there was no fault";
  std::vector<Restored> healed;
  size_t left_out = 0;
  std::string why_left_out;
  const uint64_t first_ns = rounds.empty() ? 0 : rounds.begin()->second.struck_ns;
  const uint64_t bound_ns =
      uint64_t(1e6 * std::max(kHomeBoundMs, kHomeOperations * operation_ms(job.record, 0, first_ns)));
  for (auto round = rounds.begin(); round != rounds.end(); ++round) {
    const auto next = std::next(round);
    const auto& [struck_ns, healed_ns, before_ns, not_healed] = round->second;
    const uint64_t until_ns =
        std::min(before_ns, next == rounds.end() ? job.record.end_ns : next->second.struck_ns);
    if (!not_healed.empty()) {
      why = not_healed + " was still there when the job ended";
      ++left_out;
      if (why_left_out.empty()) why_left_out = why;
      continue;
    }
    const std::string name = rounds.size() > 1 ? "round " + std::to_string(round->first + 1) + ": " : "";
    Restored& of_round = healed.emplace_back();
    const auto home_ns = home_since(job.trace, until_ns, why);
    const uint64_t at_latest_ns = healed_ns + bound_ns;
    if (home_ns && std::max(*home_ns, healed_ns) <= at_latest_ns) {
      of_round = restored(job.record.operations, first_ns, {std::max(*home_ns, healed_ns), until_ns}, name);
      of_round.rounds_home = 1;
    } else if (until_ns > at_latest_ns) {
      of_round = restored(job.record.operations, first_ns, {at_latest_ns, until_ns}, name);
      of_round.rounds_late = 1;
    } else {
      of_round.why_not = name + why;
    }
    of_round.rounds = 1;
  }
  mode.restored = worst_of(healed);
  mode.restored.rounds_not_healed = left_out;
  mode.restored.why_not_healed = why_left_out;
  if (healed.empty()) mode.restored.why_not = why;
}

}  // namespace

void evaluate_faults(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
                     const NicsLeft& left, ModeResult& mode) {
  Faults(scenario, job, strikes, left, mode).measure();
  measure_restored(scenario, job, strikes, mode);
}

}  // namespace r2bench
