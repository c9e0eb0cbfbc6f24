// SPDX-License-Identifier: Apache-2.0
// From one phase of a job to the next: when all ranks are ready, warm, finished, ended, and what they are
// told then.
#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include "harness/run/job.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

using r2ccl::kNsPerMs;

namespace {

constexpr uint64_t kAbortGraceNs = 1'000 * kNsPerMs;  // others may see the error themselves
constexpr uint64_t kAbortBoundNs = 6'000 * kNsPerMs;  // then they are killed
constexpr uint64_t kCloseOneNs = 20 * kNsPerMs;       // for each pair of ranks, which share the machine
constexpr uint64_t kGrantAheadNs = 250 * kNsPerMs;

template <typename Predicate>
bool all(const std::vector<RankLink>& ranks, Predicate predicate) {
  return std::all_of(ranks.begin(), ranks.end(), predicate);
}

}  // namespace

RankLink& Job::peer_of(const RankLink& rank, int shift) {
  const Communicator group = communicator_of(scenario_, rank.rank());
  return ranks_[size_t(group.rank_at(group.position + shift))];
}

void Job::tell_all(const nlohmann::json& message) {
  for (RankLink& rank : ranks_) rank.send(message);
}

bool Job::all_ended() {
  bool all = true;
  for (RankLink& rank : ranks_) all = all && rank.ended();
  return all;
}

/// Every rank listens: each is told where those listen that it connects to.
void Job::exchange_handles(uint64_t now_ns) {
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
  tell_all({{"type", "grant"}, {"iterations", granted_}, {"final", final_}});
}

void Job::wait_for_close(uint64_t now_ns) {
  if (all_ended()) move(Phase::kOver);
  const uint64_t bound = uint64_t(scenario_.timeouts.close.count()) +
                         ranks_.size() * ranks_.size() * kCloseOneNs;  // with many channels
  if (awake_ns_ > phase_since_ns_ + bound)
    end_as_hang(
        "a rank did not close within " + std::to_string(bound / (1000 * kNsPerMs)) + " s (timeouts.close)",
        now_ns);
}

void Job::abort_ranks(uint64_t now_ns) {
  const bool ended = all_ended();
  if (driver_) driver_->release();
  const bool at_once = outcome_ == Outcome::kCancelled || outcome_ == Outcome::kHang;
  if (!told_to_abort_ && (awake_ns_ > phase_since_ns_ + kAbortGraceNs || at_once)) {
    told_to_abort_ = true;
    tell_all({{"type", "abort"}});
  }
  // Those that hang, and those that a user no longer waits for, get half a second to say their last words.
  if (!ended && awake_ns_ <= phase_since_ns_ + (at_once ? kAbortGraceNs / 2 : kAbortBoundNs)) return;
  for (RankLink& rank : ranks_) {
    if (!rank.ended()) note(now_ns, "killed", rank.label() + " had not ended by itself");
    rank.signal(SIGKILL);
  }
  move(Phase::kOver);
}

void Job::advance_phase(uint64_t now_ns) {
  switch (phase_) {
    case Phase::kStarting:
      if (all(ranks_, [](const RankLink& r) { return !r.handles.is_null(); })) exchange_handles(now_ns);
      if (phase_ == Phase::kStarting && all(ranks_, [](const RankLink& r) { return r.ready; })) {
        tell_all({{"type", "start"}});
        move(Phase::kWarming);
      }
      break;
    case Phase::kWarming:
      if (all(ranks_, [](const RankLink& r) { return r.warm; })) {
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
      if (all(ranks_, [](const RankLink& r) { return r.finished; })) {
        tell_all({{"type", "close"}});
        move(Phase::kClosing);
      }
      break;
    case Phase::kClosing:
      wait_for_close(now_ns);
      break;
    case Phase::kAborting:
      abort_ranks(now_ns);
      break;
    case Phase::kOver:
      break;
  }
}

}  // namespace r2bench
