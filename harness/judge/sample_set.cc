// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/sample_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/judge/metric.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

constexpr double kNever = std::numeric_limits<double>::infinity();
// Operations that follow each other are not independent: their medians in so many blocks are.
constexpr size_t kOperationBlocks = 20;

/// Samples of what no expectation names.
constexpr struct {
  const char* name;
  const char* unit;
  Better better;
} kOwnSamples[] = {{"before_gbps", "Gbit/s", Better::kHigher},
                   {"retained", "", Better::kHigher},
                   {"switch_ms", "ms", Better::kLower},
                   {"busbw", "GB/s", Better::kHigher},
                   {"operation_ms", "ms", Better::kLower}};

/// The metrics of which each run, fault or pair is a sample; of a time's percentiles the median stands for
/// all.
std::vector<const MetricInfo*> sampled(Compared::Each each) {
  std::vector<const MetricInfo*> found;
  for (const Metric& metric : all_metrics()) {
    const size_t dot = metric.info.name.find('.');
    if (metric.info.compared && metric.info.compared->each == each &&
        (dot == std::string::npos || metric.info.name.substr(dot) == ".p50"))
      found.push_back(&metric.info);
  }
  return found;
}

/// "recover_ms" of "recover_ms.p50".
std::string without_statistic(const std::string& name) { return name.substr(0, name.find('.')); }

MetricSamples metric(const MetricInfo& info, std::vector<double> values) {
  return {without_statistic(info.name), unit_of(info), info.compared->better, {std::move(values)}, {}};
}

MetricSamples metric(const std::string& name, std::vector<double> values) {
  for (const auto& own : kOwnSamples)
    if (name == own.name) return {name, own.unit, own.better, {std::move(values)}, {}};
  return metric(metric_of(name)->info, std::move(values));
}

/// JSON has no infinity: a time that never came is null.
double time_or_never(const Json& value) { return value.is_number() ? value.get<double>() : kNever; }

std::vector<double> block_medians(const std::vector<double>& values) {
  std::vector<double> medians;
  const size_t blocks = std::min(kOperationBlocks, values.size());
  for (size_t b = 0; b < blocks; ++b) {
    std::vector<double> block(values.begin() + std::ptrdiff_t(b * values.size() / blocks),
                              values.begin() + std::ptrdiff_t((b + 1) * values.size() / blocks));
    std::nth_element(block.begin(), block.begin() + std::ptrdiff_t(block.size() / 2), block.end());
    medians.push_back(block[block.size() / 2]);
  }
  return medians;
}

void add_fault_metrics(const Json& run, ModeSamples& mode) {
  std::vector<double> switched, before, retained;
  const std::vector<const MetricInfo*> declared = sampled(Compared::Each::kFault);
  std::vector<std::vector<double>> times(declared.size());
  const bool recovers = run.at("r2cc_mode").get<int>() != 0;
  for (const Json& fault : run.at("faults")) {
    if (!fault.at("witnessed").get<bool>()) continue;
    const Json &before_rate = fault.at("before_gbps"), &after_rate = fault.at("after_gbps");
    if (before_rate.is_number() && before_rate.get<double>() > 0) {
      before.push_back(before_rate);
      if (recovers && after_rate.is_number())
        retained.push_back(after_rate.get<double>() / before_rate.get<double>());
    }
    if (!recovers || !fault.at("sampled").get<bool>()) continue;
    const bool rate_known = fault.value("why_no_rate_before", Json()).is_null();
    for (size_t i = 0; i < declared.size(); ++i)
      if (const std::string time = without_statistic(declared[i]->name); rate_known || time != "recover_ms")
        times[i].push_back(time_or_never(fault.at(time)));
    if (fault.contains("switch_ms")) switched.push_back(time_or_never(fault.at("switch_ms")));
  }
  mode.metrics.push_back(metric("before_gbps", before));
  if (!recovers) return;
  for (size_t i = 0; i < declared.size(); ++i) mode.metrics.push_back(metric(*declared[i], times[i]));
  if (!switched.empty()) mode.metrics.push_back(metric("switch_ms", switched));
  mode.metrics.push_back(metric("retained", retained));
}

void add_pair_metrics(const Json& result, const Json& run, ModeSamples& mode) {
  std::vector<double> busbw, cpu;
  for (const Json& job : result.at("jobs")) {
    if (job.at("mode") != run.at("mode")) continue;
    if (job.at("busbw_gbytes").is_number()) busbw.push_back(job.at("busbw_gbytes"));
    const Json per_gb = job.value("cpu_s_per_gb", Json());
    if (per_gb.is_number()) cpu.push_back(per_gb);
  }
  mode.metrics.push_back(metric("busbw", busbw));
  if (!cpu.empty()) mode.metrics.push_back(metric("cpu_per_gb", cpu));
  const Json& overhead = run.at("metrics").at("overhead_pct");
  if (overhead.is_object()) mode.metrics.push_back(metric("overhead_pct", overhead.at("each")));
}

/// A result from before the metric was declared has no value of it.
void add_run_metrics(const Json& run, ModeSamples& mode) {
  const Json values = run.at("metrics").value("values", Json::object());
  for (const MetricInfo* info : sampled(Compared::Each::kRun))
    if (const Json value = values.value(info->name, Json()); value.is_number())
      mode.metrics.push_back(metric(*info, {value.get<double>()}));
}

std::string wrong_of(const Json& run) {
  const Json& correctness = run.at("metrics").at("correctness");
  std::string text;
  for (const char* what : {"wrong_elements", "duplicated", "lost", "size_errors"})
    if (const uint64_t count = correctness.at(what); count > 0)
      text += (text.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(count);
  return text;
}

std::string listed(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all.empty() ? "none" : all;
}

/// What a command decides by itself; older results had defaults there.
bool of_an_operation(const std::string& condition) {
  return condition == "workload.op" || condition == "workload.dtype" || condition == "workload.bytes";
}

constexpr const char* kNoOtherSide = "none";

/// What the operations of a job took turns with.
std::string other_side(const Json& run) {
  const Json& metrics = run.at("metrics");
  if (!metrics.contains("beside")) return kNoOtherSide;
  const Json& beside = metrics.at("beside");
  // With its environment, where it has one.
  return run.value("settings", Json::object()).value("beside", beside.at("against").get<std::string>()) +
         " × " + beside.at("copies").dump();
}

std::map<std::string, std::string> conditions_of(const Json& result, const Json& run) {
  std::map<std::string, std::string> conditions = {{"evidence", result.at("evidence")},
                                                   {"r2cc_mode", run.at("r2cc_mode").dump()}};
  for (const char* part : {"fabric", "workload"})
    for (const auto& [key, value] : result.at(part).items()) {
      const std::string name = std::string(part) + "." + key;
      // How long a job was changes how many samples there are, and the plugin is what is compared.
      if (name == "workload.iters" || name == "workload.warmup" || name == "workload.plugin") continue;
      if (result.at("workload").at("engine") == "exec" && of_an_operation(name)) continue;
      conditions[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  for (const auto& [key, value] : result.at("matrix").items()) conditions["matrix." + key] = value;
  std::vector<std::string> faults;
  for (const Json& fault : run.at("faults"))
    if (fault.at("repetition") == 0 && fault.at("strike") == 0)
      faults.push_back(fault.at("kind").get<std::string>() + " " + fault.at("target").get<std::string>());
  conditions["faults"] = listed(faults);
  if (result.contains("plan")) conditions["plan"] = listed(result.at("plan").get<std::vector<std::string>>());
  if (run.contains("env")) {
    std::vector<std::string> env;
    for (const auto& [variable, value] : run.at("env").items())
      env.push_back(variable + "=" + value.get<std::string>());
    conditions["env"] = listed(env);
  }
  conditions["beside"] = other_side(run);
  return conditions;
}

/// References only where all runs have one: else they would be of other runs than they stand beside.
void append(MetricSamples& to, const MetricSamples& from) {
  if (to.references.size() == to.runs.size() && from.references.size() == from.runs.size())
    to.references.insert(to.references.end(), from.references.begin(), from.references.end());
  else
    to.references.clear();
  to.runs.insert(to.runs.end(), from.runs.begin(), from.runs.end());
}

nlohmann::ordered_json number_or_never(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

nlohmann::ordered_json runs_to_json(const std::vector<std::vector<double>>& runs) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& run : runs) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (const double value : run) values.push_back(number_or_never(value));
    all.push_back(std::move(values));
  }
  return all;
}

std::vector<std::vector<double>> runs_from_json(const Json& json) {
  std::vector<std::vector<double>> runs;
  for (const Json& run : json) {
    runs.emplace_back();
    for (const Json& value : run) runs.back().push_back(value.is_null() ? kNever : value.get<double>());
  }
  return runs;
}

}  // namespace

std::vector<double> MetricSamples::all() const {
  std::vector<double> values;
  for (const auto& run : runs) values.insert(values.end(), run.begin(), run.end());
  return values;
}

const MetricSamples* ModeSamples::find(const std::string& metric) const {
  for (const MetricSamples& samples : metrics)
    if (samples.name == metric) return &samples;
  return nullptr;
}

const ModeSamples* SampleSet::find(const std::string& scenario, const std::string& mode) const {
  for (const ModeSamples& samples : modes)
    if (samples.scenario == scenario && samples.mode == mode) return &samples;
  return nullptr;
}

void SampleSet::add(const SampleSet& other) {
  if (modes.empty()) facts = other.facts;
  for (auto& [key, value] : facts) {
    const auto found = other.facts.find(key);
    if (found == other.facts.end() || found->second != value) value = "various";
  }
  for (const ModeSamples& theirs : other.modes) {
    const auto ours = std::find_if(modes.begin(), modes.end(), [&](const ModeSamples& mode) {
      return mode.scenario == theirs.scenario && mode.mode == theirs.mode;
    });
    if (ours == modes.end()) {
      modes.push_back(theirs);
      continue;
    }
    for (const auto& [key, value] : theirs.conditions) {
      const auto mine = ours->conditions.find(key);
      if (mine != ours->conditions.end() && mine->second != value) mine->second = "various";
      if (mine == ours->conditions.end() && !is_newer_condition(key)) ours->conditions[key] = "various";
    }
    ours->outcomes.insert(ours->outcomes.end(), theirs.outcomes.begin(), theirs.outcomes.end());
    ours->wrong.insert(ours->wrong.end(), theirs.wrong.begin(), theirs.wrong.end());
    for (const MetricSamples& metric : theirs.metrics) {
      const auto same = std::find_if(ours->metrics.begin(), ours->metrics.end(),
                                     [&](const MetricSamples& mine) { return mine.name == metric.name; });
      if (same == ours->metrics.end())
        ours->metrics.push_back(metric);
      else
        append(*same, metric);
    }
  }
}

SampleSet SampleSet::pooled() const {
  SampleSet one = *this;
  for (ModeSamples& mode : one.modes)
    for (MetricSamples& metric : mode.metrics) metric.runs = {metric.all()};
  return one;
}

SampleSet SampleSet::beside(const SampleSet& reference) const {
  SampleSet both = *this;
  for (ModeSamples& mode : both.modes) {
    const ModeSamples* other = reference.find(mode.scenario, mode.mode);
    for (MetricSamples& metric : mode.metrics) {
      const MetricSamples* its = other ? other->find(metric.name) : nullptr;
      metric.references.clear();
      if (its) metric.references = {its->all()};
    }
  }
  return both;
}

bool is_newer_condition(const std::string& key) { return key == "plan" || key == "env" || key == "beside"; }

bool once_per_run(const std::string& metric) {
  const Metric* declared = metric_of(metric);
  return declared != nullptr && declared->info.compared &&
         declared->info.compared->each == Compared::Each::kRun;
}

SampleSet samples_of_result(const Json& result, const std::string& name) {
  SampleSet set;
  set.name = name;
  for (const auto& [key, value] : result.at("environment").items()) set.facts[key] = value;
  for (const Json& run : result.at("runs")) {
    ModeSamples mode;
    mode.scenario = result.at("scenario");
    mode.mode = run.at("mode");
    mode.conditions = conditions_of(result, run);
    mode.outcomes = {run.at("outcome")};
    if (const std::string wrong = wrong_of(run); !wrong.empty()) mode.wrong.push_back(wrong);
    // Of two sides, one's deliveries are seen: no times and no rates.
    if (!run.at("faults").empty() && mode.conditions.at("beside") == kNoOtherSide)
      add_fault_metrics(run, mode);
    if (result.at("pairs").get<int>() > 0) add_pair_metrics(result, run, mode);
    // Nor times of operations: half of them are the other side's.
    if (run.at("faults").empty() && result.at("pairs").get<int>() == 0 &&
        mode.conditions.at("beside") == kNoOtherSide)
      mode.metrics.push_back(metric("operation_ms", block_medians(run.at("iteration_ms"))));
    add_run_metrics(run, mode);
    set.modes.push_back(std::move(mode));
  }
  return set;
}

std::vector<std::string> without_samples(const SampleSet& set) {
  std::vector<std::string> found;
  for (const ModeSamples& mode : set.modes)
    for (const MetricSamples& metric : mode.metrics)
      if (metric.all().empty()) found.push_back(mode.scenario + ", " + mode.mode + ", " + metric.name);
  return found;
}

nlohmann::ordered_json to_baseline(const SampleSet& set) {
  nlohmann::ordered_json json;
  json["baseline_version"] = kBaselineVersion;
  json["facts"] = set.facts;
  json["modes"] = nlohmann::ordered_json::array();
  for (const ModeSamples& mode : set.modes) {
    nlohmann::ordered_json entry;
    entry["scenario"] = mode.scenario;
    entry["mode"] = mode.mode;
    entry["conditions"] = mode.conditions;
    entry["outcomes"] = mode.outcomes;
    entry["metrics"] = nlohmann::ordered_json::array();
    for (const MetricSamples& metric : mode.metrics) {
      entry["metrics"].push_back({{"name", metric.name},
                                  {"unit", metric.unit},
                                  {"better", metric.better == Better::kLower ? "lower" : "higher"},
                                  {"runs", runs_to_json(metric.runs)}});
      if (!metric.references.empty()) entry["metrics"].back()["references"] = runs_to_json(metric.references);
    }
    json["modes"].push_back(std::move(entry));
  }
  return json;
}

SampleSet samples_of_baseline(const Json& baseline, const std::string& name) {
  if (!baseline.is_object() || !baseline.contains("baseline_version"))
    throw BaselineError("no baseline: it has no 'baseline_version'; write one with --save-baseline");
  if (baseline.at("baseline_version") != kBaselineVersion)
    throw BaselineError("baseline_version " + baseline.at("baseline_version").dump() +
                        ", and this r2bench knows " + std::to_string(kBaselineVersion) +
                        " only; write it again with --save-baseline");
  SampleSet set;
  set.name = name;
  try {
    baseline.at("facts").get_to(set.facts);
    for (const Json& entry : baseline.at("modes")) {
      ModeSamples mode;
      entry.at("scenario").get_to(mode.scenario);
      entry.at("mode").get_to(mode.mode);
      entry.at("conditions").get_to(mode.conditions);
      if (const auto engine = mode.conditions.find("workload.engine");
          engine != mode.conditions.end() && engine->second == "exec")
        std::erase_if(mode.conditions,
                      [](const auto& condition) { return of_an_operation(condition.first); });
      entry.at("outcomes").get_to(mode.outcomes);
      for (const Json& m : entry.at("metrics")) {
        MetricSamples metric;
        m.at("name").get_to(metric.name);
        m.at("unit").get_to(metric.unit);
        const std::string better = m.at("better");
        if (better != "lower" && better != "higher")
          throw BaselineError("metric '" + metric.name + "': 'better' is '" + better +
                              "', but must be lower or higher");
        metric.better = better == "lower" ? Better::kLower : Better::kHigher;
        metric.runs = runs_from_json(m.at("runs"));
        if (m.contains("references")) metric.references = runs_from_json(m.at("references"));
        if (!metric.references.empty() && metric.references.size() != metric.runs.size())
          throw BaselineError("metric '" + metric.name + "': " + std::to_string(metric.runs.size()) +
                              " runs, but " + std::to_string(metric.references.size()) + " references");
        mode.metrics.push_back(std::move(metric));
      }
      set.modes.push_back(std::move(mode));
    }
  } catch (const Json::exception& error) {
    throw BaselineError(std::string("damaged baseline: ") + error.what() +
                        "; write it again with --save-baseline");
  }
  return set;
}

}  // namespace r2bench
