// SPDX-License-Identifier: Apache-2.0
// Several jobs of one mode as one result.
#include "harness/judge/pool.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "harness/judge/fault_times.h"
#include "harness/judge/metric.h"
#include "harness/measure/restored.h"

namespace r2bench {
namespace {

/// The jobs' faults, timelines and events one behind the other, as if the second job had begun where the
/// first one ended; rounds count on.
void append_faults(ModeResult& all, const ModeResult& job) {
  if (job.faults.empty()) return;
  const uint64_t gap_ns = uint64_t(all.timeline.bin_ms * 1e6);
  const uint64_t shift = all.timeline.end_ns + gap_ns - job.timeline.start_ns;  // modulo 2^64
  size_t rounds = 0;
  for (const FaultSample& sample : all.faults) rounds = std::max(rounds, sample.repetition + 1);
  for (FaultSample sample : job.faults) {
    sample.repetition += rounds;
    if (sample.armed_ns) sample.armed_ns += shift;
    if (sample.t0_ns) sample.t0_ns += shift;
    for (auto* time : {&sample.healed_ns, &sample.detected_ns, &sample.migrated_ns, &sample.recovered_ns})
      if (*time) **time += shift;
    all.faults.push_back(std::move(sample));
  }
  for (LoggedEvent event : job.events) {
    event.time_ns += shift;
    all.events.push_back(std::move(event));
  }
  all.events_left_out += job.events_left_out;
  Timeline& line = all.timeline;
  if (line.total.empty()) return;
  // Its bins may have another width; the rates are the same.
  line.total.push_back({line.end_ns, 0, false, 0});
  for (TimelinePoint point : job.timeline.total) {
    point.time_ns += shift;
    line.total.push_back(point);
  }
  line.limits.push_back({job.timeline.start_ns + shift, 1});
  for (LimitPoint point : job.timeline.limits) line.limits.push_back({point.time_ns + shift, point.limit});
  for (Timeline::Raw raw : job.timeline.raw) {
    raw.time_ns += shift;
    line.raw.push_back(raw);
  }
  line.end_ns = job.timeline.end_ns + shift;
}

Throughput mean_of(const std::vector<const ModeResult*>& jobs) {
  Throughput mean = jobs.front()->throughput;
  mean = {.limit = mean.limit, .why_not = mean.why_not, .ports_gbps = mean.ports_gbps};
  double limits = 0;
  size_t count = 0;
  for (const ModeResult* job : jobs) {
    const Throughput& t = job->throughput;
    mean.before_gbps += t.before_gbps / double(jobs.size());
    mean.after_gbps += t.after_gbps * double(t.rounds_measured);
    mean.retained += t.retained * double(t.rounds_measured);
    limits += t.limit * double(t.rounds);
    if (t.before_gbps > 0)
      mean.least_before_gbps =
          mean.least_before_gbps > 0 ? std::min(mean.least_before_gbps, t.before_gbps) : t.before_gbps;
    if (t.rounds_measured > 0 && t.limit > 0)
      mean.most_of_limit = std::max(mean.most_of_limit, t.retained / t.limit);
    const size_t unsettled = t.rounds_measured - t.rounds_settled;
    if (unsettled > 0)
      mean.worst_unsettled =
          count == 0 ? t.worst_unsettled : std::min(mean.worst_unsettled, t.worst_unsettled);
    count += unsettled;
    mean.rounds += t.rounds;
    mean.rounds_measured += t.rounds_measured;
    mean.rounds_settled += t.rounds_settled;
    mean.bound_ms = std::max(mean.bound_ms, t.bound_ms);
    if (mean.why_not.empty()) mean.why_not = t.why_not;
  }
  if (mean.rounds > 0) mean.limit = limits / double(mean.rounds);
  if (mean.rounds_measured > 0) {
    mean.after_gbps /= double(mean.rounds_measured);
    mean.retained /= double(mean.rounds_measured);
  }
  return mean;
}

/// What is counted is added up.
void add_counts(ModeResult& all, const ModeResult& job) {
  Correctness& c = all.correctness;
  c.wrong_elements += job.correctness.wrong_elements;
  c.duplicated += job.correctness.duplicated;
  c.lost += job.correctness.lost;
  c.size_errors += job.correctness.size_errors;
  c.checked_elements += job.correctness.checked_elements;
  c.checked_iterations += job.correctness.checked_iterations;
  c.messages += job.correctness.messages;
  c.collnet_operations += job.correctness.collnet_operations;
  all.faults_planned += job.faults_planned;
  all.faults_witnessed += job.faults_witnessed;
  all.faults_sampled += job.faults_sampled;
  all.faults_unrecovered += job.faults_unrecovered;
  all.faults_recovered_after_heal += job.faults_recovered_after_heal;
  for (const auto& [by, count] : job.detected_by) all.detected_by[by] += count;
  for (const auto& [reason, count] : job.faults_dropped) all.faults_dropped[reason] += count;
  for (const auto& [metric, count] : job.counts) all.counts[metric] += count;
  all.trace_lost += job.trace_lost;
  all.witnesses_lost += job.witnesses_lost;
  all.faults_added += job.faults_added;
  all.faults_ended_outside += job.faults_ended_outside;
  all.rounds_fired += job.rounds_fired;
  all.rounds_seen += job.rounds_seen;
  all.rounds_at_end += job.rounds_at_end;
  all.rounds_not_fired += job.rounds_not_fired;
  all.duration_s += job.duration_s;
  all.cpu.seconds += job.cpu.seconds;
  all.cpu.gbytes += job.cpu.gbytes;
}

/// The first job that did not end well tells the outcome; of clocks and wake-up latency the worst job counts.
void keep_worst(ModeResult& all, const ModeResult& job) {
  if (all.outcome == Outcome::kOk && job.outcome != Outcome::kOk) {
    all.outcome = job.outcome;
    all.error = job.error;
  }
  if (all.incomplete.empty()) all.incomplete = job.incomplete;
  all.floor_ms = std::max(all.floor_ms, job.floor_ms);
  const std::vector<HostResult> before = all.hosts;
  if (job.clock_bound_ms > all.clock_bound_ms) {
    all.clock_bound_ms = job.clock_bound_ms;
    all.hosts = job.hosts;
  }
  for (const auto* hosts : {&before, &job.hosts})  // the verdict asks whether a clock jumped in any job
    for (const HostResult& host : *hosts)
      for (HostResult& its : all.hosts)
        if (its.name == host.name) its.clock_beyond_ms = std::max(its.clock_beyond_ms, host.clock_beyond_ms);
  if (job.wakeup_ms.p99 > all.wakeup_ms.p99) {
    all.wakeup_ms = job.wakeup_ms;
    all.wakeup_p99_ms = job.wakeup_p99_ms;
  }
}

void append_operations(ModeResult& all, const ModeResult& job) {
  all.rounds.insert(all.rounds.end(), job.rounds.begin(), job.rounds.end());
  all.iteration_ms.insert(all.iteration_ms.end(), job.iteration_ms.begin(), job.iteration_ms.end());
  all.iteration_begin_ms.clear();
  all.row.wrong += job.row.wrong;
  all.row.iterations += job.row.iterations;
  if (all.row.time_us <= 0) {
    all.row.time_us = job.row.time_us;
    all.row.algbw = job.row.algbw;
    all.row.busbw = job.row.busbw;
  }
}

size_t jobs_without_fault(const std::vector<const ModeResult*>& jobs) {
  if (std::all_of(jobs.begin(), jobs.end(), [](const ModeResult* job) { return job->faults.empty(); }))
    return 0;  // the scenario has none
  return size_t(std::count_if(jobs.begin(), jobs.end(), [](const ModeResult* job) {
    return job->outcome != Outcome::kCancelled && !saw_its_faults(*job);
  }));
}

/// Each metric as it says, over the jobs that know it.
void pool_measured(ModeResult& all, const std::vector<const ModeResult*>& jobs) {
  for (const Metric& metric : all_metrics()) {
    if (!metric.measure) continue;
    std::vector<double> numbers;
    for (const ModeResult* job : jobs)
      if (const auto number = job->number(metric.info.name)) numbers.push_back(*number);
    if (!numbers.empty()) all.measured[metric.info.name] = pooled(numbers, metric.pooled);
  }
}

/// Time and bandwidths of the mean operation of all jobs.
void average_row(ModeResult& all) {
  if (all.iteration_ms.empty() || all.row.time_us <= 0) return;
  const double mean_us = 1e3 * std::accumulate(all.iteration_ms.begin(), all.iteration_ms.end(), 0.0) /
                         double(all.iteration_ms.size());
  const double change = all.row.time_us / mean_us;
  all.row.time_us = mean_us;
  all.row.algbw *= change;
  all.row.busbw *= change;
}

}  // namespace

bool saw_its_faults(const ModeResult& job) {
  return job.faults_witnessed > 0 &&
         (job.outcome != Outcome::kOk || job.faults_witnessed >= job.faults_planned);
}

ModeResult pool(const std::vector<const ModeResult*>& jobs) {
  ModeResult all = *jobs.front();
  for (size_t i = 1; i < jobs.size(); ++i) {
    const ModeResult& job = *jobs[i];
    add_counts(all, job);
    keep_worst(all, job);
    append_faults(all, job);
    append_operations(all, job);
  }
  if (jobs.size() > 1) {
    summarize_times(all);
    for (const ModeResult* job : jobs) ++all.outcomes[name(job->outcome)];
    all.throughput = mean_of(jobs);
    std::vector<Restored> restored;
    for (const ModeResult* job : jobs) restored.push_back(job->restored);
    all.restored = worst_of(restored);
    all.restored.rounds_not_healed = 0;
    all.restored.why_not_healed.clear();
    for (const Restored& each : restored) {
      all.restored.rounds_not_healed += each.rounds_not_healed;
      if (all.restored.why_not_healed.empty()) all.restored.why_not_healed = each.why_not_healed;
    }
    all.jobs_without_fault = jobs_without_fault(jobs);
    pool_measured(all, jobs);
  }
  average_row(all);
  return all;
}

}  // namespace r2bench
