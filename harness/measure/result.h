// SPDX-License-Identifier: Apache-2.0
// What a run leaves behind: everything that the reports, the plots and the expectations look at. Plain data;
// nothing here computes. Times named *_ns are CLOCK_MONOTONIC of this host, durations say their unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace r2bench {

/// A plugin that keeps the cores busy makes every thread wake late, the runner's too. So its wake-up latency
/// widens bounds up to here only. Good runs on two cores show 0.1 to 1.8 ms.
inline constexpr double kWakeupCapMs = 2;

/// A sample's summary. All zero when n == 0. Percentiles are nearest-rank: each is a value that was measured.
struct Distribution {
  size_t n = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
};

/// How a job ended.
enum class Outcome {
  kOk,         ///< every rank finished every iteration
  kError,      ///< a rank ended with an error of the plugin (or of its set-up); `error` says which
  kHang,       ///< the watchdog saw no progress for the stated time and ended the job
  kKilled,     ///< a rank died of a signal
  kCancelled,  ///< the user (or the overall time limit of the caller) ended the run, or a host was lost
};
/// "ok", "error", "hang", "killed", "cancelled".
const char* name(Outcome outcome);

struct Correctness {
  uint64_t wrong_elements = 0;
  uint64_t duplicated = 0;  ///< messages (or segments) that arrived twice
  uint64_t lost = 0;        ///< messages that never arrived although the receiver went on
  uint64_t checked_elements = 0;
  uint64_t checked_iterations = 0;  ///< sum over the ranks
  uint64_t size_errors = 0;         ///< receives that reported another size than was sent
  uint64_t messages = 0;  ///< recognised by what they carry: among them `duplicated` and `lost` are counted
  uint64_t collnet_operations = 0;  ///< in which no message is seen; sum over the ranks
  bool exact() const { return wrong_elements == 0 && duplicated == 0 && lost == 0 && size_errors == 0; }
};

/// Delivered payload, summed over all receivers, per second of open operations. Gbit/s (10^9). A round is one
/// striking of the scenario's faults (--repeats makes several). Its window begins a stated time behind its
/// last strike, whether or not the rate has come back by then, and ends when the NICs that are left change.
struct Throughput {
  double before_gbps = 0;      ///< before the first fault; of the whole job when there was none
  double after_gbps = 0;       ///< in the windows, mean over the rounds; 0 when none was measured
  double retained = 0;         ///< after / before, mean over the rounds; 0 when none was measured
  double limit = 1;            ///< what `retained` could be at best in this mode with the NICs that were left
  size_t rounds = 0;           ///< that struck a NIC
  size_t rounds_measured = 0;  ///< of those: the window was long enough
  size_t rounds_settled = 0;   ///< of those: the rate was back before the window began
  double worst_unsettled = 0;  ///< the least retained of those that were not; 0 when there is none
  double bound_ms = 0;         ///< open time from the last strike to the window, the longest of all rounds
  std::string why_not;         ///< why a round was not measured; empty when all were
  double ports_gbps = 0;       ///< what the ports carry at best without a fault; 0: their rate is no limit
  /// Of several jobs, the least `before_gbps` and the largest `retained` / `limit`; 0: there was one job, or
  /// none of it was measured.
  double least_before_gbps = 0, most_of_limit = 0;
  bool settled() const { return rounds > 0 && rounds_settled == rounds; }
};

/// The rate once everything was repaired, against the rate before the first fault; medians of operations. Of
/// several rounds the worst one that was measured.
struct Restored {
  std::optional<double> ratio;         ///< nullopt: `why_not`
  std::string why_not;                 ///< also: why a round is missing
  double before_ms = 0, after_ms = 0;  ///< median time of an operation; 0 when there was none
  size_t operations_before = 0, operations_after = 0;
  size_t rounds = 0;             ///< whose faults were all healed, or were not and should have been
  size_t rounds_home = 0;        ///< of those: every channel was home within the bound
  size_t rounds_late = 0;        ///< of those: some channel was not, and the job ran on
  size_t rounds_not_healed = 0;  ///< left out: a fault was still there when the job ended
  std::string why_not_healed;    ///< which one, in the first of them; else empty
};

/// One strike of one fault: a fault that repeats, or flaps, has several.
struct FaultSample {
  size_t fault = 0;        ///< index into Scenario::faults (harness-level faults included)
  size_t repetition = 0;   ///< 0-based, of --repeats
  size_t strike = 0;       ///< 0-based, of a fault that repeats by itself
  std::string name;        ///< the fault's name in the scenario (or its kind)
  std::string kind;        ///< port_down, qp_error …
  std::string target;      ///< node1/nic0 …
  bool witnessed = false;  ///< the injector (or, for a signal, the runner) saw it take effect
  bool sampled = false;    ///< it met a segment in flight on its target, or stalled it: the times below count
  std::string why_not_sampled;  ///< empty when sampled
  /// Of a sample whose recovery cannot be judged, and has no time: why no rate before it is known; else
  /// empty.
  std::string why_no_rate_before;
  uint64_t armed_ns = 0;
  uint64_t t0_ns = 0;  ///< 0 when not witnessed
  std::optional<uint64_t> healed_ns;
  std::optional<uint64_t> detected_ns;  ///< absolute times of the marks in the picture
  std::optional<uint64_t> migrated_ns;
  std::optional<uint64_t> recovered_ns;
  std::optional<double> detect_ms;  ///< t0 -> start of the fence that led to the migration
  std::optional<double>
      switch_ms;  ///< that -> every channel end that left the NIC has a path that carries it
  std::optional<double> migrate_ms;   ///< that -> the last affected stream has delivered on another path
  std::optional<double> recover_ms;   ///< t0 -> start of the first good interval W (README.md)
  bool recovered_after_heal = false;  ///< and that came only once the fault was healed
  std::optional<double> waited_ms;    ///< it never came, although it was waited for so long
  std::optional<double> blackout_ms;  ///< longest gap between segments on an affected channel
  std::string detected_by;            ///< completion, event, watchdog, peer; empty when nothing was fenced
  double floor_ms = 0;                ///< one segment at the rate that the limit leaves its path
  double window_ms = 0;               ///< the W that was used
  double limit = 1;                   ///< of this fault: fraction of the rate before
  double limit_before = 1;            ///< the same just before it struck
  double before_gbps = 0;
  double after_gbps = 0;  ///< settled rate, 0 when the window was empty
};

/// CPU time of all ranks, from the beginning of the first counted operation to the end of the last one, all
/// threads but those that fill and compare the buffers; and the payload delivered in that time.
struct CpuUse {
  double seconds = 0;  ///< 0: not known
  double gbytes = 0;   ///< 10^9 bytes
  bool known() const { return seconds > 0 && gbytes > 0; }
  double per_gb() const { return known() ? seconds / gbytes : 0; }
};

/// One line of nccl-tests' table: out of place. Times in µs, bandwidths in GB/s (10^9 bytes).
struct NcclTestsRow {
  uint64_t size_bytes = 0;
  uint64_t count = 0;
  std::string type;   ///< "float", "int32", "double" as nccl-tests prints them
  std::string redop;  ///< "sum", or "none"
  int root = -1;      ///< of a broadcast
  double time_us = 0;
  double algbw = 0;
  double busbw = 0;
  uint64_t wrong = 0;
  uint64_t iterations = 0;  ///< completed by every rank, warm-up excluded
};

/// What the mode can carry at best from a moment on, as a fraction of its rate before any fault.
struct LimitPoint {
  uint64_t time_ns = 0;
  double limit = 1;
};

/// A point of the throughput curve: payload delivered in [time_ns, time_ns + bin). Wall time: gaps in which
/// no operation was open are marked, not removed.
struct TimelinePoint {
  uint64_t time_ns = 0;
  double gbps = 0;
  bool open = true;  ///< an operation was open during some of the bin; gbps is per second of that open time
  double open_share = 1;  ///< how much of the bin that was: the weight of gbps in a mean over bins
};

struct Timeline {
  uint64_t start_ns = 0;  ///< first iteration of the job
  uint64_t end_ns = 0;
  double bin_ms = 0;
  std::vector<TimelinePoint> total;
  std::vector<LimitPoint> limits;  ///< one for each change of what is left of the NICs; empty: there was none
  /// Raw deliveries around the faults (and at most max_raw of them): exact times for the picture's inset.
  struct Raw {
    uint64_t time_ns;
    uint32_t bytes;
    uint16_t node;     ///< receiver's node
    uint16_t nic;      ///< receiver's NIC, 0xffff unknown
    uint32_t channel;  ///< receiver's rank << 16 | channel
  };
  std::vector<Raw> raw;
};

/// One rare event of the trace, of the injector or of the runner, for the event log. In order of time.
struct LoggedEvent {
  uint64_t time_ns = 0;
  std::string source;  ///< "node1/rank1", "injector", "runner"
  std::string name;    ///< fence_started, migration_done, fault_fired, sigstop …
  std::string text;    ///< the rest in words: "nic 0, path 3, by completion"
  int nic = -1;
  int64_t channel = -1;
  uint64_t a = 0, b = 0, c = 0;
};

/// How the command of a rank of the engine exec ended, and what it measured by itself.
struct CommandResult {
  int exit_code = -1;  ///< -1: it was ended by a signal, or by the runner
  int signal = 0;
  std::string printed = "{}";  ///< a JSON object: "rows" of nccl-tests, "values" of iterations
};

/// How one rank process ended.
/// What became of the communicators of a rank of the engine nccl that were renewed.
struct RenewalResult {
  uint64_t iteration = 0;
  bool operation_open = false;  ///< on the GPU, when they were ended
  int ranks = 0;                ///< of the new ones; 0: this rank was left out
  double renew_ms = 0;          ///< from their end's beginning until the new ones were there
  uint64_t begun_ns = 0;        ///< when they began to be ended
};

/// RankResult::error of a rank whose end nobody has told: it is killed, and its signal is 0.
inline constexpr const char* kEndUnknown = "how it ended is not known";

struct RankResult {
  int rank = 0;
  int node = 0;
  std::string label;  ///< node0/rank0
  int pid = 0;
  Outcome outcome = Outcome::kOk;
  int exit_code = 0;
  int signal = 0;
  std::string error;                  ///< what the rank said when it ended in an error; names the NIC
  std::vector<std::string> warnings;  ///< WARN lines of the plugin, bounded
  std::string log_path;  ///< its stdout and stderr, within the run's folder: logs/migrate-rank0.log
  std::optional<CommandResult> command;
  std::optional<RenewalResult> renewal;
  uint64_t iterations = 0;
  double cpu_s = 0;  ///< CPU time of the counted operations (CpuUse); 0: the rank did not say
  /// Of it, what was used within operations of each side, where two sides take turns.
  std::vector<double> cpu_by_side_s;
};

/// One machine of a run on several.
struct HostResult {
  std::string name;
  int first_node = 0, nodes = 0;  ///< those that lived there
  int cores = 0;
  std::string kernel;
  double clock_offset_ms = 0;  ///< its CLOCK_MONOTONIC minus the runner's, at the end of the job
  double clock_bound_ms = 0;   ///< how far any of its times may be off on the runner's clock
  double clock_beyond_ms = 0;  ///< what of that no drift explains; > 0 makes a verdict unknown
};

/// Events of all ranks by the name of the metric that counts them: "migrations" … (harness/judge/metrics).
using Counts = std::map<std::string, size_t>;

/// What operations of a mode take turns with in the same job (harness/scenario/turns.h).
struct OtherSideResult {
  std::string against;  ///< the other side: "migrate", or "ib" of NCCL's own transport
  size_t copies = 0;    ///< communicators of each side
};

/// One job of one mode (a run of all its ranks from start to end).
struct ModeResult {
  std::string mode;  ///< the scenario's name of it: baseline, migrate …
  int r2cc_mode = 0;
  Outcome outcome = Outcome::kOk;
  std::string error;  ///< the first error in time, with the rank that saw it; names the NIC
  std::map<std::string, size_t> outcomes;  ///< of several jobs: how many ended in which way; empty of one
  std::vector<RankResult> ranks;
  std::vector<HostResult> hosts;  ///< empty: all ranks were on one machine
  /// Names of the devices, by node and NIC: what an error calls a NIC.
  std::map<int, std::vector<std::string>> devices;
  /// How far the distance of two times from different hosts may be off: the two largest bounds together. 0
  /// on one machine, which has one clock.
  double clock_bound_ms = 0;
  Correctness correctness;
  Throughput throughput;
  Restored restored;
  std::vector<FaultSample> faults;
  size_t faults_planned = 0;
  size_t faults_witnessed = 0;
  /// Of several jobs: in how many of them the fault was not seen; one that was cut short is not among them.
  /// nullopt: there was one job, or the result is of an older version.
  std::optional<size_t> jobs_without_fault;
  size_t faults_sampled = 0;
  std::map<std::string, size_t> faults_dropped;  ///< witnessed but not sampled: how many for which reason
  size_t faults_unrecovered = 0;  ///< sampled, but the rate never came back: recover_ms then holds how long
                                  ///< it was waited for, which is less than the truth
  size_t faults_recovered_after_heal = 0;  ///< sampled, and the rate came back only once they were healed
  Distribution detect_ms, migrate_ms, recover_ms, blackout_ms;  ///< over the sampled faults
  std::map<std::string, size_t> detected_by;                    ///< how often by which
  double floor_ms = 0;       ///< largest over the samples; a bound on a time takes each fault's own
  Distribution wakeup_ms;    ///< the runner's ticker: how late a sleeping thread wakes on this machine, now
  double wakeup_p99_ms = 0;  ///< how much of its p99 a bound may add: no more than kWakeupCapMs
  Counts counts;             ///< of the whole job
  /// Of each round of the faults (--repeats): from its arming to that of the next. The first one begins with
  /// the job, the last one ends with it. One without repeats; of several jobs those of each.
  std::vector<Counts> rounds;
  /// By the name of the metric that is measured from the job's record (Metric::measure): "stall_ms" …
  std::map<std::string, double> measured;
  CpuUse cpu;
  NcclTestsRow row;
  std::optional<OtherSideResult> beside;  ///< of a mode that compares two sides in one job
  std::vector<double> iteration_ms;       ///< one per completed iteration, warm-up excluded
  std::vector<double>
      iteration_begin_ms;  ///< when each began, since the timeline's start; empty of several jobs
  Timeline timeline;
  std::vector<LoggedEvent> events;
  size_t events_left_out = 0;  ///< behind the last one of `events`, for want of room; all are counted above
  std::string incomplete;   ///< why not all planned faults were struck; else empty. Makes a verdict unknown
  uint64_t trace_lost = 0;  ///< trace events overwritten before they were read; > 0 makes a verdict unknown
  uint64_t witnesses_lost = 0;      ///< FaultBoard::witnesses_lost(); > 0 makes a verdict unknown
  size_t faults_added = 0;          ///< by `r2bench inject`; > 0 makes a verdict unknown
  size_t faults_ended_outside = 0;  ///< of the scenario, by `r2bench inject`; > 0 makes a verdict unknown
  /// Of faults with `repeat`, in a job that ended well or was cut short: rounds that the injector fired, and
  /// those whose effect is in its records. Fewer seen make a verdict unknown.
  size_t rounds_fired = 0, rounds_seen = 0;
  size_t rounds_at_end = 0;     ///< not among them: had no effect because the job was about to end
  size_t rounds_not_fired = 0;  ///< planned beside them: the job ended first, or the fault was healed
  std::map<std::string, std::string> settings;  ///< detection settings and environment of the ranks
  double duration_s = 0;

  size_t count(const std::string& metric) const {
    const auto found = counts.find(metric);
    return found == counts.end() ? 0 : found->second;
  }
  std::optional<double> number(const std::string& metric) const {  ///< nullopt: it was not measured
    const auto found = measured.find(metric);
    return found == measured.end() ? std::nullopt : std::optional(found->second);
  }
};

/// Of what a mean over pairs of jobs is taken: of the logarithm of the ratio in each pair, and then put back,
/// or of the ratios (results of older versions).
enum class PairMean { kLogRatios, kRatios };

/// 100·(time with / time without − 1) over interleaved pairs of jobs.
struct Overhead {
  std::string mode;
  std::string against;
  size_t pairs = 0;
  double mean_pct = 0;
  double upper95_pct = 0;    ///< one-sided upper 95 % confidence bound of the mean (Student's t)
  double loss_mean_pct = 0;  ///< the same for the loss of busbw: 100·(1 − busbw with / busbw without)
  double loss_upper95_pct = 0;
  std::vector<double> each_pct;
  size_t cpu_pairs = 0;  ///< of which the CPU time is known on both sides
  double cpu_mean_pct =
      0;  ///< the same for CPU time per byte: 100·(s/GB with / s/GB without − 1); below 0: less than without
  double cpu_upper95_pct = 0;
  PairMean mean_of = PairMean::kLogRatios;
};

struct RunResult {
  std::string scenario;
  std::string source;  ///< path of the scenario file
  uint64_t seed = 0;
  size_t repeats = 1;
  std::string evidence;                            ///< simulated | emulated | rxe | hardware
  std::string started_at;                          ///< ISO 8601, UTC
  std::map<std::string, std::string> environment;  ///< kernel, cpu, cores, compiler, build, plugin …
  std::vector<ModeResult> modes;                   ///< one per mode; with pairs the pooled result of its jobs
  std::vector<ModeResult> jobs;  ///< with pairs: every single job in the order in which it ran
  std::vector<Overhead> overheads;
  bool cancelled = false;
};

}  // namespace r2bench
