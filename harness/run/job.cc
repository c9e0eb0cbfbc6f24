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
constexpr uint64_t kRoundNs = 20'000 * kNsPerMs;

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

/// Of a lost host, why it is; its launcher may have died first, and taken it along.
std::optional<std::string> Job::loss_of(Host& host) {
  const auto failure = host.failure();
  if (!failure) return std::nullopt;
  const auto launcher = options_.cluster ? options_.cluster->failure() : std::nullopt;
  return *failure + (launcher ? "; " + *launcher : "");
}

/// Ranks that die with their host are no news. What the job would have done is not known then: it is cut
/// short, and measured until the host was last heard.
void Job::look_at_hosts(uint64_t now_ns) {
  if (phase_ >= Phase::kAborting) return;
  for (Host* host : hosts_)
    if (const auto loss = loss_of(*host))
      return end_with(Outcome::kCancelled, *loss, std::min(now_ns, host->heard_ns()));
  if (options_.cluster)
    if (const auto failure = options_.cluster->failure()) end_with(Outcome::kCancelled, *failure, now_ns);
}

void Job::look_at_ranks(uint64_t now_ns) {
  for (RankLink& rank : ranks_) {
    if (rank.has_error) end_with(Outcome::kError, rank.error, rank.error_ns);
    const auto status = rank.ended();
    if (!status) continue;
    if (phase_ == Phase::kAborting) {
      // A survivor may report its peer's end before we have seen it: the death is what came first. (Nobody
      // has been killed by us before the phase is over.)
      const auto loss = outcome_ == Outcome::kError ? loss_of(host_of(rank.rank())) : std::nullopt;
      if (loss) {
        outcome_ = Outcome::kCancelled;
        error_ = *loss + "; then " + error_;
        note(now_ns, name(outcome_), error_);
      } else if (outcome_ == Outcome::kError && WIFSIGNALED(*status) &&
                 (!rank.has_error || WTERMSIG(*status) != SIGKILL)) {
        outcome_ = Outcome::kKilled;
        error_ = rank.label() + " died of signal " + std::to_string(WTERMSIG(*status)) + " (" +
                 strsignal(WTERMSIG(*status)) + (rank.has_error ? "); before: " : "); then ") + error_;
        note(now_ns, name(outcome_), error_);
      }
      continue;
    }
    rank.poll();  // its last words
    if (rank.has_error) {
      end_with(Outcome::kError, rank.error, rank.error_ns);
    } else if (WIFSIGNALED(*status)) {
      look_at_hosts(now_ns);  // its host may just have been lost
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

void Job::watch(uint64_t now_ns, bool moved) {
  if (phase_ == Phase::kOver || phase_ == Phase::kAborting) return;
  if (cancel_) return end_with(Outcome::kCancelled, "cancelled", now_ns);
  if (moved || (driver_ && driver_->pausing())) last_moved_ns_ = awake_ns_;
  const Timeouts& bounds = scenario_.timeouts;
  // The scenario's bound is meant for one round of faults; each further one may wait for its failback.
  const uint64_t job_ns =
      options_.time_limit ? ns(*options_.time_limit) : ns(bounds.job) + (repeats_ - 1) * kRoundNs;
  if (phase_ == Phase::kStarting && awake_ns_ > phase_since_ns_ + ns(bounds.setup))
    end_as_hang("set-up took longer than " + std::to_string(ns(bounds.setup) / 1'000'000'000) + " s", now_ns);
  else if (phase_ != Phase::kStarting && awake_ns_ > last_moved_ns_ + ns(bounds.stall))
    end_as_hang("nothing moved for " + std::to_string(ns(bounds.stall) / 1'000'000) + " ms", now_ns);
  else if (now_ns > start_ns_ + job_ns)
    end_as_hang("the job took longer than " + std::to_string(job_ns / 1'000'000'000) + " s", now_ns);
}

/// Where the ranks are is asked of their hosts: one that does not answer is what the job waits for.
void Job::end_as_hang(const std::string& what, uint64_t now_ns) {
  const std::string evidence = evidence_of_hang();
  look_at_hosts(now_ns);
  end_with(Outcome::kHang, what + evidence, now_ns);
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

}  // namespace r2bench
