// SPDX-License-Identifier: Apache-2.0
#include "harness/report/recheck.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "harness/judge/held_up.h"
#include "harness/judge/metric.h"
#include "harness/judge/per_fault.h"
#include "harness/judge/verdict.h"
#include "harness/report/json_lines.h"
#include "harness/report/read_back.h"
#include "harness/report/recheck_got.h"
#include "harness/scenario/expectation.h"
#include "harness/scenario/suggest.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

/// What of the run's rates `Metric::doubt` and held_up look at.
ModeResult rates_of(const Json& run) {
  const Json& rates = run.at("metrics").at("throughput");
  const auto number = [&](const char* key) {
    return rates.contains(key) && rates.at(key).is_number() ? rates.at(key).get<double>() : 0;
  };
  const Json rounds = rates.value("rounds", Json::object());  // not in older results
  ModeResult mode;
  mode.throughput = {.before_gbps = number("before_gbps"),
                     .retained = number("retained"),
                     .limit = number("limit"),
                     .rounds = rounds.value("of", size_t{0}),
                     .rounds_measured = rounds.value("measured", size_t{0}),
                     .ports_gbps = number("ports_gbps"),
                     .least_before_gbps = number("least_before_gbps"),
                     .most_of_limit = number("most_of_limit")};
  return mode;
}

const char* in_words(const Json& ok) { return ok.is_null() ? "unknown" : ok.get<bool>() ? "met" : "not met"; }

/// What is wanted, as the scenario had it: slow motion notes behind it that its times are longer.
std::string without_note(const std::string& wanted, bool& slowed) {
  slowed = wanted.ends_with(": slow motion)");
  return slowed ? wanted.substr(0, wanted.rfind(" (")) : wanted;
}

/// Whether the fault was not seen in one of the run's several jobs.
bool has_job_without_fault(const Json& run) {
  return number_at(run, "/metrics/faults/jobs_without_fault").value_or(0) > 0;
}

/// As the run says, whatever its doubts do: trace events that were lost, or faults that were not seen.
bool proves_nothing(const Json& run) {
  const Json& faults = run.at("metrics").at("faults");
  return run.at("trace_lost") != 0 || has_job_without_fault(run) ||
         (run.at("outcome") == "ok" &&
          faults.at("witnessed").get<double>() < faults.at("planned").get<double>());
}

class Recheck {
 public:
  explicit Recheck(const Json& result) : result_(result) {}

  std::vector<std::string> mismatches() {
    bool failed = false, doubtful = !result_.at("doubts").empty() || result_.at("cancelled").get<bool>() ||
                                    result_.at("expectations").empty();
    for (const Json& expectation : result_.at("expectations")) {
      check(expectation);
      const Json& ok = expectation.at("ok");
      failed = failed || (ok.is_boolean() && !ok.get<bool>());
      doubtful = doubtful || ok.is_null();
    }
    for (const Json& run : result_.at("runs")) {
      if (!expects_outcome(run.at("mode"))) say(run.at("mode"), "it has no expectation of its outcome");
      doubtful = doubtful || proves_nothing(run);
      check_rates(run);
    }
    const std::string follows = name(failed ? Verdict::kFail : doubtful ? Verdict::kUnknown : Verdict::kPass);
    const std::string verdict = result_.at("verdict");
    // Of a run that was cut short older versions said unknown in any case.
    const bool as_it_was = result_.at("cancelled").get<bool>() && verdict == "unknown" && !says_words();
    if (verdict != follows && !as_it_was)
      say("verdict", "'" + verdict + "', but '" + follows + "' follows from the expectations and doubts");
    return std::move(found_);
  }

 private:
  void say(const std::string& about, const std::string& what) { found_.push_back(about + ": " + what); }

  bool says_words() const {
    for (const Json& expectation : result_.at("expectations"))
      if (expectation.contains("got_word")) return true;
    return false;
  }

  bool expects_outcome(const std::string& mode) const {
    for (const Json& expectation : result_.at("expectations"))
      if (expectation.at("name") == mode + ".outcome") return true;
    return false;
  }

  const Json* run_of(const std::string& name) const {
    for (const Json& run : result_.at("runs"))
      if (name.starts_with(run.at("mode").get<std::string>() + ".")) return &run;
    return nullptr;
  }

  void check(const Json& expectation) {
    const std::string name = expectation.at("name");
    const Json* run = run_of(name);
    if (run == nullptr) return say(name, "there is no such run");
    const std::string metric = name.substr(run->at("mode").get<std::string>().size() + 1);
    const MetricInfo* info = find_metric(metric);
    if (info == nullptr) return say(name, "there is no metric '" + metric + "'");
    Condition condition;
    bool slowed = false;
    try {
      condition = parse_condition(*info, without_note(expectation.at("wanted"), slowed));
    } catch (const ExpressionError& error) {
      return say(name, error.message);
    }
    const Stored stored{name, *metric_of(metric), expectation, *run};
    check_got(stored, found_);
    const Json& ok = expectation.at("ok");
    const std::optional<bool> met = is_met(expectation, condition, slowed);
    if (ok.is_null()) return check_unknown(name, stored.metric, expectation, *run, met);
    if (const Numeric* numeric = std::get_if<Numeric>(&condition)) {
      if (info->unit == Unit::kMilliseconds) check_time(stored, *numeric, found_);
      if (!slowed) check_bound(stored, *numeric, found_);
    }
    if (met && *met != ok.get<bool>()) return contradict(name, expectation);
    if (!ok.get<bool>()) return;
    std::string why = doubt_of(stored.metric, *run);
    if (const Numeric* numeric = std::get_if<Numeric>(&condition); numeric && why.empty())
      why = missed_elsewhere(stored.metric, *numeric, slowed, expectation, *run);
    if (!why.empty()) say(name, "is said to be met, but " + why);
  }

  /// What misses it beside the number that was got: the count of another round, or times that are not known.
  static std::string missed_elsewhere(const Metric& metric, const Numeric& numeric, bool slowed,
                                      const Json& expectation, const Json& run) {
    const Json& wanted = expectation.at("wanted_value");
    const auto percentile = slowed ? std::nullopt : percentile_of(metric.info.name);
    const bool older = !expectation.contains("doubt");  // such counted or judged otherwise
    if (older || !wanted.is_number() || (!metric.by_round && !percentile)) return "";
    const ModeResult mode = mode_of(run);
    if (metric.by_round) {
      const std::vector<uint64_t> counts = metric.by_round(mode);
      for (size_t round = 0; round < counts.size(); ++round)
        if (!compare(double(counts[round]), numeric.comparison, wanted.get<double>()))
          return "round " + std::to_string(round + 1) + " has " + std::to_string(counts[round]);
      return "";
    }
    size_t unknown = 0;
    for (const auto& [why, count] : unknown_times(mode, percentile->family)) unknown += count;
    if (unknown == 0) return "";
    // Between hosts the clocks widen the bound.
    const double slack_ms = number_at(run, "/hosts/clock_bound_ms").value_or(0);
    const auto quantities = [&](Quantity quantity) {
      if (quantity == Quantity::kWakeup) return std::optional(mode.wakeup_p99_ms);
      return quantity == Quantity::kLimit ? std::optional(mode.throughput.limit) : std::nullopt;
    };
    if (met_in_any_case(mode, *percentile, numeric, slack_ms, quantities, unknown)) return "";
    return std::to_string(unknown) +
           (unknown == 1 ? " fault that took effect was" : " faults that took effect were") + " not measured";
  }

  void contradict(const std::string& name, const Json& expectation) {
    say(name, std::string("is said to be ") + in_words(expectation.at("ok")) + ", but wanted is '" +
                  expectation.at("wanted").get<std::string>() + "' and got '" +
                  expectation.at("got").get<std::string>() + "'");
  }

  static std::string doubt_of(const Metric& metric, const Json& run) {
    return metric.doubt ? metric.doubt(rates_of(run)) : "";
  }

  /// Whether a run ended before everything was seen that it is about, and says so.
  bool is_not_whole(const Json& run) const {
    if (run.at("outcome") == "cancelled") return true;
    const Json& faults = run.at("metrics").at("faults");
    const bool unseen = faults.at("witnessed") == 0 || has_job_without_fault(run) ||
                        (run.at("outcome") == "ok" && proves_nothing(run));
    const std::string mode = run.at("mode");
    const Json& doubts = result_.at("doubts");
    return unseen && std::any_of(doubts.begin(), doubts.end(), [&](const Json& doubt) {
             return doubt.get<std::string>().starts_with(mode + ": ");
           });
  }

  /// What was wanted and got decides, unless the run was not whole or what is met proves nothing. That a run
  /// which was not whole had failed for good is not found here: older versions did not say so.
  void check_unknown(const std::string& name, const Metric& metric, const Json& expectation, const Json& run,
                     std::optional<bool> met) {
    if (!met || (*met && !doubt_of(metric, run).empty())) return;
    if (*met && may_be_worse(metric, run)) return;
    if (is_not_whole(run) && (*met || !metric.without_fault)) return;
    if (!*met && (may_be_met(metric, expectation, run) || may_be_rounds_not_fired(metric, expectation, run)))
      return;
    contradict(name, expectation);
  }

  /// A time that is not known may be worse than what is met.
  bool may_be_worse(const Metric& metric, const Json& run) const {
    const auto percentile = percentile_of(metric.info.name);
    if (!percentile) return false;
    const RunResult read = result_of(result_);
    return std::any_of(read.modes.begin(), read.modes.end(), [&](const ModeResult& mode) {
      return Json(mode.mode) == run.at("mode") && !unknown_times(mode, percentile->family).empty();
    });
  }

  /// The strikes that it misses.
  static bool may_be_rounds_not_fired(const Metric& metric, const Json& expectation, const Json& run) {
    const Json &got = expectation.at("got_value"), &wanted = expectation.at("wanted_value");
    if (metric.info.name != "fault_witness" || !got.is_number() || !wanted.is_number()) return false;
    const double missed = wanted.get<double>() - got.get<double>();
    return missed > 0 && missed <= double(mode_of(run).rounds_not_fired);
  }

  /// By the confidence bound on the other side.
  bool may_be_met(const Metric& metric, const Json& expectation, const Json& run) const {
    const std::optional<Scenario> scenario = scenario_of(result_);
    const RunResult read = result_of(result_);
    const Json& wanted = expectation.at("wanted_value");
    for (const ModeResult& mode : read.modes) {
      if (!scenario || Json(mode.mode) != run.at("mode") || !wanted.is_number()) continue;
      const Value value = metric.value({*scenario, read, mode});
      bool slowed = false;
      const Condition condition =
          parse_condition(metric.info, without_note(expectation.at("wanted"), slowed));
      const Numeric* numeric = std::get_if<Numeric>(&condition);
      return numeric != nullptr && value.other_bound &&
             compare(*value.other_bound, numeric->comparison, wanted.get<double>());
    }
    return false;
  }

  void check_rates(const Json& run) {
    const Json& rates = run.at("metrics").at("throughput");
    if (!rates.contains("held_up")) return;  // an older result
    const std::string why = held_up_at_faults(rates_of(run).throughput);
    if (rates.at("held_up").is_null() != why.empty())
      say(run.at("mode"),
          why.empty() ? "it says that something other than the NICs limited its rates, but its metrics do "
                        "not show that"
                      : "it does not say that something other than the NICs limited its rates, but " + why);
  }

  /// nullopt: the file does not say.
  static std::optional<bool> is_met(const Json& expectation, const Condition& condition, bool slowed) {
    if (const Numeric* numeric = std::get_if<Numeric>(&condition)) {
      std::optional<double> constant;
      if (!slowed) constant = evaluate(numeric->bound, [](Quantity) { return std::optional<double>(); });
      const Json& wanted = expectation.at("wanted_value");
      if (!constant && !wanted.is_number()) return std::nullopt;
      const Json& got = expectation.at("got_value");
      // JSON has no infinity: what never came is null. So is what is not known, and then `ok` is.
      if (!got.is_number() && expectation.at("ok").is_null() &&
          !expectation.at("got").get<std::string>().starts_with("never for "))
        return std::nullopt;
      const double value = got.is_number() ? got.get<double>() : std::numeric_limits<double>::infinity();
      return compare(value, numeric->comparison, constant ? *constant : wanted.get<double>());
    }
    if (!expectation.contains("got_word")) return std::nullopt;
    const Json& got = expectation.at("got_word");
    if (!got.is_string()) return expectation.at("ok").is_null() ? std::nullopt : std::optional(false);
    if (const Word* word = std::get_if<Word>(&condition))
      return (got.get<std::string>() == word->word) != word->negated;
    return holds(got, std::get<Text>(condition));
  }

  const Json& result_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> conclusion_mismatches(const nlohmann::json& result) {
  return Recheck(result).mismatches();
}

std::vector<Mismatch> unknown_metrics(const nlohmann::json& result) {
  std::vector<std::string> names;
  for (const Metric& metric : all_metrics()) names.push_back(metric.info.name);
  std::vector<Mismatch> found;
  const Json& runs = result.at("runs");
  for (size_t i = 0; i < runs.size(); ++i) {
    const Json values = runs[i].at("metrics").value("values", Json::object());  // not in older results
    for (const auto& [name, unused] : values.items()) {
      if (metric_of(name) != nullptr) continue;
      const std::string meant = did_you_mean(name, names);
      found.push_back({member_pointer("/runs/" + std::to_string(i) + "/metrics/values", name),
                       "is no metric" + (meant.empty() ? "; r2bench list --metrics names all" : meant)});
    }
  }
  return found;
}

}  // namespace r2bench
