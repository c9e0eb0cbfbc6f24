// SPDX-License-Identifier: Apache-2.0
// Which path the sender takes when what it left is fenced: the destination of a planned migration, the active
// path where a lane was left, else a path whose probe is answered, else a new one. Written once, for the
// channel and for the exploration. Pure.
//
// A Host, besides what channel_end.h asks of it, answers:
//   usable(path)              nothing is known to be the matter with its NICs
//   probe(path)               what its probe shows
//   opens()                   a path is being opened
// and carries out:
//   prove(path)               probes it with a whole packet
//   unanswered(path)          notes that it failed
//   open()                    begins to open another one, where there is any
#pragma once

#include <cstdint>

#include "r2ccl/protocol/channel_end.h"

namespace r2ccl {

enum class ProbeSight : uint8_t {
  kNone,      ///< it is not probed
  kAwaited,   ///< there is time left for the answer
  kAnswered,  ///< after what was left had been fenced, or since
  kFailed,    ///< or not answered in time
};

/// Of a probe that is under way: its age and what it may take, in nanoseconds.
constexpr ProbeSight awaits(uint64_t age, uint64_t limit) {
  return age <= limit ? ProbeSight::kAwaited : ProbeSight::kFailed;
}

/// … something is to be posted behind it, once. One of its packets may be lost, and its queue pair sends that
/// again only after its Local ACK Timeout, which is much longer. But a packet behind a lost one shows the gap
/// at once: the responder asks for a request that is missing (NAK of a sequence error), and an ACK beyond a
/// READ tells the requester that its answer is (implied NAK; IBTA volume 1, chapter 9.7).
constexpr bool wants_push(uint64_t age, uint64_t limit) { return age > limit / 2; }
/// … also while nobody asks for the answer: a stall may end before that time is over, and the next one would
/// find the probe as it was. Of a path that is being opened only the opening knows the limit, and it asks.
constexpr bool wants_push_unasked(PathState state, uint64_t age, uint64_t limit) {
  return (is_in_use(state) || may_take_over(state)) && wants_push(age, limit);
}

enum class Choice : uint8_t {
  kUse,   ///< a path carries
  kWait,  ///< for the answer to a probe
  kOpen,  ///< no path is left: one is being opened, or there is none to open
};

/// It could take over at once, and waits for nothing else. `kept`: it is on probation, for the way home.
constexpr bool stands_by(PathState state, bool kept) { return state == PathState::kStandby && !kept; }

/// An answer that comes when a path carries again was asked for before that one was chosen, and says nothing
/// of the next choice. `kept`: the path is kept for a move, which asks of its own accord.
constexpr bool is_stale(bool sender, Phase phase, PathState state, bool kept) {
  return sender && phase == Phase::kRunning && state == PathState::kStandby && !kept;
}

/// `end`: the sender's. In kChoosing only there is anything to choose.
template <class Host>
Choice choose_path(MigrationEnd& end, Host& host) {
  if (end.phase() != Phase::kChoosing) return Choice::kWait;
  ChannelEnd channel_end(end, host);
  if (const uint32_t path = channel_end.destination(host.active()); path != 0) {
    channel_end.use(path);
    return Choice::kUse;
  }
  bool waits = false;
  for (const uint32_t path : host.paths()) {
    const auto state = host.state(path);
    if (!state || !may_take_over(*state) || host.marked_failed(path)) continue;
    const bool lane = state == PathState::kLane;
    if (!host.usable(path)) {  // a lane is left later: what it carries is to be fenced
      if (!lane) host.drop(path, true);
      continue;
    }
    switch (host.probe(path)) {
      case ProbeSight::kAnswered:
        channel_end.use(path);
        return Choice::kUse;
      case ProbeSight::kNone:
        host.prove(path);
        waits = true;
        break;
      case ProbeSight::kAwaited:
        waits = true;
        break;
      case ProbeSight::kFailed:
        host.unanswered(path);
        if (lane)
          channel_end.mark_failed(path);
        else
          host.drop(path, true);
        break;
    }
  }
  if (waits) return Choice::kWait;
  if (!host.opens()) host.open();
  return Choice::kOpen;
}

}  // namespace r2ccl
