#include "harness/report/recheck.h"

#include <limits>
#include <optional>

#include "harness/judge/metric.h"
#include "harness/judge/verdict.h"
#include "harness/scenario/expectation.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

const char* in_words(const Json& ok) { return ok.is_null() ? "unknown" : ok.get<bool>() ? "met" : "not met"; }

/// What is wanted, as the scenario had it: slow motion notes behind it that its times are longer.
std::string without_note(const std::string& wanted, bool& slowed) {
  slowed = wanted.ends_with(": slow motion)");
  return slowed ? wanted.substr(0, wanted.rfind(" (")) : wanted;
}

/// Where a run holds what was got, as JSON pointers. Not where that is judged otherwise: of a count with
/// repeats each round counts for itself, and a bound that names `floor` is held against the fault that
/// decides.
std::vector<std::string> places_of(const Metric& metric, const Json& run) {
  if (metric.info.unit == Unit::kMilliseconds) return {};
  if (metric.by_round && run.value("rounds", Json::array()).size() > 1) return {};
  std::vector<std::string> places = {"/metrics/values/" + metric.info.name};  // not in older results
  if (!metric.place.empty()) places.push_back(metric.place);
  return places;
}

class Recheck {
 public:
  explicit Recheck(const Json& result) : result_(result) {}

  std::vector<std::string> mismatches() {
    bool failed = false, doubtful = !result_.at("doubts").empty() || result_.at("cancelled").get<bool>();
    for (const Json& expectation : result_.at("expectations")) {
      check(expectation);
      const Json& ok = expectation.at("ok");
      failed = failed || (ok.is_boolean() && !ok.get<bool>());
      doubtful = doubtful || ok.is_null();
    }
    for (const Json& run : result_.at("runs"))
      if (!expects_outcome(run.at("mode"))) say(run.at("mode"), "nothing is expected of its outcome");
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
    check_measured(name, metric, expectation, *run);
    const Json& ok = expectation.at("ok");
    if (ok.is_null()) return;
    const std::optional<bool> met = is_met(expectation, condition, slowed);
    if (met && *met != ok.get<bool>())
      say(name, std::string("is said to be ") + in_words(ok) + ", but wanted is '" +
                    expectation.at("wanted").get<std::string>() + "' and got '" +
                    expectation.at("got").get<std::string>() + "'");
  }

  /// nullopt: the file does not say.
  static std::optional<bool> is_met(const Json& expectation, const Condition& condition, bool slowed) {
    if (const Numeric* numeric = std::get_if<Numeric>(&condition)) {
      std::optional<double> constant;
      if (!slowed) constant = evaluate(numeric->bound, [](Quantity) { return std::optional<double>(); });
      const Json& wanted = expectation.at("wanted_value");
      if (!constant && !wanted.is_number()) return std::nullopt;
      const Json& got = expectation.at("got_value");
      // JSON has no infinity: what never came is null.
      const double value = got.is_number() ? got.get<double>() : std::numeric_limits<double>::infinity();
      return compare(value, numeric->comparison, constant ? *constant : wanted.get<double>());
    }
    if (!expectation.contains("got_word")) return std::nullopt;
    const Json& got = expectation.at("got_word");
    if (!got.is_string()) return false;
    if (const Word* word = std::get_if<Word>(&condition))
      return (got.get<std::string>() == word->word) != word->negated;
    return holds(got, std::get<Text>(condition));
  }

  void check_measured(const std::string& name, const std::string& metric, const Json& expectation,
                      const Json& run) {
    if (metric == "outcome" && expectation.value("got_word", Json()).is_string() &&
        expectation.at("got_word") != run.at("outcome"))
      say(name, "got '" + expectation.at("got_word").get<std::string>() + "', but the run's outcome is '" +
                    run.at("outcome").get<std::string>() + "'");
    const Json& got = expectation.at("got_value");
    if (!got.is_number()) return;
    for (const std::string& place : places_of(*metric_of(metric), run)) {
      const Json::json_pointer pointer(place);
      if (!run.contains(pointer) || !run.at(pointer).is_number()) continue;
      if (run.at(pointer).get<double>() != got.get<double>())
        return say(name, "got " + got.dump() + ", but the run's metrics say " + run.at(pointer).dump());
    }
  }

  const Json& result_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> conclusion_mismatches(const nlohmann::json& result) {
  return Recheck(result).mismatches();
}

}  // namespace r2bench
