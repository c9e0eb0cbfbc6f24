// SPDX-License-Identifier: Apache-2.0
#include "harness/run/job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "harness/hosts/cluster.h"
#include "harness/workload/cpu/rank_config.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

using r2ccl::kNsPerMs;

namespace {

constexpr auto kTick = std::chrono::milliseconds(2);
constexpr uint64_t kMostStepNs = 100 * kNsPerMs;  // of the awake clock
constexpr uint64_t kLateNs = 1'000 * kNsPerMs;
constexpr uint64_t kProgressNs = 100 * kNsPerMs;
constexpr uint64_t kAbortGraceNs = 1'000 * kNsPerMs;  // others may see the error themselves
constexpr uint64_t kAbortBoundNs = 6'000 * kNsPerMs;  // then they are killed
constexpr uint64_t kCloseBoundNs = 10'000 * kNsPerMs;
constexpr uint64_t kCloseOneNs = 20 * kNsPerMs;  // and for each pair of ranks, which share the machine
constexpr uint64_t kRoundNs = 20'000 * kNsPerMs;
constexpr uint64_t kGrantAheadNs = 250 * kNsPerMs;

uint64_t ns(std::chrono::nanoseconds duration) { return uint64_t(duration.count()); }

}  // namespace

Job::Job(const Scenario& scenario, const Mode& mode, const RunOptions& options, const BuildPaths& paths,
         size_t repeats, uint64_t seed, const std::string& log_prefix, const std::atomic<bool>& cancel,
         Progress progress)
    : scenario_(scenario),
      mode_(mode),
      options_(options),
      paths_(paths),
      repeats_(std::max<size_t>(repeats, 1)),
      seed_(seed),
      log_prefix_(log_prefix),
      cancel_(cancel),
      progress_(std::move(progress)) {}

Job::~Job() {
  for (Host* host : hosts_) host->release();  // its ranks are killed
}

RankLink& Job::peer_of(const RankLink& rank, int shift) {
  const Communicator group = communicator_of(scenario_, rank.rank());
  return ranks_[size_t(group.rank_at(group.position + shift))];
}

template <typename Predicate>
bool Job::all_ranks(Predicate predicate) const {
  return std::all_of(ranks_.begin(), ranks_.end(), predicate);
}

void Job::note(uint64_t time_ns, const std::string& name, const std::string& text,
               const std::string& source) {
  LoggedEvent event;
  event.time_ns = time_ns;
  event.source = source;
  event.name = name;
  event.text = text;
  notes_.push_back(event);
  progress_.note = name + (text.empty() ? "" : ": " + text);
}

void Job::move(Phase phase) {
  phase_ = phase;
  phase_at_ns_ = r2ccl::now_ns();
  phase_since_ns_ = awake_ns_;
  last_moved_ns_ = awake_ns_;
}

JobRecord Job::run() {
  start_ranks();
  ticked_ns_ = start_ns_;
  move(Phase::kStarting);
  while (phase_ != Phase::kOver) {
    tick(r2ccl::now_ns());
    std::this_thread::sleep_for(kTick);
  }
  return collect();
}

void Job::tick(uint64_t now_ns) {
  // A machine that lets us not run (a debugger, a laptop's lid, a scheduler that starves us) lets the ranks
  // not run either, so that such a pause is nobody's silence.
  const uint64_t step = now_ns - std::exchange(ticked_ns_, now_ns);
  awake_ns_ += std::min(step, kMostStepNs);
  if (step >= kLateNs)
    note(now_ns, "runner_paused",
         "this program itself did not run for " + std::to_string(step / kNsPerMs) + " ms");
  for (Host* host : hosts_) host->tick();
  if (boards_) boards_->forward();
  bool moved = collector_->drain() > 0 && collector_->delivered_bytes() != last_bytes_;
  last_bytes_ = collector_->delivered_bytes();
  // NCCL's own transport leaves no deliveries; ends of operations show that it moves.
  moved = moved || collector_->ended_by_all() != last_ended_;
  last_ended_ = collector_->ended_by_all();
  for (RankLink& rank : ranks_) moved = rank.poll() > 0 || moved;
  if (scenario_.workload.engine == Engine::kExec) take_printed();
  look_at_hosts(now_ns);
  look_at_ranks(now_ns);
  control_->serve();
  if (driver_ && (phase_ == Phase::kRunning || phase_ == Phase::kStopping)) driver_->tick(now_ns);
  take_notes();
  advance_phase(now_ns);
  watch(now_ns, moved);
  report_progress(now_ns, false);
}

void Job::take_notes() {
  for (Host* host : hosts_) {
    const std::string source = options_.cluster ? host->facts().name : "runner";
    for (const HostNote& one : host->notes()) note(one.time_ns, one.name, one.text, source);
  }
}

/// The first thing that went wrong decides the outcome; what follows from it does not.
void Job::end_with(Outcome outcome, const std::string& error, uint64_t time_ns) {
  if (outcome_ == Outcome::kOk ||
      (error_ns_ != 0 && time_ns < error_ns_ && outcome == Outcome::kError && outcome_ == Outcome::kError)) {
    outcome_ = outcome;
    error_ = error;
    error_ns_ = time_ns;
    note(time_ns, name(outcome), error);
  }
  if (phase_ < Phase::kAborting) move(Phase::kAborting);
}

/// Ranks that die with their host are no news.
void Job::look_at_hosts(uint64_t now_ns) {
  if (phase_ >= Phase::kAborting) return;
  for (Host* host : hosts_)
    if (const auto failure = host->failure()) {
      // Its launcher may have died first, and taken it along.
      const auto launcher = options_.cluster ? options_.cluster->failure() : std::nullopt;
      return end_with(Outcome::kKilled, *failure + (launcher ? "; " + *launcher : ""), now_ns);
    }
  if (options_.cluster)
    if (const auto failure = options_.cluster->failure()) end_with(Outcome::kKilled, *failure, now_ns);
}

void Job::look_at_ranks(uint64_t now_ns) {
  for (RankLink& rank : ranks_) {
    if (rank.has_error) end_with(Outcome::kError, rank.error, rank.error_ns);
    const auto status = rank.ended();
    if (!status) continue;
    if (phase_ == Phase::kAborting) {
      // A survivor may report its peer's end before we have seen it: the death is what came first. (Nobody
      // has been killed by us before the phase is over.)
      if (outcome_ == Outcome::kError && WIFSIGNALED(*status) && !rank.has_error) {
        outcome_ = Outcome::kKilled;
        error_ = rank.label() + " died of signal " + std::to_string(WTERMSIG(*status)) + " (" +
                 strsignal(WTERMSIG(*status)) + "); then " + error_;
        note(now_ns, name(outcome_), error_);
      }
      continue;
    }
    rank.poll();  // its last words
    if (rank.has_error) {
      end_with(Outcome::kError, rank.error, rank.error_ns);
    } else if (WIFSIGNALED(*status)) {
      end_with(Outcome::kKilled,
               rank.label() + " died of signal " + std::to_string(WTERMSIG(*status)) + " (" +
                   strsignal(WTERMSIG(*status)) + ")",
               now_ns);
    } else if (phase_ != Phase::kClosing || WEXITSTATUS(*status) != kRankOk) {
      end_with(Outcome::kError,
               rank.label() + " ended unexpectedly with exit code " + std::to_string(WEXITSTATUS(*status)) +
                   "; its output is in " + log_paths_[size_t(rank.rank())] + " of the run's folder",
               now_ns);
    }
  }
}

void Job::grant(uint64_t now_ns) {
  if (final_) return;
  const uint64_t planned = uint64_t(scenario_.workload.iters);
  uint64_t wanted = planned;
  bool final = true;
  if (repeats_ > 1) {
    // The job runs for as long as there are faults to come: a little is granted ahead, so that the end, too,
    // can be agreed.
    const uint64_t ended = collector_->ended_by_all(), first = collector_->first_iteration_ns();
    const double mean_ns = ended && first ? double(now_ns - first) / double(ended) : double(kGrantAheadNs);
    wanted = ended + std::max<uint64_t>(4, uint64_t(double(kGrantAheadNs) / mean_ns));
    final = driver_->done() && granted_ >= planned;
    if (final) wanted = granted_;
    if (driver_->done() && !final) wanted = std::max(wanted, planned);
  }
  if (in_step()) {
    uint64_t prepared = UINT64_MAX;
    for (const RankLink& rank : ranks_) prepared = std::min(prepared, rank.prepared);
    final = final && prepared >= wanted;
    wanted = std::min(wanted, prepared);
  }
  if (wanted <= granted_ && !final) return;
  granted_ = std::max(granted_, wanted);
  final_ = final;
  for (RankLink& rank : ranks_) rank.send({{"type", "grant"}, {"iterations", granted_}, {"final", final_}});
}

void Job::advance_phase(uint64_t now_ns) {
  switch (phase_) {
    case Phase::kStarting:
      if (all_ranks([](const RankLink& r) { return !r.handles.is_null(); })) {
        for (RankLink& rank : ranks_) {
          RankLink& next = peer_of(rank, 1);
          if (rank.handles.size() != next.handles.size())
            return end_with(Outcome::kError,
                            rank.label() + " and " + next.label() + " see different numbers of NICs (" +
                                std::to_string(rank.devices.size()) + " and " +
                                std::to_string(next.devices.size()) + ")",
                            now_ns);
        }
        for (RankLink& rank : ranks_) {
          nlohmann::json handles = nlohmann::json::array();
          for (size_t c = 0; c < rank.shifts.size(); ++c)
            handles.push_back(peer_of(rank, int(rank.shifts[c])).handles[c]);
          rank.send({{"type", "handles"}, {"handles", std::move(handles)}});
        }
        for (RankLink& rank : ranks_) rank.handles = nullptr;
      }
      if (all_ranks([](const RankLink& r) { return r.ready; })) {
        for (RankLink& rank : ranks_) rank.send({{"type", "start"}});
        move(Phase::kWarming);
      }
      break;
    case Phase::kWarming:
      if (all_ranks([](const RankLink& r) { return r.warm; })) {
        // In this process, where no thread of a plugin counts, and on the same cores as the ranks.
        ticker_ = std::make_unique<Ticker>();
        if (!scenario_.arm_at_start) driver_->arm_first();
        move(Phase::kRunning);
        grant(now_ns);
      }
      break;
    case Phase::kRunning:
      grant(now_ns);
      if (final_) move(Phase::kStopping);
      break;
    case Phase::kStopping:
      if (all_ranks([](const RankLink& r) { return r.finished; })) {
        for (RankLink& rank : ranks_) rank.send({{"type", "close"}});
        move(Phase::kClosing);
      }
      break;
    case Phase::kClosing: {
      bool all_ended = true;
      for (RankLink& rank : ranks_) all_ended = all_ended && rank.ended();
      if (all_ended) move(Phase::kOver);
      const uint64_t bound =
          kCloseBoundNs + ranks_.size() * ranks_.size() * kCloseOneNs;  // with many channels
      if (awake_ns_ > phase_since_ns_ + bound)
        end_with(Outcome::kHang,
                 "a rank did not close within " + std::to_string(bound / (1000 * kNsPerMs)) + " s" +
                     evidence_of_hang(),
                 now_ns);
      break;
    }
    case Phase::kAborting: {
      bool all_ended = true;
      for (RankLink& rank : ranks_) all_ended = all_ended && rank.ended();
      if (driver_) driver_->release();
      const bool at_once = outcome_ == Outcome::kCancelled || outcome_ == Outcome::kHang;
      if (!told_to_abort_ && (awake_ns_ > phase_since_ns_ + kAbortGraceNs || at_once)) {
        told_to_abort_ = true;
        for (RankLink& rank : ranks_) rank.send({{"type", "abort"}});
      }
      // Those that hang, and those that a user no longer waits for, get half a second to say their last
      // words.
      if (all_ended || awake_ns_ > phase_since_ns_ + (at_once ? kAbortGraceNs / 2 : kAbortBoundNs)) {
        for (RankLink& rank : ranks_) {
          if (!rank.ended()) note(now_ns, "killed", rank.label() + " had not ended by itself");
          rank.signal(SIGKILL);
        }
        move(Phase::kOver);
      }
      break;
    }
    case Phase::kOver:
      break;
  }
}

void Job::watch(uint64_t now_ns, bool moved) {
  if (phase_ == Phase::kOver || phase_ == Phase::kAborting) return;
  if (cancel_) return end_with(Outcome::kCancelled, "cancelled", now_ns);
  if (moved || (driver_ && driver_->pausing(now_ns))) last_moved_ns_ = awake_ns_;
  const Timeouts& bounds = scenario_.timeouts;
  // The scenario's bound is meant for one round of faults; each further one may wait for its failback.
  const uint64_t job_ns =
      options_.time_limit ? ns(*options_.time_limit) : ns(bounds.job) + (repeats_ - 1) * kRoundNs;
  if (phase_ == Phase::kStarting && awake_ns_ > phase_since_ns_ + ns(bounds.setup))
    end_with(Outcome::kHang,
             "set-up took longer than " + std::to_string(ns(bounds.setup) / 1'000'000'000) + " s" +
                 evidence_of_hang(),
             now_ns);
  else if (phase_ != Phase::kStarting && awake_ns_ > last_moved_ns_ + ns(bounds.stall))
    end_with(Outcome::kHang,
             "nothing moved for " + std::to_string(ns(bounds.stall) / 1'000'000) + " ms" + evidence_of_hang(),
             now_ns);
  else if (now_ns > start_ns_ + job_ns)
    end_with(Outcome::kHang,
             "the job took longer than " + std::to_string(job_ns / 1'000'000'000) + " s" + evidence_of_hang(),
             now_ns);
}

void Job::report_progress(uint64_t now_ns, bool force) {
  if (!options_.progress || (!force && now_ns < last_progress_ns_ + kProgressNs)) return;
  const uint64_t bytes = collector_->delivered_bytes();
  if (last_progress_ns_)
    progress_.gbps = 8.0 * double(bytes - last_progress_bytes_) / double(now_ns - last_progress_ns_);
  last_progress_ns_ = now_ns;
  last_progress_bytes_ = bytes;
  switch (phase_) {
    case Phase::kStarting:
    case Phase::kWarming:
      progress_.phase = "starting";
      break;
    case Phase::kRunning:
    case Phase::kStopping:
      progress_.phase = driver_->phase_name();
      break;
    case Phase::kClosing:
    case Phase::kAborting:
      progress_.phase = "stopping";
      break;
    case Phase::kOver:
      progress_.phase = "done";
      break;
  }
  progress_.iteration = collector_->ended_by_all();
  progress_.iterations = repeats_ > 1 ? 0 : uint64_t(scenario_.workload.iters);
  progress_.repetition = driver_ ? driver_->repetition() : 0;
  progress_.repeats = repeats_;
  progress_.elapsed = std::chrono::milliseconds((now_ns - start_ns_) / kNsPerMs);
  options_.progress(progress_);
}

JobRecord Job::collect() {
  JobRecord job;
  job.mode = &mode_;
  job.end_ns = r2ccl::now_ns();
  job.start_ns = start_ns_;
  if (ticker_) job.wakeup_ms = ticker_->stop();
  for (Host* host : hosts_) host->settle();
  collector_->drain();
  for (RankLink& rank : ranks_) {
    for (int i = 0; i < 100 && !rank.ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    rank.poll();
    const int status = rank.ended().value_or(0);
    RankResult result;
    result.rank = rank.rank();
    result.node = rank.node();
    result.label = rank.label();
    result.pid = rank.pid();
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    result.outcome = rank.has_error                     ? Outcome::kError
                     : result.signal                    ? Outcome::kKilled
                     : result.exit_code == kRankAborted ? Outcome::kCancelled
                     : result.exit_code                 ? Outcome::kError
                                                        : Outcome::kOk;
    result.error = rank.error;
    result.command = rank.command;
    result.renewal = rank.renewal;
    result.warnings = rank.warnings;
    result.log_path = log_paths_[size_t(rank.rank())];
    result.cpu_s = double(rank.cpu_ns) / 1e9;
    result.iterations = collector_->ended(size_t(rank.rank()));
    job.correctness.wrong_elements += rank.correctness.wrong_elements;
    job.correctness.duplicated += rank.correctness.duplicated;
    job.correctness.lost += rank.correctness.lost;
    job.correctness.size_errors += rank.correctness.size_errors;
    job.correctness.checked_elements += rank.correctness.checked_elements;
    job.correctness.checked_iterations += rank.correctness.checked_iterations;
    job.labels.push_back(rank.label());
    if (job.plugin.empty() && rank.hello)
      job.plugin = rank.plugin_name + (rank.plugin_abi > 0 ? " v" + std::to_string(rank.plugin_abi) : "") +
                   (rank.collnet_operations > 0
                        ? ", " + std::to_string(rank.collnet_operations) + " operations through CollNet"
                        : "");
    job.facts.insert(rank.facts.begin(), rank.facts.end());
    job.ranks.push_back(std::move(result));
  }
  if (outcome_ == Outcome::kError) {
    // The plugin's own words name the NIC and the reason: those of the rank that failed first.
    for (const RankLink& rank : ranks_)
      if (rank.error == error_ && !rank.plugin_words.empty())
        error_ += "; the plugin said: " + rank.plugin_words;
  }
  for (const Host* host : hosts_)
    if (const int error = host->log_error(); error != 0)
      note(job.end_ns, "log_write_failed",
           std::string("the ranks' output could not be written: ") + strerror(error));
  job.outcome = outcome_;
  job.error = error_;
  job.error_ns = error_ns_;
  // After an error the job only falls apart: what is measured ends with it.
  const uint64_t measured_until =
      outcome_ == Outcome::kOk ? phase_at_ns_ : (error_ns_ ? error_ns_ : job.end_ns);
  job.record = collector_->record(std::min(measured_until, job.end_ns));
  job.first_iteration_ns = collector_->first_iteration_ns();
  job.trace = collector_->events();
  job.trace_lost = collector_->lost();
  if (driver_) {
    job.firings = driver_->firings();
    if (job.outcome == Outcome::kOk) job.gave_up = driver_->gave_up();
  }
  for (Host* host : hosts_) host->put_back();
  take_notes();
  job.witnesses = board().witnesses();
  job.added_faults = control_->added();
  job.notes = notes_;
  job.environment = hosts_[0]->environment();
  job.evidence = hosts_[0]->evidence();
  for (Host* host : hosts_) job.devices.merge(host->devices());
  for (size_t h = 0; options_.cluster && h < hosts_.size(); ++h) {
    const HostFacts facts = hosts_[h]->facts();
    job.hosts.push_back({facts.name, nodes_of_hosts_[h].first, nodes_of_hosts_[h].count, facts.cores,
                         facts.kernel, facts.clock_offset_ms, facts.clock_bound_ms});
  }
  const std::string fabric = fabric_name();
  job.ports_limit = fabric == name(FabricKind::kVhca) || fabric == name(FabricKind::kRxe);
  report_progress(job.end_ns, true);
  return job;
}

}  // namespace r2bench
