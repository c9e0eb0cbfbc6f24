#include "harness/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "harness/report/counts.h"
#include "harness/report/format.h"
#include "harness/report/nic_names.h"
#include "harness/report/per_fault.h"

namespace r2bench {
namespace {

/// What a metric is in a run: a number, a word, or nothing, with the reason.
struct Value {
  std::optional<double> number;
  std::optional<std::string> word;
  std::string text;  ///< for people; the reason when there is no value
  std::string detail;

  static Value of(double number, std::string text) { return {number, std::nullopt, std::move(text), {}}; }
  static Value of_count(uint64_t count) { return of(static_cast<double>(count), std::to_string(count)); }
  static Value of_word(std::string word, const std::string& detail = "") {
    return {std::nullopt, word, word, detail};
  }
  static Value none(std::string reason) { return {std::nullopt, std::nullopt, std::move(reason), {}}; }
};

const Distribution* family(const ModeResult& mode, const std::string& name) {
  if (name == "detect_ms") return &mode.detect_ms;
  if (name == "migrate_ms") return &mode.migrate_ms;
  if (name == "recover_ms") return &mode.recover_ms;
  if (name == "blackout_ms") return &mode.blackout_ms;
  return nullptr;
}

std::string why_no_sample(const ModeResult& mode) {
  for (const FaultSample& sample : mode.faults) {
    if (!sample.witnessed) return "no sample: the fault was never seen to take effect";
    if (!sample.sampled)
      return "no sample" + (sample.why_not_sampled.empty() ? "" : ": " + sample.why_not_sampled);
  }
  return mode.outcome == Outcome::kOk ? "no sample"
                                      : std::string("no sample: the job ended (") + name(mode.outcome) + ")";
}

Value time_value(const ModeResult& mode, const Distribution& values, const std::string& statistic) {
  if (statistic == "n") return Value::of_count(values.n);
  if (mode.faults_sampled == 0) return Value::none(why_no_sample(mode));
  const size_t without = mode.faults_sampled - std::min(values.n, mode.faults_sampled);
  const size_t never = &values == &mode.recover_ms ? std::max(mode.faults_unrecovered, without) : without;
  if (never > 0) {
    // A recovery that never came is worse than any that did: it counts as one without end.
    return Value::of(
        std::numeric_limits<double>::infinity(),
        "never for " + std::to_string(never) + " of " + std::to_string(mode.faults_sampled) + " faults");
  }
  const double value = statistic == "p50"   ? values.p50
                       : statistic == "p95" ? values.p95
                       : statistic == "p99" ? values.p99
                                            : values.max;
  return Value::of(value,
                   milliseconds(value) + (values.n > 1 ? " (of " + std::to_string(values.n) + ")" : ""));
}

/// Of a fault that struck several NICs all have to be named; one fault of several will do.
Value error_names_nic(const Scenario& scenario, const ModeResult& mode) {
  if (mode.error.empty()) return Value::none("there is no error");
  bool any = false;
  for (const FaultSample& sample : mode.faults) {
    if (!sample.witnessed) continue;
    const std::vector<std::string> indices = nic_indices(sample.target, scenario.fabric);
    if (indices.empty()) continue;
    any = true;
    const std::string node = sample.target.substr(0, sample.target.find('/'));
    if (std::all_of(indices.begin(), indices.end(),
                    [&](const std::string& index) { return names_nic(mode.error, node, index); }))
      return Value::of_word("yes", mode.error);
  }
  return any ? Value::of_word("no", mode.error) : Value::none("no witnessed fault has a NIC as its target");
}

Value detected_by(const ModeResult& mode) {
  if (mode.detected_by.empty()) return Value::none(why_no_sample(mode));
  if (mode.detected_by.size() == 1) {
    const auto& [by, count] = *mode.detected_by.begin();
    return {std::nullopt, by, by + (count > 1 ? " (" + std::to_string(count) + " times)" : ""), {}};
  }
  std::string text;
  for (const auto& [by, count] : mode.detected_by) {
    text += (text.empty() ? "" : ", ") + by + " (" + std::to_string(count) + ")";
  }
  return {std::nullopt, "several", text, {}};
}

Value correctness(const ModeResult& mode) {
  const Correctness& c = mode.correctness;
  if (!c.exact()) {
    return {std::nullopt,
            "wrong",
            std::to_string(c.wrong_elements) + " wrong, " + std::to_string(c.lost) + " lost, " +
                std::to_string(c.duplicated) + " duplicated, " + std::to_string(c.size_errors) +
                " of wrong size",
            {}};
  }
  if (c.checked_elements == 0) return Value::none("no element was compared");
  return {std::nullopt, "exact", "exact, " + std::to_string(c.checked_elements) + " elements compared", {}};
}

/// What is wrong is known; that nothing is, only where something was compared.
Value wrong_count(const ModeResult& mode, uint64_t count) {
  if (count == 0 && mode.correctness.checked_elements == 0) return Value::none("no element was compared");
  return Value::of_count(count);
}

Value overhead(const RunResult& result, const ModeResult& mode, bool busbw) {
  for (const Overhead& overhead : result.overheads) {
    if (overhead.mode != mode.mode) continue;
    if (overhead.pairs < 2) return Value::none("fewer than two pairs were measured");
    const double upper = busbw ? overhead.loss_upper95_pct : overhead.upper95_pct;
    const double mean = busbw ? overhead.loss_mean_pct : overhead.mean_pct;
    return Value::of(upper, fixed(upper, 2) + " % (mean " + fixed(mean, 2) + " %, " +
                                std::to_string(overhead.pairs) + " pairs)");
  }
  return Value::none("no pair was measured");
}

Value cpu_loss(const RunResult& result, const ModeResult& mode) {
  for (const Overhead& overhead : result.overheads) {
    if (overhead.mode != mode.mode) continue;
    if (overhead.cpu_pairs < 2) return Value::none("the CPU time of fewer than two pairs is known");
    return Value::of(overhead.cpu_upper95_pct, fixed(overhead.cpu_upper95_pct, 2) + " % (mean " +
                                                   fixed(overhead.cpu_mean_pct, 2) + " %, " +
                                                   std::to_string(overhead.cpu_pairs) + " pairs)");
  }
  return Value::none("no pair was measured");
}

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

/// A round that did not settle decides, whatever others are not known.
Value settled(const ModeResult& mode) {
  const Throughput& t = mode.throughput;
  if (t.rounds_settled < t.rounds_measured)
    return {std::nullopt,
            "no",
            "no: " + rounds_of(t.rounds_settled, t.rounds_measured) + " within " + milliseconds(t.bound_ms),
            {}};
  if (const std::string why = unmeasured(mode); !why.empty()) return Value::none(why);
  return {std::nullopt, "yes", "yes" + (t.rounds > 1 ? ", " + rounds_of(t.rounds, t.rounds) : ""), {}};
}

Value retained(const ModeResult& mode) {
  const Throughput& t = mode.throughput;
  if (t.rounds_settled < t.rounds_measured)
    // What has not come back within the bound has not been retained, whatever a mean over all rounds says.
    return Value::of(0, "not settled within " + milliseconds(t.bound_ms) + " in " +
                            rounds_of(t.rounds_measured - t.rounds_settled, t.rounds_measured) + " (" +
                            short_number(t.worst_unsettled) + " at worst, " + short_number(t.retained) +
                            " on average)");
  if (const std::string why = unmeasured(mode); !why.empty()) return Value::none(why);
  return Value::of(t.retained, short_number(t.retained) +
                                   (t.rounds > 1 ? " (" + rounds_of(t.rounds, t.rounds) + ")" : ""));
}

Value restored(const ModeResult& mode) {
  const Restored& r = mode.restored;
  const std::string ratio =
      r.ratio ? fixed(*r.ratio, 3) + " (median of " + std::to_string(r.operations_after) +
                    " operations: " + milliseconds(r.after_ms) + ", of " +
                    std::to_string(r.operations_before) + " before: " + milliseconds(r.before_ms) + ")"
              : "";
  if (r.rounds_late > 0)
    return Value::of(0, "not every channel was home in time in " + rounds_of(r.rounds_late, r.rounds) +
                            (ratio.empty() ? "" : ": " + ratio));
  if (!r.ratio || r.rounds_home < r.rounds)
    return Value::none(r.why_not.empty() ? "not measured" : r.why_not);
  return Value::of(*r.ratio, ratio);
}

/// What was retained or came back says nothing of the NICs where something else held the job up. Empty:
/// nothing points to that.
std::string held_up(const ModeResult& mode) {
  constexpr double kMostOfLimit = 1.1;    // good runs reach 1.06: an operation costs more than port time
  constexpr double kLeastOfPorts = 0.85;  // good runs reach 0.91 to 0.99
  const Throughput& t = mode.throughput;
  if (t.rounds_measured > 0 && t.limit > 0 && t.retained > kMostOfLimit * t.limit)
    return "more was retained than the NICs left can carry (" + short_number(t.retained) + " of a limit of " +
           short_number(t.limit) + "): something else had held the job up before";
  if (t.ports_gbps > 0 && t.before_gbps > 0 && t.before_gbps < kLeastOfPorts * t.ports_gbps)
    return "the ports carry " + short_number(t.ports_gbps) + " Gbit/s, and before the fault " +
           short_number(t.before_gbps) + " were delivered: something else held the job up";
  return "";
}

Value value_of(const Scenario& scenario, const RunResult& result, const ModeResult& mode,
               const std::string& metric) {
  if (const size_t dot = metric.find('.'); dot != std::string::npos) {
    const Distribution* values = family(mode, metric.substr(0, dot));
    return values == nullptr ? Value::none("not measured")
                             : time_value(mode, *values, metric.substr(dot + 1));
  }
  if (metric == "outcome") return Value::of_word(name(mode.outcome), mode.error);
  if (metric == "correctness") return correctness(mode);
  if (metric == "error_names_nic") return error_names_nic(scenario, mode);
  if (metric == "error_says")
    return mode.error.empty() ? Value::none("there is no error") : Value::of_word(mode.error);
  if (metric == "error_ms") {
    if (!mode.error_ms) return Value::none("there is no error after a fault");
    return Value::of(*mode.error_ms, milliseconds(*mode.error_ms));
  }
  if (metric == "stall_ms") {
    if (!mode.stall_ms) return Value::none("no fault took effect, or the job did not end well");
    return Value::of(*mode.stall_ms, milliseconds(*mode.stall_ms));
  }
  if (metric == "detected_by") return detected_by(mode);
  if (metric == "wrong_elements") return wrong_count(mode, mode.correctness.wrong_elements);
  if (metric == "duplicated") return wrong_count(mode, mode.correctness.duplicated);
  if (metric == "lost") return wrong_count(mode, mode.correctness.lost);
  if (const auto counts = counts_by_round(mode, metric); !counts.empty())
    return Value::of(double(*std::max_element(counts.begin(), counts.end())), in_words(counts));
  if (metric == "settled") return settled(mode);
  if (metric == "retained_bw") return retained(mode);
  if (metric == "restored") return restored(mode);
  if (metric == "overhead_pct") return overhead(result, mode, false);
  if (metric == "busbw_loss_pct") return overhead(result, mode, true);
  if (metric == "cpu_loss_pct") return cpu_loss(result, mode);
  if (metric == "cpu_per_gb") {
    if (!mode.cpu.known()) return Value::none("the CPU time is not known");
    return Value::of(mode.cpu.per_gb(), short_number(mode.cpu.per_gb()) + " s/GB");
  }
  return Value::none("not measured");
}

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

/// Whether the fault that the scenario is about was seen in this job.
bool fault_was_seen(const Scenario& scenario, const ModeResult& mode) {
  if (scenario.faults.empty() && scenario.rank_faults.empty()) return true;
  // A job that a fault ended need not have seen the ones planned for later.
  return mode.outcome == Outcome::kOk
             ? mode.faults_witnessed >= mode.faults_planned && mode.faults_witnessed > 0
             : mode.faults_witnessed > 0;
}

/// Data that is wrong is wrong, whether a fault was seen or not.
bool stands_without_fault(const std::string& metric) {
  return metric == "correctness" || metric == "wrong_elements" || metric == "duplicated" || metric == "lost";
}

/// A time from an event of one host to one of another is known as exactly as their clocks; a gap at one
/// receiver, or a rate over a second, is not touched by that.
bool spans_hosts(const std::string& metric) {
  for (const char* of_two_ends : {"detect_ms", "migrate_ms", "recover_ms", "error_ms"})
    if (metric == of_two_ends || metric.starts_with(std::string(of_two_ends) + ".")) return true;
  return false;
}

/// The bound moves by what the clocks leave open, so that a time is not judged more exactly than it is known.
void allow_for_clocks(const ModeResult& mode, Comparison comparison, Judgement& judgement) {
  if (mode.clock_bound_ms <= 0 || !judgement.wanted_value || !spans_hosts(judgement.metric) ||
      judgement.metric.ends_with(".n"))
    return;
  judgement.got += " ± " + milliseconds(mode.clock_bound_ms) + " between hosts";
  if (comparison == Comparison::kLess || comparison == Comparison::kLessEqual)
    *judgement.wanted_value += mode.clock_bound_ms;
  else if (comparison == Comparison::kGreater || comparison == Comparison::kGreaterEqual)
    *judgement.wanted_value -= mode.clock_bound_ms;
}

Judgement judge_one(const Scenario& scenario, const RunResult& result, const ModeResult& mode,
                    const Expectation& expectation) {
  Judgement judgement;
  judgement.mode = mode.mode;
  judgement.metric = expectation.metric;
  judgement.wanted = expectation.wanted;
  judgement.line = expectation.line;
  const Value value = value_of(scenario, result, mode, expectation.metric);
  judgement.got = value.text;
  judgement.got_value = value.number;
  judgement.got_word = value.word;
  judgement.detail = value.detail;
  bool met = false;
  bool for_good = false;  // not met, whatever comes
  if (const Word* word = std::get_if<Word>(&expectation.condition)) {
    if (!value.word) return judgement;
    met = (*value.word == word->word) != word->negated;
  } else if (const Text* text = std::get_if<Text>(&expectation.condition)) {
    if (!value.word) return judgement;
    met = holds(*value.word, *text);
    judgement.got = met ? "it says so" : "it does not say so";
    judgement.detail = *value.word;
  } else {
    const Numeric& numeric = std::get<Numeric>(expectation.condition);
    const QuantityValue quantities = [&](Quantity q) { return quantity(mode, q); };
    judgement.wanted_value = evaluate(numeric.bound, quantities);
    if (!value.number) return judgement;
    const size_t dot = expectation.metric.find('.');
    // A time that never came for one fault fails whatever the bound; else each fault has its own floor.
    if (dot != std::string::npos && std::isfinite(*value.number) && names_floor(numeric.bound)) {
      if (const auto decides = per_fault(mode, expectation.metric.substr(0, dot),
                                         expectation.metric.substr(dot + 1), numeric, quantities)) {
        if (decides->got != *value.number)
          judgement.got += "; the fault that decides by its own floor: " + milliseconds(decides->got);
        judgement.got_value = decides->got;
        judgement.wanted_value = decides->wanted;
      }
    }
    allow_for_clocks(mode, numeric.comparison, judgement);
    if (judgement.wanted_value)
      met = compare(*judgement.got_value, numeric.comparison, *judgement.wanted_value);
    if (!judgement.wanted_value) {
      judgement.got += ", but the right side is not known in this run";
      return judgement;
    }
    const std::vector<uint64_t> counts = counts_by_round(mode, expectation.metric);
    // Each round has to meet it; the first one that does not is told.
    met = met || counts.size() > 1;
    for (size_t round = 0; round < counts.size(); ++round) {
      for_good = for_good || exceeded(counts[round], numeric.comparison, *judgement.wanted_value);
      if (compare(double(counts[round]), numeric.comparison, *judgement.wanted_value)) continue;
      if (counts.size() > 1 && met)
        judgement.got += ", " + std::to_string(counts[round]) + " in round " + std::to_string(round + 1);
      if (met) judgement.got_value = double(counts[round]);
      met = false;
    }
  }
  for_good = for_good || (stands_without_fault(expectation.metric) && !met);
  const bool seen = fault_was_seen(scenario, mode);
  judgement.verdict = met ? Verdict::kPass : Verdict::kFail;
  if (!seen && !(stands_without_fault(expectation.metric) && !met)) {
    judgement.verdict = Verdict::kUnknown;
    judgement.got += ", but the fault was not seen";
  }
  if (expectation.metric == "retained_bw" || expectation.metric == "restored")
    if (const std::string why = held_up(mode); met && !why.empty()) {
      judgement.verdict = Verdict::kUnknown;
      judgement.got += ", but " + why;
    }
  if (mode.outcome == Outcome::kCancelled && !for_good) {
    judgement.verdict = Verdict::kUnknown;
    judgement.got += ", but the run was cut short";
  }
  return judgement;
}

std::vector<Expectation> expectations_of(const Scenario& scenario, const std::string& mode) {
  std::vector<Expectation> result;
  for (const Expectation& expectation : scenario.expectations) {
    if (expectation.mode == "all" || expectation.mode == mode) result.push_back(expectation);
  }
  return result;
}

void note_doubts(const Scenario& scenario, const ModeResult& mode, std::vector<std::string>& doubts) {
  if (!fault_was_seen(scenario, mode)) {
    doubts.push_back(
        mode.faults_planned == 0
            ? mode.mode + ": the job had ended before its first fault; without one it proves nothing"
            : mode.mode + ": " + std::to_string(mode.faults_witnessed) + " of " +
                  std::to_string(mode.faults_planned) +
                  " planned faults were seen to take effect; what the job shows without them proves nothing");
  }
  if (mode.trace_lost > 0) {
    doubts.push_back(
        mode.mode + ": " + std::to_string(mode.trace_lost) +
        " trace events were overwritten before they could be read; times and counts may be wrong");
  }
  if (!mode.incomplete.empty())
    doubts.push_back(mode.mode + ": not all faults were struck: " + mode.incomplete);
  if (mode.outcome == Outcome::kCancelled) doubts.push_back(mode.mode + ": the run was cut short");
}

}  // namespace

Judged judge(const Scenario& scenario, const RunResult& result) {
  Judged judged;
  if (scenario.expectations.empty()) {
    judged.doubts.push_back("the scenario expects nothing; add an 'expect' section to have a verdict");
  }
  for (const Mode& wanted : scenario.modes) {
    const auto found = std::find_if(result.modes.begin(), result.modes.end(),
                                    [&](const ModeResult& mode) { return mode.mode == wanted.label; });
    if (found == result.modes.end()) {
      judged.doubts.push_back(wanted.label + ": did not run");
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
  if (result.cancelled) judged.doubts.push_back("the run was ended before it was through");
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
