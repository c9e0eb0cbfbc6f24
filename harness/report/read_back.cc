// SPDX-License-Identifier: Apache-2.0
#include "harness/report/read_back.h"

#include <cmath>
#include <string>

#include "harness/judge/fault_times.h"
#include "harness/judge/metric.h"
#include "harness/report/findings.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

constexpr double kStartMs = 1e6;  // of the timeline: no time of a fault is 0, which means that there is none

/// The value of an enumeration whose last one is `last`, by its name in results.
template <typename Enum>
std::optional<Enum> named(const std::string& wanted, Enum last) {
  for (int i = 0; i <= int(last); ++i)
    if (wanted == name(Enum(i))) return Enum(i);
  return std::nullopt;
}

double number_or(const Json& json, const char* key, double otherwise = 0) {
  return json.contains(key) ? number(json.at(key)).value_or(otherwise) : otherwise;
}

std::string text_or_empty(const Json& json, const char* key) {
  return json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
}

std::optional<uint64_t> time_ns(const Json& fault, const char* key) {
  const std::optional<double> ms = number(fault.at(key));
  return ms ? std::optional(uint64_t(std::llround((*ms + kStartMs) * 1e6))) : std::nullopt;
}

Distribution read_distribution(const Json& json) {
  return {json.at("n").get<size_t>(), number_or(json, "p50"), number_or(json, "p95"), number_or(json, "p99"),
          number_or(json, "max")};
}

Correctness read_correctness(const Json& json) {
  Correctness c;
  c.wrong_elements = json.at("wrong_elements");
  c.duplicated = json.at("duplicated");
  c.lost = json.at("lost");
  c.size_errors = json.at("size_errors");
  c.checked_elements = json.at("checked_elements");
  c.checked_iterations = json.at("checked_iterations");
  c.messages = json.value("messages", uint64_t{0});
  c.collnet_operations = json.value("collnet_operations", uint64_t{0});
  return c;
}

Throughput read_throughput(const Json& json) {
  const Json rounds = json.value("rounds", Json::object());
  Throughput t;
  t.before_gbps = number_or(json, "before_gbps");
  t.after_gbps = number_or(json, "after_gbps");
  t.retained = number_or(json, "retained");
  t.limit = number_or(json, "limit");
  t.rounds = rounds.value("of", size_t{0});
  t.rounds_measured = rounds.value("measured", size_t{0});
  t.rounds_settled = rounds.value("settled", size_t{0});
  t.worst_unsettled = number_or(rounds, "worst_unsettled");
  t.why_not = text_or_empty(rounds, "why_not");
  t.bound_ms = number_or(json, "bound_ms");
  t.ports_gbps = number_or(json, "ports_gbps");
  t.least_before_gbps = number_or(json, "least_before_gbps");
  t.most_of_limit = number_or(json, "most_of_limit");
  return t;
}

Restored read_restored(const Json& json) {
  Restored r;
  r.ratio = number(json.at("ratio"));
  r.why_not = text_or_empty(json, "why_not");
  r.before_ms = number_or(json, "before_ms");
  r.after_ms = number_or(json, "after_ms");
  r.operations_before = json.at("operations_before");
  r.operations_after = json.at("operations_after");
  r.rounds = json.at("rounds").at("of");
  r.rounds_home = json.at("rounds").at("home");
  r.rounds_late = json.at("rounds").at("late");
  r.rounds_not_healed = json.at("rounds").value("not_healed", size_t{0});
  r.why_not_healed = text_or_empty(json.at("rounds"), "why_not_healed");
  return r;
}

FaultSample read_fault(const Json& json) {
  FaultSample sample;
  sample.name = json.at("name");
  sample.kind = json.at("kind");
  sample.target = json.at("target");
  sample.repetition = json.at("repetition");
  sample.strike = json.at("strike");
  sample.witnessed = json.at("witnessed");
  sample.sampled = json.at("sampled");
  sample.why_not_sampled = text_or_empty(json, "why_not_sampled");
  sample.why_no_rate_before = text_or_empty(json, "why_no_rate_before");
  sample.t0_ns = time_ns(json, "t0_at_ms").value_or(0);
  sample.detected_ns = time_ns(json, "detected_at_ms");
  sample.migrated_ns = time_ns(json, "migrated_at_ms");
  sample.recovered_ns = time_ns(json, "recovered_at_ms");
  sample.healed_ns = time_ns(json, "healed_at_ms");
  for (const FaultTime& time : kFaultTimes) sample.*time.of_fault = number(json.at(time.name));
  sample.switch_ms = number_at(json, "/switch_ms");
  sample.recovered_after_heal = json.value("recovered_after_heal", false);
  sample.waited_ms = number_at(json, "/waited_ms");
  sample.detected_by = text_or_empty(json, "detected_by");
  sample.floor_ms = json.at("floor_ms");
  sample.window_ms = json.at("window_ms");
  sample.limit = json.at("limit");
  sample.before_gbps = number_or(json, "before_gbps");
  sample.after_gbps = number_or(json, "after_gbps");
  return sample;
}

NcclTestsRow read_row(const Json& json) {
  NcclTestsRow row;
  row.size_bytes = json.at("size_bytes");
  row.count = json.at("count");
  row.type = json.at("type");
  row.redop = json.at("redop");
  row.root = json.value("root", -1);
  row.time_us = number_or(json, "time_us");
  row.algbw = number_or(json, "algbw_gbytes");
  row.busbw = number_or(json, "busbw_gbytes");
  row.wrong = json.at("wrong");
  row.iterations = json.at("iterations");
  return row;
}

RankResult read_rank(const Json& json) {
  RankResult rank;
  rank.rank = json.at("rank");
  rank.label = json.at("label");
  rank.outcome = named(json.at("outcome"), Outcome::kCancelled).value_or(Outcome::kOk);
  rank.exit_code = json.at("exit_code");
  rank.signal = json.at("signal");
  rank.error = text_or_empty(json, "error");
  rank.iterations = json.at("iterations");
  rank.cpu_s = number_or(json, "cpu_s");
  rank.cpu_by_side_s = json.value("cpu_by_side_s", std::vector<double>{});
  if (json.contains("renewal")) {
    const Json& renewal = json.at("renewal");
    rank.renewal = RenewalResult{.iteration = renewal.at("iteration"),
                                 .operation_open = renewal.at("operation_open"),
                                 .ranks = renewal.at("ranks"),
                                 .renew_ms = renewal.at("renew_ms")};
  }
  return rank;
}

/// What is counted and measured stands at the metric's place, or, of a group that the mode does not have, in
/// the rounds.
void read_counts(const Json& run, ModeResult& mode) {
  for (const Json& round : run.value("rounds", Json::array())) {
    mode.rounds.emplace_back();
    for (const auto& [metric, count] : round.items()) mode.rounds.back()[metric] = count.get<size_t>();
  }
  for (const Metric& metric : all_metrics()) {
    const double there = metric.place.empty() ? NAN : number_at(run, metric.place).value_or(NAN);
    if (metric.measure && !std::isnan(there)) mode.measured[metric.info.name] = there;
    if (!metric.is_counted()) continue;
    size_t& count = mode.counts[metric.info.name];
    if (!std::isnan(there))
      count = size_t(there);
    else
      for (const Counts& round : mode.rounds)
        if (const auto found = round.find(metric.info.name); found != round.end()) count += found->second;
  }
}

Overhead read_overhead(const std::string& mode, const Json& json) {
  Overhead overhead;
  overhead.mode = mode;
  overhead.against = json.at("against");
  overhead.pairs = json.at("pairs");
  overhead.mean_of =
      json.value("mean_of", "ratios") == "log_ratios" ? PairMean::kLogRatios : PairMean::kRatios;
  overhead.mean_pct = json.at("mean");
  overhead.upper95_pct = number_or(json, "upper95");
  overhead.loss_mean_pct = number_or(json, "busbw_loss_mean");
  overhead.loss_upper95_pct = number_or(json, "busbw_loss_upper95");
  overhead.cpu_pairs = json.value("cpu_pairs", size_t{0});
  overhead.cpu_mean_pct = number_or(json, "cpu_loss_mean");
  overhead.cpu_upper95_pct = number_or(json, "cpu_loss_upper95");
  for (const Json& each : json.at("each")) overhead.each_pct.push_back(number(each).value_or(0));
  return overhead;
}

ModeResult read_job(const Json& json) {
  ModeResult job;
  job.mode = json.at("mode");
  job.outcome = named(json.at("outcome"), Outcome::kCancelled).value_or(Outcome::kOk);
  job.row.time_us = number_or(json, "time_us");
  job.row.busbw = number_or(json, "busbw_gbytes");
  job.row.wrong = json.at("wrong");
  if (const double s_per_gb = number_or(json, "cpu_s_per_gb"); s_per_gb > 0)
    job.cpu = {.seconds = s_per_gb, .gbytes = 1};
  return job;
}

}  // namespace

std::optional<Scenario> scenario_of(const Json& result) {
  const Json &fabric = result.at("fabric"), &work = result.at("workload");
  const auto kind = named(fabric.at("kind"), FabricKind::kNone);
  const auto engine = named(work.at("engine"), Engine::kExec);
  if (!kind || !engine) return std::nullopt;
  Scenario scenario;
  scenario.fabric.kind = *kind;
  scenario.fabric.nodes = fabric.at("nodes");
  scenario.fabric.ranks_per_node = fabric.at("ranks_per_node");
  scenario.fabric.nics_per_node = fabric.at("nics_per_node");
  scenario.fabric.nic_rate_bits_per_s = fabric.at("nic_rate_bits_per_s");
  Workload& workload = scenario.workload;
  workload.engine = *engine;
  if (*engine != Engine::kExec) {  // a command decides by itself what it does
    const auto op = named(work.at("op"), Operation::kAllToAll);
    const auto dtype = named(work.at("dtype"), DataType::kFloat8e5m2);
    if (!op || !dtype) return std::nullopt;
    workload.op = *op;
    workload.dtype = *dtype;
    workload.bytes = work.at("bytes");
  }
  workload.iters = work.at("iters");
  workload.warmup = work.at("warmup");
  workload.channels = work.at("channels");
  workload.verify = work.at("verify");
  workload.plugin = work.at("plugin");
  const Json facts = result.at("environment");
  if (facts.value("groups", "") == name(Groups::kLocalRank)) workload.groups = Groups::kLocalRank;
  // The reduction is said by the rows only.
  for (const Json& run : result.at("runs"))
    if (const auto reduction = named(run.at("row").at("redop"), Reduction::kPremulSum))
      workload.reduction = *reduction;
  return scenario;
}

ModeResult mode_of(const Json& run) {
  const Json& metrics = run.at("metrics");
  ModeResult mode;
  mode.mode = run.at("mode");
  mode.r2cc_mode = run.at("r2cc_mode");
  mode.outcome = named(run.at("outcome"), Outcome::kCancelled).value_or(Outcome::kOk);
  mode.error = text_or_empty(run, "error");
  const Json outcomes = run.value("outcomes", Json::object());
  for (const auto& [outcome, count] : outcomes.items()) mode.outcomes[outcome] = count.get<size_t>();
  mode.duration_s = run.at("duration_s");
  for (const Json& rank : run.at("ranks")) mode.ranks.push_back(read_rank(rank));
  mode.correctness = read_correctness(metrics.at("correctness"));
  mode.throughput = read_throughput(metrics.at("throughput"));
  if (metrics.contains("restored")) mode.restored = read_restored(metrics.at("restored"));
  for (const Json& fault : run.at("faults")) mode.faults.push_back(read_fault(fault));
  const Json& faults = metrics.at("faults");
  mode.faults_planned = faults.at("planned");
  mode.faults_witnessed = faults.at("witnessed");
  if (faults.contains("jobs_without_fault")) mode.jobs_without_fault = faults.at("jobs_without_fault");
  mode.faults_sampled = faults.at("sampled");
  const Json dropped = faults.value("dropped", Json::object());
  for (const auto& [why, count] : dropped.items()) mode.faults_dropped[why] = count.get<size_t>();
  mode.faults_unrecovered = faults.at("unrecovered");
  mode.faults_recovered_after_heal = faults.value("recovered_after_heal", size_t{0});
  mode.rounds_at_end = faults.value("rounds_at_end", size_t{0});
  mode.rounds_not_fired = faults.value("rounds_not_fired", size_t{0});  // not in older results
  const Json& recovery = metrics.at("recovery");
  for (const FaultTime& time : kFaultTimes) mode.*time.of_all = read_distribution(recovery.at(time.name));
  for (const auto& [by, count] : recovery.at("detected_by").items())
    mode.detected_by[by] = count.get<size_t>();
  mode.floor_ms = number_or(recovery, "floor_ms");
  mode.wakeup_ms = read_distribution(run.at("wakeup_ms"));
  mode.wakeup_p99_ms = number_or(recovery, "wakeup_p99_ms");
  if (metrics.contains("beside"))
    mode.beside = {metrics.at("beside").at("against").get<std::string>(),
                   metrics.at("beside").at("copies").get<size_t>()};
  if (metrics.contains("cpu"))
    mode.cpu = {number_or(metrics.at("cpu"), "seconds"), number_or(metrics.at("cpu"), "gbytes")};
  mode.row = read_row(run.at("row"));
  mode.timeline.start_ns = uint64_t(kStartMs * 1e6);
  for (const Json& ms : run.at("iteration_ms")) mode.iteration_ms.push_back(number(ms).value_or(0));
  for (const Json& ms : run.value("iteration_begin_ms", Json::array()))
    mode.iteration_begin_ms.push_back(number(ms).value_or(0));
  mode.trace_lost = run.at("trace_lost");
  read_counts(run, mode);
  return mode;
}

RunResult result_of(const Json& result) {
  RunResult whole;
  whole.scenario = result.at("scenario");
  whole.evidence = result.at("evidence");
  whole.cancelled = result.at("cancelled");
  for (const Json& run : result.at("runs")) {
    whole.modes.push_back(mode_of(run));
    const Json& overhead = run.at("metrics").at("overhead_pct");
    if (overhead.is_object()) whole.overheads.push_back(read_overhead(run.at("mode"), overhead));
  }
  for (const Json& job : result.at("jobs")) whole.jobs.push_back(read_job(job));
  return whole;
}

}  // namespace r2bench
