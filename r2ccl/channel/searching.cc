// SPDX-License-Identifier: Apache-2.0
// A sender without a path that carries: which one it takes (protocol/choice.h), and for how long it may look
// (search.h).
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"
#include "r2ccl/channel/sender_paths.h"
#include "r2ccl/protocol/choice.h"

namespace r2ccl {
namespace {

constexpr char kUnanswered[] = "a probe is not answered";

}  // namespace

// The host of choice.h and search.h. The sender decides; the receiver refuses a path by dropping it.
class SenderPaths::SearchActions : public Channel::Actions {
 public:
  SearchActions(SenderPaths& sender, const Tick& tick)
      : Actions(sender, tick, trace::DetectedBy::kWatchdog, kUnanswered), s_(sender) {}

  bool usable(uint32_t id) const {
    const Path& path = *s_.paths_.find(id);
    return rail::is_up(s_.see_rail(path.local_nic(), path.remote_nic(), tick_.now));
  }
  ProbeSight probe(uint32_t id) {
    Path& path = *s_.paths_.find(id);
    return s_.see_probe(
        path, [&] { return s_.probe_limit(path, tick_); }, tick_);
  }
  bool opens() const { return s_.opening_.under_way(); }
  void prove(uint32_t id) { s_.paths_.find(id)->prove(tick_.alive); }
  void unanswered(uint32_t id) {
    const Path& path = *s_.paths_.find(id);
    s_.note_failure(path.local_nic(), path.remote_nic(), kUnanswered);
    s_.rails_.failed(path.local_nic(), path.remote_nic(), tick_.now + s_.bounds_.bar());
  }
  void open() {
    if (const auto rail = s_.candidate(Purpose::kRescue, tick_.now))
      s_.start_opening(Purpose::kRescue, *rail, tick_);
  }

  bool peer_owes() const { return s_.opening_.peer_owes(tick_.alive, Bounds::kPromptAnswerNs); }
  bool misses_a_path() { return s_.misses_a_path(s_.activity_.misses_a_path()); }
  bool fence_waits() const { return s_.fence_waits(); }
  bool opening_waits() const { return s_.opening_waits(); }

 private:
  SenderPaths& s_;
};

void SenderPaths::choose(const Tick& tick) {
  SearchActions actions(*this, tick);
  choose_path(end_, actions);
}

void SenderPaths::search(const Tick& tick) {
  SearchActions actions(*this, tick);
  if (search_.look(actions, end_.phase(), tick.alive) == SearchAct::kFail) no_path_works();
}

void SenderPaths::no_path_works() {
  const uint64_t queued_ms = search_.queued() / kNsPerMs;
  fail(Error{ErrorCode::kAllPathsDown,
             "channel " + std::to_string(number_) + ": no path from " + context_.host + " to " +
                 peer_.name() + " has worked for " + std::to_string(context_.config.fail_bound.count()) +
                 " ms (R2CC_FAIL_BOUND_MS)" +
                 (queued_ms >= 1 ? ", the " + std::to_string(queued_ms) +
                                       " ms not counted in which its NICs' drivers were busy with other paths"
                                 : "") +
                 "; the peer process is alive. Seen: " + what_failed()});
}

// What this channel waits for is a driver call that others' calls on the same NIC are still before: as long
// as those get on, time says nothing of any path.
bool SenderPaths::is_queued(int nic, const JobPtr& job) const {
  return job && !job->done() && context_.workers->queued(nic, *job);
}

bool SenderPaths::fence_waits() const {
  if (const Path* path = paths_.find(end_.leaving())) return is_queued(path->local_nic(), path->job);
  const RetiredPaths::Destruction* destruction = paths_.retired().destruction_of(end_.leaving());
  return destruction && is_queued(destruction->nic, destruction->job);
}

bool SenderPaths::opening_waits() const {
  if (!opening_.under_way()) return false;
  if (const PathHalf* half = halves_.find(opening_.path())) return is_queued(half->local, half->job);
  const Path* path = paths_.find(opening_.path());
  return path && is_queued(path->local_nic(), path->job);
}

}  // namespace r2ccl
