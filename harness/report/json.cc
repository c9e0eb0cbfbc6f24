// SPDX-License-Identifier: Apache-2.0
#include "harness/report/json.h"

#include <cmath>
#include <optional>
#include <ostream>

#include "harness/base/json_text.h"
#include "harness/judge/beside.h"
#include "harness/judge/fault_times.h"
#include "harness/judge/held_up.h"
#include "harness/judge/metric.h"
#include "harness/scenario/plan_text.h"

namespace r2bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// JSON has no infinity: a time that never came is null.
OrderedJson number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson when(bool known, double value) {
  return number_or_null(known ? std::optional(value) : std::nullopt);
}

OrderedJson distribution(const Distribution& d) {
  OrderedJson json;
  json["n"] = d.n;
  json["p50"] = when(d.n > 0, d.p50);
  json["p95"] = when(d.n > 0, d.p95);
  json["p99"] = when(d.n > 0, d.p99);
  json["max"] = when(d.n > 0, d.max);
  return json;
}

/// Milliseconds from the first iteration of the job; null when it did not happen.
OrderedJson since_start(const ModeResult& mode, std::optional<uint64_t> time_ns) {
  if (!time_ns || *time_ns == 0) return nullptr;
  return (static_cast<double>(*time_ns) - static_cast<double>(mode.timeline.start_ns)) * 1e-6;
}

OrderedJson fault(const ModeResult& mode, const FaultSample& sample) {
  OrderedJson json;
  json["name"] = sample.name;
  json["kind"] = sample.kind;
  json["target"] = sample.target;
  json["repetition"] = sample.repetition;
  json["strike"] = sample.strike;
  json["witnessed"] = sample.witnessed;
  json["sampled"] = sample.sampled;
  json["why_not_sampled"] =
      sample.why_not_sampled.empty() ? OrderedJson(nullptr) : OrderedJson(sample.why_not_sampled);
  json["why_no_rate_before"] =
      sample.why_no_rate_before.empty() ? OrderedJson(nullptr) : OrderedJson(sample.why_no_rate_before);
  json["t0_at_ms"] = since_start(mode, sample.t0_ns);
  json["detected_at_ms"] = since_start(mode, sample.detected_ns);
  json["migrated_at_ms"] = since_start(mode, sample.migrated_ns);
  json["recovered_at_ms"] = since_start(mode, sample.recovered_ns);
  json["healed_at_ms"] = since_start(mode, sample.healed_ns);
  for (const FaultTime& time : kFaultTimes) json[time.name] = number_or_null(sample.*time.of_fault);
  json["switch_ms"] = number_or_null(sample.switch_ms);
  json["recovered_after_heal"] = sample.recovered_after_heal;
  json["waited_ms"] = number_or_null(sample.waited_ms);
  json["detected_by"] = sample.detected_by.empty() ? OrderedJson(nullptr) : OrderedJson(sample.detected_by);
  json["floor_ms"] = sample.floor_ms;
  json["window_ms"] = sample.window_ms;
  json["limit"] = sample.limit;
  json["before_gbps"] = when(sample.witnessed, sample.before_gbps);
  json["after_gbps"] = when(sample.after_gbps > 0, sample.after_gbps);
  return json;
}

/// Every metric that an expectation can name, under that name.
OrderedJson values_of(const Measured& measured) {
  OrderedJson values;
  for (const Metric& metric : all_metrics()) {
    if (metric.info.text) continue;
    const Value value = metric.value(measured);
    OrderedJson& one = values[metric.info.name];
    if (value.word) one = *value.word;
    if (value.number && std::isfinite(*value.number)) one = *value.number;
  }
  return values;
}

/// Counts and measured numbers that stand elsewhere as well. Not in a group that this mode does not have.
void fill_places(const ModeResult& mode, OrderedJson& run) {
  for (const Metric& metric : all_metrics()) {
    if (metric.place.empty() || !(metric.is_counted() || metric.measure)) continue;
    const OrderedJson::json_pointer place(metric.place);
    if (!run.at(place.parent_pointer()).is_object()) continue;
    if (metric.is_counted())
      run[place] = mode.count(metric.info.name);
    else
      run[place] = number_or_null(mode.number(metric.info.name));
  }
}

OrderedJson correctness_of(const Correctness& c) {
  return {{"wrong_elements", c.wrong_elements},
          {"duplicated", c.duplicated},
          {"lost", c.lost},
          {"size_errors", c.size_errors},
          {"checked_elements", c.checked_elements},
          {"checked_iterations", c.checked_iterations},
          {"messages", c.messages},
          {"collnet_operations", c.collnet_operations},
          {"exact", c.exact() && c.checked_elements > 0}};
}

OrderedJson throughput_of(const Throughput& t) {
  const bool measured = t.rounds_measured > 0;
  const std::string held = held_up_at_faults(t);
  OrderedJson json = {{"before_gbps", t.before_gbps},
                      {"after_gbps", when(measured, t.after_gbps)},
                      {"retained", when(measured, t.retained)},
                      {"limit", t.limit},
                      {"settled", t.settled()},
                      {"rounds",
                       {{"of", t.rounds},
                        {"measured", t.rounds_measured},
                        {"settled", t.rounds_settled},
                        {"worst_unsettled", when(t.rounds_settled < t.rounds_measured, t.worst_unsettled)},
                        {"why_not", t.why_not.empty() ? OrderedJson(nullptr) : OrderedJson(t.why_not)}}},
                      {"bound_ms", when(t.rounds > 0, t.bound_ms)},
                      {"ports_gbps", when(t.ports_gbps > 0, t.ports_gbps)},
                      {"held_up", held.empty() ? OrderedJson(nullptr) : OrderedJson(held)}};
  if (t.rounds > 0 && t.least_before_gbps > 0) json["least_before_gbps"] = t.least_before_gbps;
  if (t.most_of_limit > 0) json["most_of_limit"] = t.most_of_limit;
  return json;
}

OrderedJson restored_of(const Restored& r) {
  OrderedJson json = {{"ratio", number_or_null(r.ratio)},
                      {"why_not", r.why_not.empty() ? OrderedJson(nullptr) : OrderedJson(r.why_not)},
                      {"before_ms", when(r.operations_before > 0, r.before_ms)},
                      {"after_ms", when(r.operations_after > 0, r.after_ms)},
                      {"operations_before", r.operations_before},
                      {"operations_after", r.operations_after},
                      {"rounds", {{"of", r.rounds}, {"home", r.rounds_home}, {"late", r.rounds_late}}}};
  if (r.rounds_not_healed > 0) {
    json["rounds"]["not_healed"] = r.rounds_not_healed;
    json["rounds"]["why_not_healed"] = r.why_not_healed;
  }
  return json;
}

OrderedJson recovery_of(const ModeResult& mode) {
  OrderedJson json;
  for (const FaultTime& time : kFaultTimes) json[time.name] = distribution(mode.*time.of_all);
  json["floor_ms"] = when(mode.faults_sampled > 0, mode.floor_ms);
  json["wakeup_p99_ms"] = when(mode.wakeup_ms.n > 0, mode.wakeup_p99_ms);
  json["detected_by"] = mode.detected_by;
  return json;
}

OrderedJson overhead_of(const Overhead& overhead) {
  return {{"against", overhead.against},
          {"pairs", overhead.pairs},
          {"mean_of", overhead.mean_of == PairMean::kLogRatios ? "log_ratios" : "ratios"},
          {"mean", overhead.mean_pct},
          {"upper95", number_or_null(overhead.upper95_pct)},
          {"busbw_loss_mean", overhead.loss_mean_pct},
          {"busbw_loss_upper95", number_or_null(overhead.loss_upper95_pct)},
          {"cpu_pairs", overhead.cpu_pairs},
          {"cpu_loss_mean", when(overhead.cpu_pairs > 0, overhead.cpu_mean_pct)},
          {"cpu_loss_upper95", when(overhead.cpu_pairs > 1, overhead.cpu_upper95_pct)},
          {"each", overhead.each_pct}};
}

OrderedJson beside_of(const Scenario& scenario, const ModeResult& mode) {
  const SidesCompared sides = compare_sides(mode, size_t(scenario.workload.iters));
  return {{"against", mode.beside->against},
          {"copies", mode.beside->copies},
          {"ratio", number_or_null(sides.ratio)},
          {"operations", sides.operations},
          {"why_not", sides.why_not.empty() ? OrderedJson(nullptr) : OrderedJson(sides.why_not)}};
}

OrderedJson metrics_of(const Scenario& scenario, const RunResult& result, const ModeResult& mode) {
  OrderedJson json;
  json["correctness"] = correctness_of(mode.correctness);
  json["throughput"] = throughput_of(mode.throughput);
  json["restored"] = restored_of(mode.restored);
  json["recovery"] = recovery_of(mode);
  json["balance"] = nullptr;
  if (mode.r2cc_mode == int(ModeKind::kBalance)) json["balance"] = OrderedJson::object();
  json["cpu"] = {{"seconds", when(mode.cpu.known(), mode.cpu.seconds)},
                 {"gbytes", when(mode.cpu.known(), mode.cpu.gbytes)},
                 {"s_per_gb", when(mode.cpu.known(), mode.cpu.per_gb())}};
  json["overhead_pct"] = nullptr;
  for (const Overhead& overhead : result.overheads)
    if (overhead.mode == mode.mode) json["overhead_pct"] = overhead_of(overhead);
  if (mode.beside) json["beside"] = beside_of(scenario, mode);
  json["faults"] = {
      {"planned", mode.faults_planned},         {"witnessed", mode.faults_witnessed},
      {"sampled", mode.faults_sampled},         {"dropped", mode.faults_dropped},
      {"unrecovered", mode.faults_unrecovered}, {"recovered_after_heal", mode.faults_recovered_after_heal},
      {"rounds_at_end", mode.rounds_at_end},    {"rounds_not_fired", mode.rounds_not_fired}};
  if (mode.jobs_without_fault) json["faults"]["jobs_without_fault"] = *mode.jobs_without_fault;
  return json;
}

OrderedJson ranks_of(const ModeResult& mode) {
  OrderedJson ranks = OrderedJson::array();
  for (const RankResult& rank : mode.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"label", rank.label},
                     {"outcome", name(rank.outcome)},
                     {"exit_code", rank.exit_code},
                     {"signal", rank.signal},
                     {"iterations", rank.iterations},
                     {"error", rank.error.empty() ? OrderedJson(nullptr) : OrderedJson(rank.error)},
                     {"warnings", rank.warnings},
                     {"log", rank.log_path}});
    if (rank.cpu_s > 0) ranks.back()["cpu_s"] = rank.cpu_s;
    if (!rank.cpu_by_side_s.empty()) ranks.back()["cpu_by_side_s"] = rank.cpu_by_side_s;
    if (rank.command)
      ranks.back()["command"] = {
          {"exit_code",
           rank.command->exit_code >= 0 ? OrderedJson(rank.command->exit_code) : OrderedJson(nullptr)},
          {"signal", rank.command->signal},
          {"printed", OrderedJson(json_from(rank.command->printed))}};
    if (rank.renewal)
      ranks.back()["renewal"] = {{"iteration", rank.renewal->iteration},
                                 {"operation_open", rank.renewal->operation_open},
                                 {"ranks", rank.renewal->ranks},
                                 {"renew_ms", rank.renewal->renew_ms}};
  }
  return ranks;
}

OrderedJson hosts_of(const ModeResult& mode) {
  OrderedJson list = OrderedJson::array();
  for (const HostResult& host : mode.hosts)
    list.push_back({{"name", host.name},
                    {"first_node", host.first_node},
                    {"nodes", host.nodes},
                    {"cores", host.cores},
                    {"kernel", host.kernel},
                    {"clock_offset_ms", host.clock_offset_ms},
                    {"clock_bound_ms", host.clock_bound_ms}});
  return {{"clock_bound_ms", mode.clock_bound_ms}, {"list", std::move(list)}};
}

OrderedJson run_of(const Scenario& scenario, const RunResult& result, const ModeResult& mode) {
  OrderedJson json;
  json["mode"] = mode.mode;
  json["r2cc_mode"] = mode.r2cc_mode;
  json["outcome"] = name(mode.outcome);
  if (!mode.outcomes.empty()) json["outcomes"] = mode.outcomes;
  json["error"] = mode.error.empty() ? OrderedJson(nullptr) : OrderedJson(mode.error);
  json["duration_s"] = mode.duration_s;
  const NcclTestsRow& row = mode.row;
  json["row"] = {{"size_bytes", row.size_bytes},
                 {"count", row.count},
                 {"type", row.type},
                 {"redop", row.redop},
                 {"root", row.root},
                 {"iterations", row.iterations},
                 {"time_us", when(row.iterations > 0, row.time_us)},
                 {"algbw_gbytes", when(row.iterations > 0, row.algbw)},
                 {"busbw_gbytes", when(row.iterations > 0, row.busbw)},
                 {"wrong", row.wrong}};
  json["metrics"] = metrics_of(scenario, result, mode);
  json["metrics"]["values"] = values_of({scenario, result, mode});
  json["faults"] = OrderedJson::array();
  for (const FaultSample& sample : mode.faults) json["faults"].push_back(fault(mode, sample));
  json["wakeup_ms"] = distribution(mode.wakeup_ms);
  json["trace_lost"] = mode.trace_lost;
  json["events"] = {{"written", mode.events.size()}, {"left_out", mode.events_left_out}};
  json["rounds"] = OrderedJson::array();
  for (const Counts& round : mode.rounds) json["rounds"].push_back(round);
  if (const Mode* of_scenario = scenario.find_mode(mode.mode))
    json["env"] = stated_environment(scenario, *of_scenario);
  json["settings"] = mode.settings;
  json["ranks"] = ranks_of(mode);
  if (!mode.hosts.empty()) json["hosts"] = hosts_of(mode);
  json["iteration_ms"] = mode.iteration_ms;
  if (!mode.iteration_begin_ms.empty()) json["iteration_begin_ms"] = mode.iteration_begin_ms;
  fill_places(mode, json);
  return json;
}

OrderedJson job_of(const ModeResult& job) {
  return {{"mode", job.mode},
          {"outcome", name(job.outcome)},
          {"time_us", when(job.row.iterations > 0, job.row.time_us)},
          {"busbw_gbytes", when(job.row.iterations > 0, job.row.busbw)},
          {"cpu_s_per_gb", when(job.cpu.known(), job.cpu.per_gb())},
          {"wrong", job.row.wrong}};
}

OrderedJson expectation_of(const Judgement& j) {
  return {{"name", j.name()},
          {"wanted", j.wanted},
          {"wanted_value", number_or_null(j.wanted_value)},
          {"got", j.got},
          {"detail", j.detail.empty() ? OrderedJson(nullptr) : OrderedJson(j.detail)},
          {"got_value", number_or_null(j.got_value)},
          {"got_word", j.got_word ? OrderedJson(*j.got_word) : OrderedJson(nullptr)},
          {"ok",
           j.verdict == Verdict::kUnknown ? OrderedJson(nullptr) : OrderedJson(j.verdict == Verdict::kPass)},
          {"doubt", j.doubt ? OrderedJson(name(*j.doubt)) : OrderedJson(nullptr)},
          {"implied", j.implied},
          {"line", j.line}};
}

}  // namespace

OrderedJson fabric_json(const Fabric& fabric) {
  OrderedJson json = {{"kind", name(fabric.kind)},
                      {"nodes", fabric.nodes},
                      {"ranks_per_node", fabric.ranks_per_node},
                      {"nics_per_node", fabric.nics_per_node},
                      {"nic_rate_bits_per_s", fabric.nic_rate_bits_per_s},
                      {"latency_ns", fabric.latency.count()}};
  if (fabric.kind == FabricKind::kVhca)
    json.update({{"link", name(fabric.ports.link)},
                 {"ports_per_nic", fabric.ports.per_nic},
                 {"mtu", fabric.ports.mtu}});
  return json;
}

OrderedJson workload_json(const Workload& work) {
  OrderedJson json = {{"engine", name(work.engine)}, {"op", name(work.op)},   {"dtype", name(work.dtype)},
                      {"bytes", work.bytes},         {"iters", work.iters},   {"warmup", work.warmup},
                      {"channels", work.channels},   {"verify", work.verify}, {"plugin", work.plugin}};
  if (work.engine == Engine::kExec) {
    json["op"] = json["dtype"] = json["bytes"] = nullptr;  // the command knows
    json["command"] = work.exec.arguments;
  }
  return json;
}

OrderedJson to_json(const Report& report) {
  const RunResult& result = report.result;
  const Scenario& scenario = report.scenario;
  OrderedJson json;
  json["schema_version"] = kResultSchemaVersion;
  json["scenario"] = result.scenario;
  json["description"] = scenario.description;
  json["source"] = result.source;
  json["verdict"] = name(report.judged.verdict);
  json["doubts"] = json["doubt_kinds"] = OrderedJson::array();
  for (const Doubt& doubt : report.judged.doubts) {
    json["doubts"].push_back(doubt.text);
    json["doubt_kinds"].push_back(name(doubt.kind));
  }
  json["evidence"] = result.evidence;
  json["seed"] = result.seed;
  json["repeats"] = result.repeats;
  json["pairs"] = scenario.pairs;
  json["started_at"] = result.started_at;
  json["cancelled"] = result.cancelled;
  json["overrides"] = scenario.overrides;
  json["matrix"] = scenario.matrix;
  json["environment"] = result.environment;
  json["fabric"] = fabric_json(scenario.fabric);
  json["workload"] = workload_json(scenario.workload);
  json["plan"] = plan_in_words(scenario);
  json["runs"] = OrderedJson::array();
  for (const ModeResult& mode : result.modes) json["runs"].push_back(run_of(scenario, result, mode));
  json["jobs"] = OrderedJson::array();
  for (const ModeResult& job : result.jobs) json["jobs"].push_back(job_of(job));
  json["expectations"] = OrderedJson::array();
  for (const Judgement& judgement : report.judged.expectations)
    json["expectations"].push_back(expectation_of(judgement));
  return json;
}

void JsonReporter::write(const Report& report, std::ostream& out) const {
  // An error text that a rank printed may hold any bytes; a result must be readable all the same.
  out << to_json(report).dump(1, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
}

}  // namespace r2bench
