// SPDX-License-Identifier: Apache-2.0
// A path that stalls for too long is probed. Only a probe that fails, or a queue pair that makes no progress
// while probes are answered, begins a migration. stall_timer.h says when what is due. Pure: `alive` is the
// service thread's clock, which does not count the thread's own pauses.
//
// A Host answers:
//   progress()         the channel's count of progress
//   polled_in_vain()   the progress thread has polled for as long as makes suspicious, and nothing has moved
//   waits()            the program waits for something that moves
//   awaited()          … or the receiver does, for what was sent
//   active(), lanes()  the paths that carry
//   probe(path)        what its probe shows
//   probe_age(path)    since it was begun
//   stands_still()     a path with something posted that a working queue pair would have completed, 0: none
//   whole_packets_pass(path, span)  on its rail data that fills a packet has passed in the last `span` ns, of
//                      any channel to that process
//   work_ns(path)      what the longest work request that is posted to it may take on a NIC that works
//   marked_failed()    an error has marked a path failed: it is left for that reason
//   still_carries(path)  nothing that was heard has ended that, or begun to
// and carries out:
//   moved()            something has moved since it was last looked
//   rests()            nobody waits, or something moved: probes of what carries are forgotten
//   look()             takes in what has come, as its owner may be asleep. False: no work request is open
//   begin_probe(path), forget_probe(path)
//   begin_full_probe(path)      the same, with a whole packet: where an MTU is too small, small packets pass
//   hear(path)                  takes in what the peer has said, before that path is left
//   leave_silent(path)          its probe has failed, or is not answered
//   leave_standing_still(path)
//   slow_peer(silence)          it has been quiet for so long, and its NIC answers: for the log
//   request_retransmit(patient)
#pragma once

#include <algorithm>
#include <cstdint>

#include "r2ccl/protocol/choice.h"
#include "r2ccl/protocol/stall_timer.h"

namespace r2ccl {

class Watchdog {
 public:
  Watchdog(uint64_t suspect_after, uint64_t stuck_after) : stall_(suspect_after, stuck_after) {}

  /// Time goes on, whether or not anybody watches.
  void tick(uint64_t alive) { stall_.tick(alive); }
  /// Another path carries.
  void carries_on(uint64_t progress) { stall_.carries_on(progress); }
  /// A path is left. `unreported`: because something that was waited for did not come, while no error told.
  void left(bool unreported, uint64_t progress) {
    if (unreported) stall_.left(progress);
  }
  /// How many were for that reason since anything arrived anywhere.
  unsigned leaves(uint64_t progress) const { return stall_.leaves(progress); }

  /// While a path is active and none is being left.
  template <class Host>
  void look(Host& host) {
    if (!silent(host) || !lanes_answer(host)) return;
    const uint32_t path = host.active();
    switch (host.probe(path)) {
      case ProbeSight::kNone:
        return host.begin_probe(path);
      case ProbeSight::kAwaited:
        return;
      case ProbeSight::kFailed:
        return leave_silent(host, path);
      case ProbeSight::kAnswered:
        return wait_on(host, path);
    }
  }

 private:
  // For so long, while something is open, that its paths are to be probed?
  template <class Host>
  bool silent(Host& host) {
    const uint64_t progress = host.progress();
    if (host.polled_in_vain()) stall_.polled_in_vain(progress);
    const bool moved = stall_.moved(progress);
    if (moved) host.moved();
    if (moved || !(host.waits() || host.awaited())) {
      host.rests();
      stall_.restart(progress);
      return false;
    }
    if (!stall_.suspicious()) return false;
    if (!host.look()) stall_.nothing_open();
    return !stall_.moved(host.progress()) && !host.marked_failed();
  }

  // False: one is being left.
  template <class Host>
  bool lanes_answer(Host& host) {
    for (const uint32_t lane : host.lanes()) {
      switch (host.probe(lane)) {
        case ProbeSight::kNone:
          host.begin_probe(lane);
          break;
        case ProbeSight::kAwaited:
          break;
        case ProbeSight::kAnswered:
          if (host.probe_age(lane) <= StallTimer::kLongestProbePauseNs) break;
          host.forget_probe(lane);
          host.begin_full_probe(lane);
          break;
        case ProbeSight::kFailed:
          leave_silent(host, lane);
          return false;
      }
    }
    return true;
  }

  // Silent, and its probe is not answered. A peer that has closed has said so before its queue pairs went,
  // and one that has left the path, too.
  template <class Host>
  static void leave_silent(Host& host, uint32_t path) {
    host.hear(path);
    if (host.still_carries(path)) host.leave_silent(path);
  }

  // Silent, and its probe is answered.
  template <class Host>
  void wait_on(Host& host, uint32_t path) {
    stall_.answered();
    if (stall_.slow_peer()) host.slow_peer(stall_.silence());
    if (stall_.request_retransmit_due()) host.request_retransmit(stall_.patient());
    if (const uint32_t still = stall_.stuck() ? host.stands_still() : 0;
        still != 0 && stall_.stuck(host.work_ns(still))) {
      stall_.left_standing_still();
      host.leave_standing_still(still);
    } else if (stall_.probe_due()) {
      host.forget_probe(path);
      if (needs_whole_probe(host, path)) {
        host.begin_full_probe(path);
      } else {
        host.begin_probe(path);
      }
    }
  }

  // Where many channels share a slow NIC all of them stall for a while, and a whole packet of each would take
  // a large part of what it carries. Data of another channel that has just passed on the rail proves the
  // same. But a long stall may be that of this channel's way through the network alone.
  template <class Host>
  bool needs_whole_probe(Host& host, uint32_t path) const {
    return stall_.silence() > StallTimer::kLongestProbePauseNs ||
           !host.whole_packets_pass(path, std::min(stall_.looked_for(), kStillPassesNs));
  }

  // What has passed longer ago does not show that whole packets pass now.
  static constexpr uint64_t kStillPassesNs = 20'000'000;
  StallTimer stall_;
};

}  // namespace r2ccl
