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
  CallSight fence_call() const { return s_.fence_call(); }
  CallSight opening_call() const { return s_.opening_call(); }

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
                 peer_.name() + " has worked for " + std::to_string(context_.config.no_path_bound().count()) +
                 " ms (R2CC_FAIL_BOUND_MS)" +
                 (queued_ms >= 1 ? ", the " + std::to_string(queued_ms) +
                                       " ms not counted in which its NICs' drivers were busy with other paths"
                                 : "") +
                 "; the peer process is alive. Seen: " + what_failed()});
}

CallSight SenderPaths::see_call(int nic, const JobPtr& job) const {
  CallSight seen;
  if (!job) return seen;
  seen.given = true;
  seen.done = job->done();
  seen.queued = context_.workers->queued(nic, *job);
  return seen;
}

// On a path that was given up before, its destruction.
CallSight SenderPaths::fence_call() const {
  if (const Path* path = paths_.find(end_.leaving())) return see_call(path->local_nic(), path->job);
  const RetiredPaths::Destruction* destruction = paths_.retired().destruction_of(end_.leaving());
  return destruction ? see_call(destruction->nic, destruction->job) : CallSight();
}

// A half that is being made is no path yet.
CallSight SenderPaths::opening_call() const {
  if (const PathHalf* half = halves_.find(opening_.path())) return see_call(half->local, half->job);
  const Path* path = paths_.find(opening_.path());
  return path ? see_call(path->local_nic(), path->job) : CallSight();
}

}  // namespace r2ccl
