#include "harness/run/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>

#include "harness/measure/limits.h"
#include "harness/measure/restored.h"
#include "harness/measure/statistics.h"
#include "r2ccl/base/clock.h"
#include "r2ccl/base/config.h"

namespace r2bench {

using faultinject::FaultKind;
using r2ccl::kNsPerMs;
using r2ccl::trace::EventType;

namespace {

// A fault that is over sooner than this, beside W and the floor, cannot show whether the rate would have come
// back: so much, or an operation at the rate that is left.
constexpr double kUnmeasurableMarginMs = 100;
constexpr std::string_view kOurPlugin = "R2CCL ";  // and its interface's version
constexpr size_t kMaxRaw = 50'000;
constexpr uint64_t kRawAroundNs = 300 * kNsPerMs;

bool is_rank_fault(const Scenario& scenario, const Firing& firing) {
  return firing.fault >= scenario.faults.size();
}

const RankFault& rank_fault(const Scenario& scenario, const Firing& firing) {
  return scenario.rank_faults[firing.fault - scenario.faults.size()];
}

bool strikes_single_qps(FaultKind kind) {
  return kind == FaultKind::kQpError || kind == FaultKind::kAckLost || kind == FaultKind::kCompletionError ||
         kind == FaultKind::kCqError;
}

bool takes_nic_away(FaultKind kind) {
  return kind == FaultKind::kPortDown || kind == FaultKind::kBlackhole || kind == FaultKind::kPortFlap ||
         kind == FaultKind::kDeviceFatal || kind == FaultKind::kFreeze;
}

/// What the ranks of a node ask of its NICs: each the same in all, divided equally over its channels.
NodeLoad load_of(const Scenario& scenario) {
  const Fabric& fabric = scenario.fabric;
  NodeLoad load;
  if (fabric.topology) load.far_cost = 100.0 / fabric.topology->cross_percent;
  const int sockets = fabric.topology ? fabric.topology->sockets : 1;
  for (int nic = 0; nic < fabric.nics_per_node; ++nic) {
    load.nic_socket.push_back(socket_of_nic(fabric, nic));
    load.demand.emplace_back(size_t(sockets), 0.0);
  }
  for (int rank = 0; rank < fabric.ranks_per_node; ++rank) {
    const std::vector<int> nics = nics_from_near(fabric, rank);
    const int channels = channels_of(scenario, rank);
    for (int c = 0; c < channels; ++c)
      load.demand[size_t(nics[size_t(c) % nics.size()])][size_t(socket_of_rank(fabric, rank))] +=
          1.0 / channels;
  }
  return load;
}

/// What is left of each NIC while `firing` and the other faults of its time act. A NIC that lost a queue pair
/// counts as lost: its channel lives on the backup until it fails back.
double limit_of(const Scenario& scenario, const Mode& mode, const std::vector<Firing>& firings,
                uint64_t time_ns) {
  std::vector<std::vector<double>> capacity(size_t(scenario.fabric.nodes),
                                            std::vector<double>(size_t(scenario.fabric.nics_per_node), 1.0));
  for (const Firing& firing : firings) {
    if (is_rank_fault(scenario, firing) || firing.t0_ns == 0 || firing.t0_ns > time_ns) continue;
    if (firing.healed_ns != 0 && firing.healed_ns <= time_ns) continue;
    const auto& spec = scenario.faults[firing.fault];
    double left = 1;
    if (takes_nic_away(spec.kind) || strikes_single_qps(spec.kind)) left = 0;
    if (spec.kind == FaultKind::kThrottle && scenario.fabric.nic_rate_bits_per_s > 0)
      left = double(spec.rate_bits_per_s) / double(scenario.fabric.nic_rate_bits_per_s);
    for (const NicId& nic : firing.nics) {
      double& c = capacity[nic.node][nic.nic];
      c = std::min(c, std::min(left, 1.0));
    }
  }
  return bandwidth_limit(mode.kind, capacity, load_of(scenario));
}

FaultSample identity(const Scenario& scenario, const Firing& firing) {
  FaultSample sample;
  sample.fault = firing.fault;
  sample.repetition = firing.repetition;
  sample.armed_ns = firing.armed_ns;
  sample.t0_ns = firing.t0_ns;
  sample.witnessed = firing.t0_ns != 0;
  if (firing.healed_ns != 0) sample.healed_ns = firing.healed_ns;
  if (is_rank_fault(scenario, firing)) {
    const RankFault& fault = rank_fault(scenario, firing);
    sample.kind = name(fault.kind);
    sample.target = node_name(fault.node) + "/rank" + std::to_string(fault.local_rank);
    sample.name = fault.name;
  } else {
    const auto& spec = scenario.faults[firing.fault];
    sample.kind = faultinject::to_string(spec.kind);
    sample.target = spec.target.text;
    sample.name = spec.name;
  }
  return sample;
}

/// Mean time of the whole operations before `until_ns`; 0 when there was none.
double operation_ms(const Record& record, uint64_t until_ns) {
  double sum = 0;
  size_t count = 0;
  for (const OperationSpan& operation : record.operations) {
    if (!operation.complete || operation.span.end_ns > until_ns) continue;
    sum += double(operation.span.end_ns - operation.span.begin_ns) / 1e6;
    ++count;
  }
  return count ? sum / double(count) : 0;
}

void measure_faults(const Scenario& scenario, const JobRecord& job, ModeResult& mode) {
  const uint64_t first_open = job.record.operations.empty() ? 0 : job.record.operations.front().span.begin_ns;
  // The measured job ends with its last operation; what follows is closing.
  uint64_t end_ns = first_open;
  for (const OperationSpan& operation : job.record.operations)
    end_ns = std::max(end_ns, operation.span.end_ns);
  std::vector<double> detect, migrate, recover, blackout;
  for (const Firing& firing : job.firings) {
    FaultSample sample = identity(scenario, firing);
    // A job that ended early need not have come to this one.
    if (!(firing.t0_ns == 0 && firing.triggered_ns == 0 && job.outcome != Outcome::kOk))
      ++mode.faults_planned;
    if (!sample.witnessed) {
      sample.why_not_sampled = "it never took effect";
      mode.faults.push_back(std::move(sample));
      continue;
    }
    ++mode.faults_witnessed;
    if (is_rank_fault(scenario, firing)) {
      sample.why_not_sampled = "no NIC was struck";
      mode.faults.push_back(std::move(sample));
      continue;
    }
    const auto& spec = scenario.faults[firing.fault];
    FaultWindow window;
    window.t0_ns = firing.t0_ns;
    window.until_ns = firing.healed_ns ? std::min(firing.healed_ns, end_ns) : end_ns;
    window.before_from_ns = std::max(firing.before_from_ns, first_open);
    window.before_until_ns = firing.t0_ns;
    bool superseded = false;
    for (const Firing& other : job.firings) {
      if (other.t0_ns == 0 || is_rank_fault(scenario, other)) continue;
      if (other.t0_ns > firing.t0_ns && other.t0_ns < window.until_ns) {
        window.until_ns = other.t0_ns;
        superseded = true;
      }
      if (other.repetition == firing.repetition)
        window.before_until_ns = std::min(window.before_until_ns, other.t0_ns);
    }
    window.targets = firing.nics;
    window.single_qp = strikes_single_qps(spec.kind);
    window.limit = limit_of(scenario, *job.mode, job.firings, firing.t0_ns);
    window.path_rate_bits_per_s = scenario.fabric.nic_rate_bits_per_s;
    window.operation_ms = operation_ms(job.record, window.before_until_ns);
    analyse_fault(job.record, window, sample);
    const double open_ms =
        double(job.record.open.elapsed(window.until_ns) - job.record.open.elapsed(window.t0_ns)) / 1e6;
    const double margin_ms =
        std::max(kUnmeasurableMarginMs, window.operation_ms / std::max(window.limit, 0.1));
    if (sample.sampled && !sample.recover_ms && open_ms < sample.window_ms + sample.floor_ms + margin_ms &&
        (superseded || (firing.healed_ns && !firing.healed_by_driver))) {
      sample.sampled = false;
      sample.why_not_sampled = superseded ? "the next fault came before it could be measured"
                                          : "it was healed before it could be measured";
    }
    if (sample.sampled) {
      ++mode.faults_sampled;
      mode.floor_ms = std::max(mode.floor_ms, sample.floor_ms);
      if (sample.detect_ms) detect.push_back(*sample.detect_ms);
      if (!sample.detected_by.empty()) ++mode.detected_by[sample.detected_by];
      if (sample.migrate_ms) migrate.push_back(*sample.migrate_ms);
      if (sample.blackout_ms) blackout.push_back(*sample.blackout_ms);
      if (sample.recover_ms) {
        recover.push_back(*sample.recover_ms);
      } else if (job.mode->kind != ModeKind::kBaseline) {
        ++mode.faults_unrecovered;
        recover.push_back(open_ms);  // at least so long
      }
    }
    mode.faults.push_back(std::move(sample));
  }
  mode.detect_ms = summarize(std::move(detect));
  mode.migrate_ms = summarize(std::move(migrate));
  mode.recover_ms = summarize(std::move(recover));
  mode.blackout_ms = summarize(std::move(blackout));
}

/// What makes a NIC slow or late lasts: its rate can be measured whether or not something was in flight when
/// it began. (A NIC whose traffic Balance has spread need not have carried its channel's last piece.)
bool rate_counts(const FaultSample& sample) {
  return sample.sampled || sample.kind == faultinject::to_string(FaultKind::kThrottle) ||
         sample.kind == faultinject::to_string(FaultKind::kDelay);
}

void measure_throughput(const JobRecord& job, ModeResult& mode) {
  std::vector<double> before, after, retained;
  double limit = 1;
  const auto mean = [](const std::vector<double>& v) {
    return v.empty() ? 0 : std::accumulate(v.begin(), v.end(), 0.0) / double(v.size());
  };
  // Of each round the last fault that had a settled window: then everything that was planned is broken.
  std::map<size_t, const FaultSample*> last;
  for (const FaultSample& sample : mode.faults) {
    if (!rate_counts(sample) || sample.after_gbps <= 0 || sample.before_gbps <= 0) continue;
    const FaultSample*& latest = last[sample.repetition];
    if (!latest || sample.t0_ns >= latest->t0_ns) latest = &sample;
  }
  for (const auto& [round, sample] : last) {
    before.push_back(sample->before_gbps);
    after.push_back(sample->after_gbps);
    retained.push_back(sample->after_gbps / sample->before_gbps);
    limit = std::min(limit, sample->limit);
  }
  Throughput& t = mode.throughput;
  t.settled = !last.empty();
  t.limit = limit;
  t.before_gbps = mean(before);
  t.after_gbps = mean(after);
  t.retained = mean(retained);
  if (last.empty()) {
    uint64_t until = job.record.end_ns;
    for (const FaultSample& sample : mode.faults)
      if (sample.witnessed) until = std::min(until, sample.t0_ns);
    const uint64_t from = job.record.operations.empty() ? 0 : job.record.operations.front().span.begin_ns;
    t.before_gbps = rate_gbps(job.record, {from, until});
  }
}

/// The rate after the last failback of each round, once its faults act no more.
void measure_restored(const Scenario& scenario, const JobRecord& job, ModeResult& mode) {
  struct Round {
    uint64_t struck_ns = UINT64_MAX, healed_ns = 0;
    std::string not_healed;  // the name of such a fault
  };
  std::map<size_t, Round> rounds;
  for (const Firing& firing : job.firings) {
    if (firing.t0_ns == 0 || firing.t0_ns > job.record.end_ns) continue;
    Round& round = rounds[firing.repetition];
    round.struck_ns = std::min(round.struck_ns, firing.t0_ns);
    // A queue pair that broke is replaced, whether or not its fault counts as healed.
    if (!is_rank_fault(scenario, firing) && scenario.faults[firing.fault].kind == FaultKind::kQpError)
      continue;
    if (firing.healed_ns == 0 || firing.healed_ns > job.record.end_ns)
      round.not_healed = identity(scenario, firing).name;
    round.healed_ns = std::max(round.healed_ns, firing.healed_ns);
  }
  std::string why = "there was no fault";
  std::vector<Interval> repaired;
  for (auto round = rounds.begin(); round != rounds.end(); ++round) {
    const auto next = std::next(round);
    const uint64_t until_ns = next == rounds.end() ? job.record.end_ns : next->second.struck_ns;
    const auto& [struck_ns, healed_ns, not_healed] = round->second;
    if (!not_healed.empty())
      why = not_healed + " was still there when the job ended";
    else if (const auto home_ns = home_since(job.trace, until_ns, why))
      repaired.push_back({std::max(*home_ns, healed_ns), until_ns});
  }
  if (repaired.empty())
    mode.restored.why_not = why;
  else
    mode.restored = restored(job.record.operations, rounds.begin()->second.struck_ns, repaired);
}

void time_error(const JobRecord& job, ModeResult& mode) {
  if (job.outcome != Outcome::kError || job.error_ns == 0) return;
  uint64_t last_ns = 0;
  for (const Firing& firing : job.firings)
    if (firing.t0_ns <= job.error_ns) last_ns = std::max(last_ns, firing.t0_ns);
  if (last_ns != 0) mode.error_ms = double(job.error_ns - last_ns) / 1e6;
}

/// Known of a job that ended well and whose every delivery was seen.
void measure_cpu(const JobRecord& job, ModeResult& mode) {
  if (job.outcome != Outcome::kOk || job.trace_lost > 0 || job.first_iteration_ns == 0) return;
  CpuUse cpu;
  for (const RankResult& rank : job.ranks) {
    if (rank.cpu_s <= 0) return;
    cpu.seconds += rank.cpu_s;
  }
  cpu.gbytes = double(bytes_between(job.record.deliveries, job.first_iteration_ns, job.record.end_ns)) / 1e9;
  if (cpu.known()) mode.cpu = cpu;
}

void fill_row(const Scenario& scenario, const JobRecord& job, ModeResult& mode) {
  NcclTestsRow& row = mode.row;
  row.size_bytes = scenario.workload.bytes;
  row.count = scenario.workload.bytes / uint64_t(size_of(scenario.workload.dtype));
  switch (scenario.workload.dtype) {
    case DataType::kInt8:
      row.type = "int8";
      break;
    case DataType::kInt32:
      row.type = "int32";
      break;
    case DataType::kInt64:
      row.type = "int64";
      break;
    case DataType::kFloat32:
      row.type = "float";
      break;
    case DataType::kFloat64:
      row.type = "double";
      break;
  }
  const Operation op = scenario.workload.op;
  const double n = communicator_of(scenario, 0).size;
  if (in_chunks(op)) row.count /= uint64_t(n);  // as nccl-tests prints it: of one rank
  row.redop = reduces(op) ? "sum" : "none";
  row.root = op == Operation::kBroadcast ? 0 : -1;
  row.wrong = mode.correctness.wrong_elements;
  for (const OperationSpan& operation : job.record.operations)
    if (operation.complete)
      mode.iteration_ms.push_back(double(operation.span.end_ns - operation.span.begin_ns) / 1e6);
  row.iterations = mode.iteration_ms.size();
  if (mode.iteration_ms.empty()) return;
  const double sum_ms = std::accumulate(mode.iteration_ms.begin(), mode.iteration_ms.end(), 0.0);
  row.time_us = 1e3 * sum_ms / double(mode.iteration_ms.size());
  row.algbw = double(row.size_bytes) / (row.time_us * 1e3);
  row.busbw = row.algbw * (op == Operation::kAllReduce ? 2 * (n - 1) / n : in_chunks(op) ? (n - 1) / n : 1);
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

/// Adds what the event counts to its round and to the whole.
void count_event(const r2ccl::trace::Event& event, RoundCounts& round, ModeResult& mode) {
  const auto count = [&](EventType type, size_t RoundCounts::*of_round, size_t ModeResult::*whole) {
    if (event.type != type) return;
    ++(round.*of_round);
    ++(mode.*whole);
  };
  if (event.c != 1) count(EventType::kFenceStarted, &RoundCounts::migrations, &ModeResult::migrations);
  count(EventType::kFailback, &RoundCounts::failbacks, &ModeResult::failbacks);
  count(EventType::kNicGray, &RoundCounts::gray_nics, &ModeResult::gray_nics);
  count(EventType::kNicWell, &RoundCounts::well_nics, &ModeResult::well_nics);
  count(EventType::kLaneUp, &RoundCounts::lanes, &ModeResult::lanes);
}

void count_events(const JobRecord& job, ModeResult& mode) {
  const std::vector<uint64_t> starts = round_starts(job);
  mode.rounds.resize(starts.size());
  for (const RankEvent& e : job.trace) {
    const auto next = std::upper_bound(starts.begin() + 1, starts.end(), e.event.time_ns);
    count_event(e.event, mode.rounds[size_t(next - starts.begin()) - 1], mode);
    if (e.event.type == EventType::kPeerSlow) ++mode.peer_slow;
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
  for (const auto& witness : job.witnesses) {
    LoggedEvent logged;
    logged.time_ns = witness.time_ns;
    logged.source = "injector";
    logged.name = "witness";
    logged.text = witness.node + "/nic" + std::to_string(witness.nic) +
                  (witness.qp_num ? " qp " + std::to_string(witness.qp_num) : "") + " in " + witness.rank +
                  ": " + witness.what +
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
  if (!job.plugin.empty() && !job.plugin.starts_with(kOurPlugin) && job.mode->kind != ModeKind::kBaseline)
    mode.settings["modes"] = "none: the plugin is not R2CCL, R2CC_MODE means nothing to it";
  if (!job.added_faults.empty())
    mode.settings["inject"] =
        std::to_string(job.added_faults.size()) + " added from outside: this is not the scenario alone";
}

}  // namespace

ModeResult evaluate(const Scenario& scenario, const JobRecord& job) {
  ModeResult mode;
  mode.mode = job.mode->label;
  mode.r2cc_mode = int(job.mode->kind);
  mode.outcome = job.outcome;
  mode.error = job.error;
  mode.ranks = job.ranks;
  mode.correctness = job.correctness;
  mode.trace_lost = job.trace_lost;
  mode.incomplete = job.gave_up;
  mode.wakeup_ms = job.wakeup_ms;
  mode.duration_s = double(job.end_ns - job.start_ns) / 1e9;
  count_events(job, mode);
  measure_faults(scenario, job, mode);
  measure_throughput(job, mode);
  measure_restored(scenario, job, mode);
  measure_cpu(job, mode);
  time_error(job, mode);
  fill_row(scenario, job, mode);
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
  return mode;
}

ModeResult pool(const std::vector<const ModeResult*>& jobs) {
  ModeResult all = *jobs.front();
  for (size_t i = 1; i < jobs.size(); ++i) {
    const ModeResult& job = *jobs[i];
    if (all.outcome == Outcome::kOk && job.outcome != Outcome::kOk) {
      all.outcome = job.outcome;
      all.error = job.error;
    }
    Correctness& c = all.correctness;
    c.wrong_elements += job.correctness.wrong_elements;
    c.duplicated += job.correctness.duplicated;
    c.lost += job.correctness.lost;
    c.size_errors += job.correctness.size_errors;
    c.checked_elements += job.correctness.checked_elements;
    c.checked_iterations += job.correctness.checked_iterations;
    all.faults_planned += job.faults_planned;
    all.faults_witnessed += job.faults_witnessed;
    all.faults_sampled += job.faults_sampled;
    all.faults_unrecovered += job.faults_unrecovered;
    all.migrations += job.migrations;
    all.failbacks += job.failbacks;
    all.peer_slow += job.peer_slow;
    all.gray_nics += job.gray_nics;
    all.well_nics += job.well_nics;
    all.lanes += job.lanes;
    all.rounds.insert(all.rounds.end(), job.rounds.begin(), job.rounds.end());
    all.trace_lost += job.trace_lost;
    if (all.incomplete.empty()) all.incomplete = job.incomplete;
    all.duration_s += job.duration_s;
    all.cpu.seconds += job.cpu.seconds;
    all.cpu.gbytes += job.cpu.gbytes;
    all.row.wrong += job.row.wrong;
    all.row.iterations += job.row.iterations;
    if (all.row.time_us <= 0) {
      all.row.time_us = job.row.time_us;
      all.row.algbw = job.row.algbw;
      all.row.busbw = job.row.busbw;
    }
    all.throughput.before_gbps += job.throughput.before_gbps;
    if (job.wakeup_ms.p99 > all.wakeup_ms.p99) all.wakeup_ms = job.wakeup_ms;
    all.iteration_ms.insert(all.iteration_ms.end(), job.iteration_ms.begin(), job.iteration_ms.end());
  }
  all.throughput.before_gbps /= double(jobs.size());
  if (!all.iteration_ms.empty() && all.row.time_us > 0) {
    const double mean_us = 1e3 * std::accumulate(all.iteration_ms.begin(), all.iteration_ms.end(), 0.0) /
                           double(all.iteration_ms.size());
    const double change = all.row.time_us / mean_us;
    all.row.time_us = mean_us;
    all.row.algbw *= change;
    all.row.busbw *= change;
  }
  return all;
}

}  // namespace r2bench
