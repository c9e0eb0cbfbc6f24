// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>

#include "harness/judge/evaluate_faults.h"
#include "harness/judge/metric.h"
#include "harness/judge/nccl_tests_row.h"
#include "harness/measure/timeline.h"
#include "r2ccl/base/clock.h"
#include "r2ccl/base/config.h"

namespace r2bench {

using r2ccl::kNsPerMs;
using r2ccl::trace::EventType;

namespace {

constexpr std::string_view kOurPlugin = "R2CCL ";  // and its interface's version
constexpr size_t kMaxRaw = 50'000;
constexpr uint64_t kRawAroundNs = 300 * kNsPerMs;

/// Known of a job that ended well and whose every delivery was seen: of two sides, one's deliveries are.
void measure_cpu(const JobRecord& job, ModeResult& mode) {
  if (job.outcome != Outcome::kOk || job.trace_lost > 0 || job.first_iteration_ns == 0 || mode.beside) return;
  CpuUse cpu;
  for (const RankResult& rank : job.ranks) {
    if (rank.cpu_s <= 0) return;
    cpu.seconds += rank.cpu_s;
  }
  cpu.gbytes = double(bytes_between(job.record.deliveries, job.first_iteration_ns, job.record.end_ns)) / 1e9;
  if (cpu.known()) mode.cpu = cpu;
}

void fill_row(const Scenario& scenario, const JobRecord& job, ModeResult& mode) {
  for (const OperationSpan& operation : job.record.operations)
    if (operation.complete)
      mode.iteration_ms.push_back(double(operation.span.end_ns - operation.span.begin_ns) / 1e6);
  mode.row = nccl_tests_row(scenario.workload, communicator_of(scenario, 0).size, mode.iteration_ms);
  mode.row.wrong = mode.correctness.wrong_elements;
}

/// When each round of the faults was armed; the first one begins with the job.
std::vector<uint64_t> round_starts(const JobRecord& job) {
  std::vector<uint64_t> starts = {0};
  for (const Firing& firing : job.firings) {
    const uint64_t armed_ns = firing.armed_ns ? firing.armed_ns : firing.t0_ns;
    if (firing.repetition == 0 || armed_ns == 0) continue;
    if (firing.repetition >= starts.size()) starts.resize(firing.repetition + 1, UINT64_MAX);
    starts[firing.repetition] = std::min(starts[firing.repetition], armed_ns);
  }
  return starts;
}

/// What metrics count, in each round and in the whole job.
class Counting {
 public:
  explicit Counting(const JobRecord& job) : starts_(round_starts(job)) {
    for (const Metric& metric : all_metrics())
      if (metric.is_counted()) counted_.push_back({&metric, std::vector<size_t>(starts_.size())});
    for (auto& [metric, of_rounds] : counted_)
      if (metric->times)
        for (const uint64_t time_ns : metric->times(job)) ++of_rounds[round_of(time_ns)];
  }

  void add(const r2ccl::trace::Event& event) {
    const size_t round = round_of(event.time_ns);
    for (auto& [metric, of_rounds] : counted_)
      if (metric->counts) of_rounds[round] += metric->counts(event);
  }

  void pass_to(ModeResult& mode) const {
    mode.rounds.resize(starts_.size());
    for (const auto& [metric, of_rounds] : counted_) {
      for (size_t round = 0; round < of_rounds.size(); ++round)
        mode.rounds[round][metric->info.name] = of_rounds[round];
      mode.counts[metric->info.name] = std::accumulate(of_rounds.begin(), of_rounds.end(), size_t{0});
    }
  }

 private:
  size_t round_of(uint64_t time_ns) const {
    return size_t(std::upper_bound(starts_.begin() + 1, starts_.end(), time_ns) - starts_.begin()) - 1;
  }

  std::vector<uint64_t> starts_;
  std::vector<std::pair<const Metric*, std::vector<size_t>>> counted_;
};

void measure_metrics(const Scenario& scenario, const JobRecord& job, ModeResult& mode) {
  for (const Metric& metric : all_metrics())
    if (const auto number = metric.measure ? metric.measure({scenario, job, mode}) : std::nullopt; number)
      mode.measured[metric.info.name] = *number;
}

void count_events(const JobRecord& job, ModeResult& mode) {
  Counting counting(job);
  for (const RankEvent& e : job.trace) {
    counting.add(e.event);
    if (e.event.type == EventType::kDuplicateDropped) ++mode.correctness.duplicated;
    LoggedEvent logged;
    logged.time_ns = e.event.time_ns;
    logged.source = job.labels[e.rank];
    logged.name = std::string(r2ccl::trace::name(e.event.type));
    logged.text = describe(e.event);
    logged.nic = e.event.nic == kNoNic ? -1 : int(e.event.nic);
    logged.channel = e.event.channel;
    logged.a = e.event.a;
    logged.b = e.event.b;
    logged.c = e.event.c;
    mode.events.push_back(std::move(logged));
  }
  counting.pass_to(mode);
  for (const auto& witness : job.witnesses) {
    LoggedEvent logged;
    logged.time_ns = witness.time_ns;
    logged.source = "injector";
    logged.name = "witness";
    logged.text = witness.node + "/nic" + std::to_string(witness.nic) +
                  (witness.qp_num ? " qp " + std::to_string(witness.qp_num) : "") + " in " + witness.rank +
                  ": " + witness.what +
                  (witness.round > 0 ? ", round " + std::to_string(witness.round + 1) : "") +
                  (job.added_faults.contains(witness.fault_id)
                       ? " (fault " + std::to_string(witness.fault_id) + ", added by inject)"
                       : "");
    logged.nic = int(witness.nic);
    mode.events.push_back(std::move(logged));
  }
  mode.events.insert(mode.events.end(), job.notes.begin(), job.notes.end());
  std::stable_sort(mode.events.begin(), mode.events.end(),
                   [](const LoggedEvent& a, const LoggedEvent& b) { return a.time_ns < b.time_ns; });
  if (mode.events.size() > job.most_events) {
    mode.events_left_out = mode.events.size() - job.most_events;
    mode.events.resize(job.most_events);
  }
}

/// What the mode's operations took turns with.
std::string other_side_in_words(const OtherSide& other) {
  const std::string plugin = other.plugin.substr(other.plugin.rfind('/') + 1);
  return name(other.kind) + (plugin.empty() ? "" : " of " + plugin);
}

void fill_settings(const JobRecord& job, ModeResult& mode) {
  const auto config = r2ccl::Config::from([&](const char* variable) -> const char* {
    const auto found = job.environment.find(variable);
    return found == job.environment.end() ? nullptr : found->second.c_str();
  });
  if (config)
    for (const auto& entry : (*const_cast<r2ccl::Result<r2ccl::Config>&>(config)).entries())
      if (entry.variable != "R2CC_STRICT_ACK" ||
          job.mode->kind != ModeKind::kBaseline)  // means nothing there
        mode.settings[entry.variable] = entry.value;
  mode.settings["plugin"] = job.plugin;
  if (job.mode->beside) {
    std::string beside = other_side_in_words(*job.mode->beside);
    for (const auto& [variable, value] : job.mode->beside->env) beside += " " + variable + "=" + value;
    mode.settings["beside"] = beside;
  }
  if (!job.plugin.empty() && !job.plugin.starts_with(kOurPlugin) && job.mode->kind != ModeKind::kBaseline)
    mode.settings["modes"] = "none: the plugin is not R2CCL, R2CC_MODE means nothing to it";
  std::string from_outside;
  if (!job.added_faults.empty()) from_outside = std::to_string(job.added_faults.size()) + " added";
  if (job.faults_ended_outside > 0)
    from_outside += (from_outside.empty() ? "" : ", ") + std::to_string(job.faults_ended_outside) + " ended";
  if (!from_outside.empty())
    mode.settings["inject"] = from_outside + " from outside: this is not the scenario alone";
}

std::optional<OtherSideResult> other_side(const Scenario& scenario, const Mode& mode) {
  if (!scenario.compares_sides(mode)) return std::nullopt;
  return OtherSideResult{mode.beside ? other_side_in_words(*mode.beside) : name(Transport::kIb),
                         size_t(scenario.workload.pairs())};
}

/// Between any two hosts; each of them may be off on the runner's clock.
double bound_between(const std::vector<HostResult>& hosts) {
  double most = 0, second = 0;
  for (const HostResult& host : hosts) {
    second = std::max(second, std::min(most, host.clock_bound_ms));
    most = std::max(most, host.clock_bound_ms);
  }
  return hosts.size() > 1 ? most + second : 0;
}

}  // namespace

ModeResult evaluate(const Scenario& scenario, const JobRecord& job) {
  ModeResult mode;
  mode.mode = job.mode->label;
  mode.r2cc_mode = int(job.mode->kind);
  mode.beside = other_side(scenario, *job.mode);
  mode.outcome = job.outcome;
  mode.error = job.error;
  mode.ranks = job.ranks;
  mode.hosts = job.hosts;
  mode.devices = job.devices;
  mode.clock_bound_ms = bound_between(job.hosts);
  mode.correctness = job.correctness;
  mode.trace_lost = job.trace_lost;
  mode.witnesses_lost = job.witnesses_lost;
  mode.faults_added = job.added_faults.size();
  mode.faults_ended_outside = job.faults_ended_outside;
  mode.incomplete = job.gave_up;
  mode.wakeup_ms = job.wakeup_ms;
  mode.wakeup_p99_ms = std::min(job.wakeup_ms.p99, kWakeupCapMs);
  mode.duration_s = double(job.end_ns - job.start_ns) / 1e9;
  count_events(job, mode);
  const std::vector<Firing> strikes = strikes_of(scenario, job);
  const RoundCounts rounds = count_rounds(scenario, job);
  mode.rounds_not_fired = rounds.not_fired;
  if (job.outcome == Outcome::kOk || job.outcome == Outcome::kCancelled) {
    mode.rounds_fired = rounds.fired;
    mode.rounds_seen = rounds.seen;
    mode.rounds_at_end = rounds.at_end;
  }
  const NicsLeft left(scenario, *job.mode, strikes, job.record);
  evaluate_faults(scenario, job, strikes, left, mode);
  measure_cpu(job, mode);
  fill_row(scenario, job, mode);
  measure_metrics(scenario, job, mode);
  fill_settings(job, mode);

  const uint64_t start =
      job.record.operations.empty() ? job.record.end_ns : job.record.operations.front().span.begin_ns;
  std::vector<uint64_t> marks;
  for (const FaultSample& sample : mode.faults)
    if (sample.witnessed)  // to the recovery and behind it
      for (uint64_t at = sample.t0_ns, end = at + uint64_t(sample.recover_ms.value_or(0) * 1e6);
           at <= end + kRawAroundNs / 2; at += kRawAroundNs)
        marks.push_back(at);
  const double span_ms = double(job.record.end_ns - start) / 1e6;
  mode.timeline =
      make_timeline(job.record, start, std::clamp(span_ms / 1000, 5.0, 100.0), marks, kRawAroundNs, kMaxRaw);
  mode.timeline.limits = left.changes(job.record.end_ns);
  for (const OperationSpan& operation : job.record.operations)
    if (operation.complete)
      mode.iteration_begin_ms.push_back((double(operation.span.begin_ns) - double(mode.timeline.start_ns)) /
                                        1e6);
  return mode;
}

}  // namespace r2bench
