// SPDX-License-Identifier: Apache-2.0
// What one step does to the world: NICs, the application, and what carries the protocol's decisions out, as
// Channel does it in a job. It decides nothing of the protocol.
#pragma once

#include "r2ccl/protocol/choice.h"
#include "r2ccl/protocol/closing.h"
#include "r2ccl/tests/model/world.h"

namespace r2ccl::model {

class Model::Executor {
 public:
  Executor(const Bounds& bounds, Rule without, World& world) : bounds_(bounds), without_(without), w(world) {}

  // --- questions ---
  Link& link(int path) { return w.link[size_t(path - 1)]; }
  Half& half(int end, int path) { return link(path).half[end]; }
  bool holds(Rule rule) const { return without_ != rule; }
  bool running(int end) const { return w.end(end).phase() == Phase::kRunning; }
  int in_life(int end, Life life);  ///< the first such path, 0: none
  int active(int end) { return in_life(end, Life::kActive); }
  bool carries(int end, int path);
  bool strict() const { return holds(Rule::kStrictAck) && !bounds_.copies; }
  bool kept(int message) const { return model::kept(bounds_, without_, w, uint64_t(message)); }
  bool suspected(int end);  ///< a path that carries is marked failed: nothing is posted
  int lanes(int end);       ///< how many there are
  bool open_messages(int end) const;
  bool may_open();
  bool search_fails();  ///< of a sender without a path, when the bound is over
  bool may_post();
  bool may_receive();
  bool may_confirm();
  bool may_deliver(int path);
  bool may_acknowledge(int path);
  bool may_land(int path);
  bool may_query_ack();
  bool may_request_retransmit();
  bool may_poll(int end, int path);
  bool may_start_lane(int path);
  bool may_rest(int path);
  bool stands_still(int path);
  bool all_broken() const;
  bool is_open(int end) const { return !w.failed[end] && !w.closed[end]; }
  /// … and so is the other end: it may migrate.
  bool goes_on(int end) const { return is_open(end) && !w.peer_closed[end]; }
  bool may_close(int end) const;
  bool settles() const { return w.closes[kSender] && is_open(kSender); }
  bool may_ask_at_end();
  bool may_leave_for_nic();
  bool nothing_is_sent();
  bool lacks(int end) const;  ///< what does not come any more

  // --- the application and the data path ---
  /// `on`: the path of each segment; a broken one may refuse.
  void post(const std::array<uint8_t, kSegmentsInAll>& on, bool refused);
  void receive();
  void confirm();
  void poll(int end, int path);
  // Each waits until the watchdog says so.
  void query_ack();
  void request_retransmit();
  void notice(int end, int path);
  void leave_standing_still(int path);

  // --- the NIC ---
  void deliver(int path, bool mute);
  void deliver_stale(int path);
  void acknowledge(int path, bool mute);
  void land(int path, bool vanish);

  // --- the end ---
  void close(int end);
  void ask_at_end();
  void settled();
  void leave_for_nic();
  void give_up_lacking(int end);

  // --- migration ---
  void leave(int end, int path, int target = 0);
  /// `pretends`, of a device that is going: it says that it carries commands out.
  void look_at_fence(int end, bool pretends);
  void stopped_by_kernel(int end, int path);
  void give_fence_up();
  /// The sender chooses; the probe of path `answered` is answered, 0: none is. `pick`: which paths the
  /// replayed segments go over.
  Choice choose(int answered, unsigned pick);
  /// The last choose() has given a path up or opened one.
  bool changed() const { return changed_; }
  unsigned picks() const { return picks_; }  ///< how many values of `pick` the last choose() told apart
  std::array<uint8_t, kSegmentsInAll> picked() const { return picked_; }
  void path_failed(int end, int path);
  void nic_lost(int end, int nic);
  void start_lane(int path);
  void rest_lane(int path);
  void open();
  void drop(int end, int path, bool tell);
  void hear(int end, Control message);
  void fail(int end, bool excused);

  /// After every step: what the application notices at once; and one form for states that are alike.
  void settle();

 private:
  struct Actions;
  struct SearchActions;
  struct WatchActions;
  SettleSight see_settling();
  void look_at_closing(int end);
  void begin_closing(int end);
  void leave_paths(int end);
  struct Messages;
  void violate(const char* what) {
    if (!w.violation) w.violation = what;
  }
  int messages() const { return bounds_.messages; }
  int index_of(int message, int segment) const { return message * bounds_.segments + segment; }
  uint8_t bits(int message) const {
    return uint8_t(((1u << bounds_.segments) - 1) << (message * bounds_.segments));
  }
  int message_of(int index) const { return index / bounds_.segments; }
  static int nth(const Link& link, int n) { return int(link.queue >> 4 * n & 0xf); }
  void put(int index, int path, bool refused);
  void arrive(int index);
  void land_in_memory(int index);
  void write(Link& link, uint8_t what);
  void say(int to, const Control& message);
  void start_fence(int end, int path);
  void fence_given_up(int end, int path);
  bool look(FenceClock& clock, int end, uint64_t alive, const FenceSight& seen);
  void look_at_removal(int end, int path, bool removed);
  void finish_fence(int end, bool cannot = false);
  void send_fenced(int end, bool stopped);
  void activate(int end, int path);
  template <typename Wanted>
  bool watch(WatchActions& host, Wanted&& wanted);
  void release();
  void moved() { w.asked = w.requested = 0; }

  const Bounds& bounds_;
  Rule without_;
  World& w;
  unsigned pick_ = 0, picks_ = 1;
  bool changed_ = false;
  std::array<uint8_t, kSegmentsInAll> picked_{};
};

/// A queue pair in that state takes in what comes.
inline bool takes_in(Pair pair) { return pair == Pair::kReady || pair == Pair::kError; }
inline uint8_t line(int message, int received) { return uint8_t((message + 1) << 4 | received); }
inline uint8_t word(int received) { return uint8_t(received); }

}  // namespace r2ccl::model
