// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/compare.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string_view>

#include "harness/measure/result.h"

namespace r2bench {
namespace {

constexpr const char* kMilliseconds = "ms";

std::vector<double> towards_worse(std::vector<double> values, Better better) {
  if (better == Better::kHigher)
    for (double& value : values) value = -value;
  return values;
}

std::string one_word(const std::vector<std::string>& outcomes) {
  std::string word;
  for (const std::string& outcome : outcomes)
    if (word.empty() || word == outcome)
      word = outcome;
    else
      return "various";
  return word;
}

std::string count_text(size_t n) { return std::to_string(n) + (n == 1 ? " sample" : " samples"); }

/// Fills all but `p`'s correction and `change`.
void test_shift(const MetricSamples& before, const MetricSamples& after, const MetricSamples& scatter,
                bool by_turns, const Thresholds& thresholds, ComparisonRow& row, double& p_better) {
  const std::vector<double> a = towards_worse(before.all(), row.better);
  const std::vector<double> b = towards_worse(after.all(), row.better);
  std::mt19937_64 random(thresholds.seed);
  row.worse_by = shift(a, b);
  row.interval = bootstrap_shift(a, b, thresholds.resamples, random);
  row.floor = noise_floor(scatter, thresholds, by_turns, row.floor_from);
  row.p = mann_whitney_larger(a, b).p;
  p_better = mann_whitney_larger(b, a).p;
}

ComparisonRow row_of(const ModeSamples& mode, const std::string& metric) {
  ComparisonRow row;
  row.scenario = mode.scenario;
  row.mode = mode.mode;
  row.metric = metric;
  return row;
}

ComparisonRow fact(const ModeSamples& mode, const std::string& metric, Shift change, std::string why) {
  ComparisonRow row = row_of(mode, metric);
  row.is_fact = true;
  row.change = change;
  row.why = std::move(why);
  return row;
}

/// What is no matter of statistics: one wrong element is one too many.
void add_facts(const ModeSamples& before, const ModeSamples& after, std::vector<ComparisonRow>& rows) {
  const std::string was = one_word(before.outcomes), is = one_word(after.outcomes);
  const std::string cancelled = name(Outcome::kCancelled);
  const bool cut_short =
      std::find(after.outcomes.begin(), after.outcomes.end(), cancelled) != after.outcomes.end();
  const bool worse = std::any_of(after.outcomes.begin(), after.outcomes.end(), [&](const auto& o) {
    return o != cancelled &&
           std::find(before.outcomes.begin(), before.outcomes.end(), o) == before.outcomes.end();
  });
  rows.push_back(fact(before, "outcome",
                      worse       ? Shift::kWorse
                      : cut_short ? Shift::kUnknown
                                  : Shift::kSame,
                      was + " before, " + is + " now" + (cut_short ? ": it was cut short" : "")));
  if (after.wrong.empty())
    rows.push_back(fact(before, "correctness", Shift::kSame, "exact"));
  else
    rows.push_back(fact(before, "correctness", Shift::kWorse, after.wrong.front()));
}

/// Whether it begins as NAME=VALUE does.
bool is_variable(std::string_view part) {
  const std::string_view name = part.substr(0, part.find('='));
  return name.size() < part.size() && !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

/// Of `env`, 'NAME=VALUE, NAME=VALUE', the variables that --may-differ does not name. A value may have
/// commas.
std::string env_to_compare(const std::string& env, const std::set<std::string>& settings) {
  constexpr std::string_view kBetween = ", ";
  std::string kept;
  bool keeps = true;
  for (size_t at = 0; at <= env.size();) {
    const size_t end = std::min(env.find(kBetween, at), env.size());
    const std::string part = env.substr(at, end - at);
    if (is_variable(part)) keeps = !settings.contains("env." + part.substr(0, part.find('=')));
    if (keeps) kept += (kept.empty() ? "" : std::string(kBetween)) + part;
    at = end + kBetween.size();
  }
  return kept.empty() ? "none" : kept;
}

/// A condition as far as the two sides have to agree on it; nullopt: not at all. Of the faults all may differ
/// if
/// --may-differ names one of their settings, and all of `env` if it names `env` or a setting of modes.
std::optional<std::string> to_compare(const std::string& condition, const std::string& value,
                                      const std::set<std::string>& settings) {
  const auto names = [&](const std::string& group) {
    return std::any_of(settings.begin(), settings.end(), [&](const std::string& setting) {
      return setting.substr(0, setting.find('.')) == group;
    });
  };
  if (condition == "env") {
    if (settings.contains("env") || names("modes")) return std::nullopt;
    return env_to_compare(value, settings);
  }
  if (((condition == "plan" || condition == "faults") && names("faults")) || settings.contains(condition))
    return std::nullopt;
  return value;
}

std::string differing_condition(const ModeSamples& before, const ModeSamples& after,
                                const Thresholds& thresholds) {
  for (const auto& [key, value] : before.conditions) {
    const std::optional<std::string> was = to_compare(key, value, thresholds.may_differ);
    if (!was) continue;
    const auto found = after.conditions.find(key);
    if (found == after.conditions.end() && is_newer_condition(key)) continue;
    const std::string now =
        found == after.conditions.end() ? "not said" : *to_compare(key, found->second, thresholds.may_differ);
    if (now != *was || *was == "various") return key + " is " + *was + " before and " + now + " now";
  }
  return "";
}

/// A percentile far in the tail says something from a hundred samples on, and only by its interval.
void add_tail(const MetricSamples& before, const MetricSamples& after, const MetricSamples& scatter,
              const Thresholds& thresholds, const ComparisonRow& of_median,
              std::vector<ComparisonRow>& rows) {
  const std::vector<double> a = towards_worse(before.all(), of_median.better);
  const std::vector<double> b = towards_worse(after.all(), of_median.better);
  if (std::min(a.size(), b.size()) < thresholds.tail_samples) return;
  ComparisonRow row = of_median;
  row.metric += ".p99";
  const double sign = row.better == Better::kLower ? 1 : -1;
  row.before = sign * quantile(a, 99);
  row.after = sign * quantile(b, 99);
  row.worse_by = quantile(b, 99) - quantile(a, 99);
  std::mt19937_64 random(thresholds.seed);
  std::vector<double> differences(thresholds.resamples);
  size_t not_worse = 0;
  for (double& difference : differences) {
    const auto draw = [&](const std::vector<double>& values) {
      std::vector<double> drawn(values.size());
      for (double& value : drawn) value = values[random() % values.size()];
      return quantile(std::move(drawn), 99);
    };
    const double first = draw(a), second = draw(b);
    difference = first == second ? 0 : second - first;
    not_worse += difference <= 0;
  }
  row.interval = {quantile(differences, 2.5), quantile(differences, 97.5)};
  row.p = double(not_worse + 1) / double(differences.size() + 1);
  double largest = 0;
  for (const auto& x : scatter.runs)
    for (const auto& y : scatter.runs)
      if (!x.empty() && !y.empty())
        largest = std::max(
            largest, quantile(towards_worse(x, row.better), 99) - quantile(towards_worse(y, row.better), 99));
  row.floor = std::max(of_median.floor, std::isfinite(largest) ? largest : 0);
  if (row.floor > of_median.floor) row.floor_from = "p99 of its runs";
  rows.push_back(row);
}

}  // namespace

const char* name(Shift change) {
  // clang-format off
  switch (change) {
    case Shift::kSame: return "same";
    case Shift::kBetter: return "better";
    case Shift::kWorse: return "worse";
    case Shift::kUnknown: return "unknown";
  }
  // clang-format on
  return "unknown";
}

Shift SampleComparison::change() const {
  const auto any = [&](Shift change) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const ComparisonRow& row) { return row.change == change; });
  };
  if (any(Shift::kWorse)) return Shift::kWorse;
  return rows.empty() || any(Shift::kUnknown) ? Shift::kUnknown : Shift::kSame;
}

double noise_floor(const MetricSamples& samples, const Thresholds& thresholds, bool by_turns,
                   std::string& from) {
  if (const auto given = thresholds.floors.find(samples.name); given != thresholds.floors.end()) {
    from = "given";
    return given->second;
  }
  const std::vector<double> all = samples.all();
  if (all.empty()) return 0;
  std::vector<double> shifts;
  if (by_turns) {
    for (size_t i = 0; i < samples.references.size(); ++i)
      if (!samples.runs[i].empty() && !samples.references[i].empty())
        shifts.push_back(shift(samples.runs[i], samples.references[i]));
  } else {
    for (size_t i = 0; i < samples.runs.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (!samples.runs[i].empty() && !samples.runs[j].empty())
          shifts.push_back(shift(samples.runs[i], samples.runs[j]));
  }
  const double median = std::abs(quantile(all, 50));
  const double relative = shifts.empty() ? thresholds.one_run_relative : thresholds.least_relative;
  double floor = std::isfinite(median) ? median * relative : 0;
  if (samples.unit == kMilliseconds)
    floor = std::max(floor, shifts.empty() ? thresholds.one_run_ms : thresholds.least_ms);
  from = shifts.empty() ? "assumed: one run" : "least";
  for (const double between : shifts)
    if (std::isfinite(between) && std::abs(between) > floor) {
      floor = std::abs(between);
      from = std::to_string(samples.runs.size()) + (by_turns ? " runs by turns" : " runs");
    }
  return floor;
}

namespace {

/// Compares two sets, mode by mode and metric by metric; what they come to is known once all have been
/// tested.
class Comparing {
 public:
  /// `baseline`: nullptr where the two did not run by turns.
  Comparing(const SampleSet& before, const SampleSet& after, const SampleSet* baseline,
            const Thresholds& thresholds)
      : before_(before), after_(after), baseline_(baseline), thresholds_(thresholds) {
    result_.before = before.name;
    result_.after = after.name;
  }

  SampleComparison compare() {
    for (const ModeSamples& was : before_.modes) compare_mode(was);
    decide();
    note_what_differs();
    return std::move(result_);
  }

 private:
  void compare_mode(const ModeSamples& was) {
    const ModeSamples* is = after_.find(was.scenario, was.mode);
    if (!is) {
      result_.rows.push_back(fact(was, "outcome", Shift::kUnknown, "this mode was not run"));
      return;
    }
    if (const std::string difference = differing_condition(was, *is, thresholds_); !difference.empty()) {
      result_.rows.push_back(fact(was, "conditions", Shift::kUnknown, "not comparable: " + difference));
      return;
    }
    add_facts(was, *is, result_.rows);
    for (const MetricSamples& metric : was.metrics) compare_metric(was, *is, metric);
  }

  void compare_metric(const ModeSamples& was, const ModeSamples& is, const MetricSamples& metric) {
    const std::vector<double> values_before = metric.all();
    ComparisonRow row = row_of(was, metric.name);
    row.unit = metric.unit;
    row.better = metric.better;
    const MetricSamples* now = is.find(metric.name);
    const std::vector<double> values_now = now ? now->all() : std::vector<double>();
    row.n_before = values_before.size();
    row.n_after = values_now.size();
    if (row.n_before == 0 && row.n_after == 0) return;
    if (!values_before.empty()) row.before = quantile(values_before, 50);
    if (!values_now.empty()) row.after = quantile(values_now, 50);
    if (std::min(row.n_before, row.n_after) < thresholds_.least_samples) return too_few(was, row);
    double better = 1;
    const ModeSamples* of_mode = baseline_ ? baseline_->find(was.scenario, was.mode) : nullptr;
    const MetricSamples* of_baseline = of_mode ? of_mode->find(metric.name) : nullptr;
    // Without a baseline the side with more runs knows better how much they differ.
    const MetricSamples& noise = of_baseline && !of_baseline->all().empty() ? *of_baseline
                                 : now->runs.size() > metric.runs.size()    ? *now
                                                                            : metric;
    test_shift(metric, *now, noise, baseline_ != nullptr, thresholds_, row, better);
    add_tested(row, better);
    if (row.unit != kMilliseconds) return;
    std::vector<ComparisonRow> tail;
    add_tail(metric, *now, noise, thresholds_, row, tail);
    for (const ComparisonRow& of_tail : tail) add_tested(of_tail, 1);
  }

  /// One sample in each run is not what a run was made for: it is noted, and leaves nothing unknown.
  void too_few(const ModeSamples& was, ComparisonRow row) {
    const std::string counts = count_text(row.n_before) + " before, " + std::to_string(row.n_after) + " now";
    const std::string least = std::to_string(thresholds_.least_samples);
    if (once_per_run(row.metric)) {
      result_.notes.push_back(was.scenario + ", " + was.mode + ", " + row.metric + ": " + counts +
                              ", one in each run; compared from " + least + " on each side");
      return;
    }
    row.why = counts + ", and " + least + " are needed on each side; --repeats makes more";
    result_.rows.push_back(row);
  }

  void add_tested(const ComparisonRow& row, double p_better) {
    tested_.push_back(result_.rows.size());
    p_worse_.push_back(row.p);
    p_better_.push_back(p_better);
    result_.rows.push_back(row);
  }

  /// By the p-values of all metrics together.
  void decide() {
    p_worse_ = holm(p_worse_);
    p_better_ = holm(p_better_);
    for (size_t i = 0; i < tested_.size(); ++i) {
      ComparisonRow& row = result_.rows[tested_[i]];
      row.p = p_worse_[i];
      row.change = Shift::kSame;
      if (row.p < thresholds_.alpha && row.worse_by > row.floor && row.interval.low > 0)
        row.change = Shift::kWorse;
      if (p_better_[i] < thresholds_.alpha && -row.worse_by > row.floor && row.interval.high < 0)
        row.change = Shift::kBetter;
    }
  }

  void note_what_differs() {
    for (const ModeSamples& mode : after_.modes)
      if (!before_.find(mode.scenario, mode.mode))
        result_.notes.push_back(mode.scenario + ", " + mode.mode + ": not in " + before_.name +
                                ", so not compared");
    for (const char* key : {"cpu", "cores", "kernel", "build", "sanitizer"}) {
      const auto was = before_.facts.find(key), is = after_.facts.find(key);
      const std::string a = was == before_.facts.end() ? "none" : was->second;
      const std::string b = is == after_.facts.end() ? "none" : is->second;
      if (a != b) result_.notes.push_back(std::string(key) + ": " + a + " before, " + b + " now");
    }
  }

  const SampleSet& before_;
  const SampleSet& after_;
  const SampleSet* baseline_;
  const Thresholds& thresholds_;
  SampleComparison result_;
  std::vector<size_t> tested_;  ///< rows whose change follows from these
  std::vector<double> p_worse_, p_better_;
};

}  // namespace

SampleComparison compare(const SampleSet& before, const SampleSet& after, const Thresholds& thresholds) {
  return Comparing(before, after, nullptr, thresholds).compare();
}

SampleComparison compare_by_turns(const SampleSet& before, const SampleSet& after, const SampleSet& baseline,
                                  const Thresholds& thresholds) {
  return Comparing(before, after, &baseline, thresholds).compare();
}

}  // namespace r2bench
