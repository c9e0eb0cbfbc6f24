// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "harness/base/format.h"
#include "harness/judge/metric.h"
#include "harness/judge/per_fault.h"
#include "harness/judge/pool.h"

namespace r2bench {
namespace {

std::optional<double> quantity(const ModeResult& mode, Quantity wanted) {
  switch (wanted) {
    case Quantity::kFloor:
      return mode.faults_sampled > 0 ? std::optional(mode.floor_ms) : std::nullopt;
    case Quantity::kWakeup:
      return mode.wakeup_ms.n > 0 ? std::optional(mode.wakeup_p99_ms) : std::nullopt;
    case Quantity::kLimit:
      return mode.throughput.limit;
  }
  return std::nullopt;
}

/// Whether the fault that the scenario is about was seen in each job of the mode.
bool fault_was_seen(const Scenario& scenario, const ModeResult& mode) {
  if (scenario.faults.empty() && scenario.rank_faults.empty()) return true;
  return saw_its_faults(mode) && mode.jobs_without_fault.value_or(0) == 0;
}

/// What was seen instead.
std::string what_was_seen(const ModeResult& mode) {
  if (mode.jobs_without_fault.value_or(0) > 0) {
    size_t jobs = 0;
    for (const auto& [outcome, count] : mode.outcomes) jobs += count;
    return "in " + std::to_string(*mode.jobs_without_fault) + " of " + std::to_string(jobs) +
           " jobs the fault was not seen to take effect; without it a job's result proves nothing";
  }
  if (mode.faults_planned == 0)
    return "the job had ended before its first fault; without one it proves nothing";
  return std::to_string(mode.faults_witnessed) + " of " + std::to_string(mode.faults_planned) +
         " planned faults were seen to take effect; without them the job's result proves nothing";
}

/// The bound moves by what the clocks leave open, so that a time is not judged more exactly than it is known.
void allow_for_clocks(const ModeResult& mode, const Metric& metric, Comparison comparison,
                      Judgement& judgement) {
  if (mode.clock_bound_ms <= 0 || !judgement.wanted_value || !metric.spans_hosts) return;
  judgement.got += " ± " + milliseconds(mode.clock_bound_ms) + " between hosts";
  if (comparison == Comparison::kLess || comparison == Comparison::kLessEqual)
    *judgement.wanted_value += mode.clock_bound_ms;
  else if (comparison == Comparison::kGreater || comparison == Comparison::kGreaterEqual)
    *judgement.wanted_value -= mode.clock_bound_ms;
}

/// Whether an expectation is met; none: that is not known, and the judgement stays unknown.
struct Met {
  bool met = false;
  bool for_good = false;  ///< not met, whatever the rest of the run brings
};

/// A time that never came for one fault fails whatever the bound; else each fault has its own floor.
void take_each_faults_floor(const ModeResult& mode, const std::string& metric, const Numeric& numeric,
                            const QuantityValue& quantities, Judgement& judgement) {
  const size_t dot = metric.find('.');
  if (dot == std::string::npos || !std::isfinite(*judgement.got_value) || !names_floor(numeric.bound)) return;
  const auto decides = per_fault(mode, metric.substr(0, dot), metric.substr(dot + 1), numeric, quantities);
  if (!decides) return;
  if (decides->got != *judgement.got_value)
    judgement.got += "; the fault that decides by its own floor: " + milliseconds(decides->got);
  judgement.got_value = decides->got;
  judgement.wanted_value = decides->wanted;
}

/// Each round has to meet it; the first one that does not is told.
void judge_rounds(const std::vector<uint64_t>& counts, Comparison comparison, Judgement& judgement,
                  Met& result) {
  result.met = result.met || counts.size() > 1;
  for (size_t round = 0; round < counts.size(); ++round) {
    result.for_good =
        result.for_good || exceeds_for_good(double(counts[round]), comparison, *judgement.wanted_value);
    if (compare(double(counts[round]), comparison, *judgement.wanted_value)) continue;
    if (counts.size() > 1 && result.met)
      judgement.got += ", " + std::to_string(counts[round]) + " in round " + std::to_string(round + 1);
    if (result.met) judgement.got_value = double(counts[round]);
    result.met = false;
  }
}

/// Whether what misses the expectation now misses it at the end as well: a number that can only grow, or a
/// percentile that faults within the bound cannot mend.
bool missed_for_good(const ModeResult& mode, const Metric& metric, const Numeric& numeric,
                     std::optional<size_t> most_samples, const Judgement& judgement) {
  const bool cut_short = mode.outcome == Outcome::kCancelled;
  const bool never = std::isinf(*judgement.got_value);
  if (!cut_short && (metric.grows || never))
    return exceeds_for_good(*judgement.got_value, numeric.comparison, *judgement.wanted_value);
  if (const auto percentile = percentile_of(metric.info.name))
    return too_long_for_good(mode, *percentile, numeric, metric.spans_hosts ? mode.clock_bound_ms : 0,
                             most_samples);
  return metric.grows && metric.info.unit != Unit::kMilliseconds &&
         exceeds_for_good(*judgement.got_value, numeric.comparison, *judgement.wanted_value);
}

std::optional<Met> judge_number(const Measured& m, const Metric* metric, const std::string& name,
                                const Numeric& numeric, Judgement& judgement) {
  const ModeResult& mode = m.mode;
  const QuantityValue quantities = [&](Quantity q) { return quantity(mode, q); };
  judgement.wanted_value = evaluate(numeric.bound, quantities);
  if (!judgement.got_value) return std::nullopt;
  take_each_faults_floor(mode, name, numeric, quantities, judgement);
  allow_for_clocks(mode, *metric, numeric.comparison, judgement);
  if (!judgement.wanted_value) {
    judgement.got += ", but the right side is not known in this run";
    return std::nullopt;
  }
  Met result{compare(*judgement.got_value, numeric.comparison, *judgement.wanted_value)};
  result.for_good =
      missed_for_good(mode, *metric, numeric, most_samples(m.scenario, m.result.repeats), judgement);
  if (metric->by_round) judge_rounds(metric->by_round(mode), numeric.comparison, judgement, result);
  return result;
}

bool meets(const Word& word, const std::string& got) { return (got == word.word) != word.negated; }

std::optional<Met> judge_value(const Measured& m, const Metric* metric, const Expectation& expectation,
                               Judgement& judgement) {
  if (const Numeric* numeric = std::get_if<Numeric>(&expectation.condition))
    return judge_number(m, metric, expectation.metric, *numeric, judgement);
  if (!judgement.got_word) return std::nullopt;
  if (const Word* word = std::get_if<Word>(&expectation.condition))
    return Met{meets(*word, *judgement.got_word), metric->of_each_fault && !word->negated};
  const bool says_so = holds(*judgement.got_word, std::get<Text>(expectation.condition));
  judgement.got = says_so ? "it says so" : "it does not say so";
  judgement.detail = *judgement.got_word;
  return Met{says_so};
}

/// Of several jobs the word of one that misses the expectation; nullopt: there is none.
std::optional<std::string> missed_by(const Value& value, const Expectation& expectation) {
  const Word* word = std::get_if<Word>(&expectation.condition);
  if (word != nullptr)
    for (const std::string& each : value.each)
      if (!meets(*word, each)) return each;
  return std::nullopt;
}

/// Whether a confidence bound misses the expectation and the one on the other side meets it.
bool undecided(const Value& value, const Expectation& expectation, const Judgement& judgement) {
  const Numeric* numeric = std::get_if<Numeric>(&expectation.condition);
  return numeric != nullptr && value.other_bound && judgement.wanted_value &&
         compare(*value.other_bound, numeric->comparison, *judgement.wanted_value);
}

/// Why a time that is met proves nothing: that of a fault which took effect is not known, and may be the
/// worst.
std::string may_be_worse(const ModeResult& mode, const Metric& metric, const Expectation& expectation) {
  const Numeric* numeric = std::get_if<Numeric>(&expectation.condition);
  const auto percentile = percentile_of(metric.info.name);
  if (numeric == nullptr || !percentile) return "";
  size_t unknown = 0;
  std::string reasons;
  for (const auto& [why, count] : unknown_times(mode, percentile->family)) {
    unknown += count;
    reasons += (reasons.empty() ? "" : "; ") + why;
  }
  if (unknown == 0 || met_in_any_case(
                          mode, *percentile, *numeric, metric.spans_hosts ? mode.clock_bound_ms : 0,
                          [&](Quantity q) { return quantity(mode, q); }, unknown))
    return "";
  return std::to_string(unknown) + " of " + std::to_string(mode.faults_witnessed) +
         " faults that took effect " + (unknown == 1 ? "was" : "were") + " not measured: " + reasons;
}

/// Whether the strikes that it misses may be rounds that did not fire, which says nothing of the plugin.
bool misses_rounds_not_fired(const ModeResult& mode, const Expectation& expectation,
                             const Judgement& judgement) {
  return expectation.metric == "fault_witness" && judgement.got_value && judgement.wanted_value &&
         *judgement.got_value < *judgement.wanted_value &&
         *judgement.wanted_value <= *judgement.got_value + double(mode.rounds_not_fired);
}

Judgement judge_one(const Scenario& scenario, const RunResult& result, const ModeResult& mode,
                    const Expectation& expectation) {
  Judgement judgement;
  judgement.mode = mode.mode;
  judgement.metric = expectation.metric;
  judgement.wanted = expectation.wanted;
  judgement.line = expectation.line;
  const Metric* metric = metric_of(expectation.metric);
  const Value value =
      metric == nullptr ? Value::none("not measured") : metric->value({scenario, result, mode});
  judgement.got = value.text;
  judgement.got_value = value.number;
  judgement.got_word = value.word;
  judgement.detail = value.detail;
  const std::optional<std::string> missed = missed_by(value, expectation);
  if (missed) judgement.got_word = missed;
  const std::optional<Met> known = judge_value({scenario, result, mode}, metric, expectation, judgement);
  const auto unknown = [&](DoubtKind kind, const std::string& why) {
    judgement.verdict = Verdict::kUnknown;
    judgement.got += ", but " + why;
    if (!judgement.doubt) judgement.doubt = kind;
  };
  if (!known) {
    const bool may_come = mode.outcome == Outcome::kCancelled && !value.final;
    judgement.doubt = may_come ? DoubtKind::kCutShort : DoubtKind::kNoValue;
    return judgement;
  }
  const bool met = known->met;
  const bool for_good = !met && (known->for_good || value.final || missed);
  const bool cut_short = mode.outcome == Outcome::kCancelled ||
                         ((!value.each.empty() || (metric != nullptr && metric->by_round)) &&
                          mode.outcomes.contains(name(Outcome::kCancelled)));
  const bool proven = metric != nullptr && metric->without_fault && !met;  // wrong without a fault, too
  judgement.verdict = met ? Verdict::kPass : Verdict::kFail;
  if (!fault_was_seen(scenario, mode) && !proven && !for_good)
    unknown(DoubtKind::kFaultNotSeen, "the fault was not seen");
  if (met && metric != nullptr && metric->doubt)
    if (const std::string why = metric->doubt(mode); !why.empty()) unknown(DoubtKind::kProvesNothing, why);
  if (met && metric != nullptr)
    if (const std::string why = may_be_worse(mode, *metric, expectation); !why.empty())
      unknown(DoubtKind::kProvesNothing, why);
  if (!met && undecided(value, expectation, judgement)) unknown(DoubtKind::kTooFewPairs, value.undecided);
  if (!met && misses_rounds_not_fired(mode, expectation, judgement))
    unknown(DoubtKind::kFaultsNotStruck, std::to_string(mode.rounds_not_fired) +
                                             " more rounds that `repeat` plans did not fire: the job ended "
                                             "first, or the fault was healed");
  if (cut_short && !proven && !for_good) unknown(DoubtKind::kCutShort, "the run was cut short");
  return judgement;
}

std::vector<Expectation> expectations_of(const Scenario& scenario, const std::string& mode) {
  std::vector<Expectation> result;
  for (const Expectation& expectation : scenario.expectations) {
    if (expectation.mode == "all" || expectation.mode == mode) result.push_back(expectation);
  }
  return result;
}

void note_doubts(const Scenario& scenario, const ModeResult& mode, std::vector<Doubt>& doubts) {
  const auto doubt = [&](DoubtKind kind, const std::string& text) {
    doubts.push_back({kind, mode.mode + ": " + text});
  };
  if (!fault_was_seen(scenario, mode)) doubt(DoubtKind::kFaultNotSeen, what_was_seen(mode));
  if (mode.trace_lost > 0) {
    doubt(DoubtKind::kTraceLost,
          std::to_string(mode.trace_lost) +
              " trace events were overwritten before they could be read; times and counts may be wrong");
  }
  if (mode.witnesses_lost > 0) {
    doubt(DoubtKind::kEffectsNotRecorded,
          std::to_string(mode.witnesses_lost) +
              " effects of faults were not recorded, or not made, because a table of the injector was full; "
              "strikes may be missing");
  }
  if (mode.rounds_seen < mode.rounds_fired) {
    doubt(DoubtKind::kRoundsNotRecorded,
          "of " + std::to_string(mode.rounds_fired) +
              " rounds of repeating faults that the injector fired, the effects of " +
              std::to_string(mode.rounds_seen) + " were recorded; the other rounds were not measured");
  }
  if (mode.faults_added > 0)
    doubt(DoubtKind::kFaultsAdded, std::to_string(mode.faults_added) +
                                       (mode.faults_added == 1 ? " fault was" : " faults were") +
                                       " added by r2bench inject; times and rates are not those of the "
                                       "scenario alone");
  if (mode.faults_ended_outside > 0)
    doubt(DoubtKind::kFaultsAdded, std::to_string(mode.faults_ended_outside) +
                                       (mode.faults_ended_outside == 1 ? " fault was" : " faults were") +
                                       " ended by r2bench inject; times and rates are not those of the "
                                       "scenario alone");
  for (const HostResult& host : mode.hosts)
    if (host.clock_beyond_ms > 0)
      doubt(DoubtKind::kClocks, "the clock of host " + host.name + " and the runner's ran apart by " +
                                    milliseconds(host.clock_beyond_ms) +
                                    " more than clocks do; times between hosts may be off by that");
  if (!mode.incomplete.empty())
    doubt(DoubtKind::kFaultsNotStruck, "not all faults were struck: " + mode.incomplete);
  if (mode.outcome == Outcome::kCancelled) doubt(DoubtKind::kCutShort, "the run was cut short");
}

}  // namespace

Judged judge(const Scenario& scenario, const RunResult& result) {
  Judged judged;
  if (scenario.expectations.empty()) {
    judged.doubts.push_back({DoubtKind::kExpectsNothing,
                             "the scenario expects nothing; add an 'expect' section to have a verdict"});
  }
  for (const Mode& wanted : scenario.modes) {
    const auto found = std::find_if(result.modes.begin(), result.modes.end(),
                                    [&](const ModeResult& mode) { return mode.mode == wanted.label; });
    if (found == result.modes.end()) {
      judged.doubts.push_back({DoubtKind::kModeNotRun, wanted.label + ": did not run"});
      continue;
    }
    std::vector<Expectation> expectations = expectations_of(scenario, wanted.label);
    const bool outcome_stated = std::any_of(expectations.begin(), expectations.end(),
                                            [](const Expectation& e) { return e.metric == "outcome"; });
    if (!outcome_stated) {
      Expectation implied{wanted.label, "outcome", "ok", 0, 0, Word{false, "ok"}};
      judged.expectations.push_back(judge_one(scenario, result, *found, implied));
      judged.expectations.back().implied = true;
    }
    for (const Expectation& expectation : expectations) {
      judged.expectations.push_back(judge_one(scenario, result, *found, expectation));
    }
    note_doubts(scenario, *found, judged.doubts);
  }
  if (result.cancelled)
    judged.doubts.push_back({DoubtKind::kCutShort, "the run was ended before it was through"});
  const auto any = [&](Verdict verdict) {
    return std::any_of(judged.expectations.begin(), judged.expectations.end(),
                       [&](const Judgement& j) { return j.verdict == verdict; });
  };
  if (any(Verdict::kFail)) {
    judged.verdict = Verdict::kFail;
  } else if (any(Verdict::kUnknown) || !judged.doubts.empty()) {
    judged.verdict = Verdict::kUnknown;
  } else {
    judged.verdict = Verdict::kPass;
  }
  return judged;
}

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "fail";
    case Verdict::kUnknown:
      return "unknown";
  }
  return "unknown";
}

const char* name(DoubtKind kind) {
  // clang-format off
  switch (kind) {
    case DoubtKind::kExpectsNothing: return "expects_nothing";
    case DoubtKind::kModeNotRun: return "mode_not_run";
    case DoubtKind::kFaultNotSeen: return "fault_not_seen";
    case DoubtKind::kTraceLost: return "trace_lost";
    case DoubtKind::kEffectsNotRecorded: return "effects_not_recorded";
    case DoubtKind::kRoundsNotRecorded: return "rounds_not_recorded";
    case DoubtKind::kFaultsAdded: return "faults_added";
    case DoubtKind::kClocks: return "clocks";
    case DoubtKind::kFaultsNotStruck: return "faults_not_struck";
    case DoubtKind::kCutShort: return "cut_short";
    case DoubtKind::kNoValue: return "no_value";
    case DoubtKind::kProvesNothing: return "proves_nothing";
    case DoubtKind::kTooFewPairs: return "too_few_pairs";
  }
  // clang-format on
  return "no_value";
}

int exit_code(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return 0;
    case Verdict::kFail:
      return 1;
    case Verdict::kUnknown:
      return 2;
  }
  return 2;
}

}  // namespace r2bench
