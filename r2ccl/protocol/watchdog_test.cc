// SPDX-License-Identifier: Apache-2.0
// Watchdog: what silence leads to. (stall_timer_test.cc has the times one by one.)
#include "r2ccl/protocol/watchdog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSuspect = 20 * kMs, kStuck = 400 * kMs;

/// A channel whose active path is number 1, in a process that looks each millisecond.
struct World {
  Watchdog watchdog{kSuspect, kStuck};
  uint64_t alive = 1000 * kMs;
  uint64_t count = 0;
  bool waiting = true, peer_waits = false, work_open = true, failed = false, vain = false;
  uint64_t comes_when_looked = 0;
  std::vector<uint32_t> other;
  uint32_t still = 0;
  std::map<uint32_t, uint64_t> work;
  std::map<uint32_t, ProbeSight> answers;  // what a probe of this path will show
  std::map<uint32_t, uint64_t> probed_at;
  int probes = 0, full_probes = 0, looks = 0, rested = 0, had_room = 0;
  int probed_twice = 0;  // while the last probe was there
  std::vector<uint32_t> left_silent, left_still;
  std::vector<uint64_t> told_slow;
  std::vector<bool> requests;

  uint64_t progress() const { return count; }
  bool polled_in_vain() const { return vain; }
  bool waits() const { return waiting; }
  bool awaited() const { return peer_waits; }
  uint32_t active() const { return 1; }
  const std::vector<uint32_t>& lanes() const { return other; }
  ProbeSight probe(uint32_t path) const {
    return probed_at.count(path) ? answers.at(path) : ProbeSight::kNone;
  }
  uint64_t probe_age(uint32_t path) const { return alive - probed_at.at(path); }
  bool whole_packets_pass(uint32_t path, uint64_t span) const {
    const auto at = whole_packets_at.find(path);
    return at != whole_packets_at.end() && alive - at->second < span;
  }
  std::map<uint32_t, uint64_t> whole_packets_at;  // on its rail, of another channel
  uint32_t stands_still() const { return still; }
  uint64_t work_ns(uint32_t path) const { return work.count(path) ? work.at(path) : 0; }
  bool marked_failed() const { return failed; }
  void moved() { ++had_room; }
  void rests() {
    ++rested;
    probed_at.clear();
  }
  bool look() {
    ++looks;
    count += std::exchange(comes_when_looked, 0);
    return work_open;
  }
  void begin_probe(uint32_t path) {
    ++probes;
    probed_twice += probed_at.count(path) != 0;
    probed_at[path] = alive;
  }
  void begin_full_probe(uint32_t path) {
    ++full_probes;
    begin_probe(path);
  }
  void forget_probe(uint32_t path) { probed_at.erase(path); }
  void hear(uint32_t path) {
    heard.push_back(path);
    EXPECT_EQ(std::count(left_silent.begin(), left_silent.end(), path), 0) << "before it is left";
    carries = carries && !closes_when_heard;
  }
  bool still_carries(uint32_t) const { return carries; }
  void leave_silent(uint32_t path) { left_silent.push_back(path); }
  std::vector<uint32_t> heard;
  bool carries = true, closes_when_heard = false;
  void leave_standing_still(uint32_t path) { left_still.push_back(path); }
  void slow_peer(uint64_t silence) { told_slow.push_back(silence); }
  void request_retransmit(bool patient) { requests.push_back(patient); }

  bool acted() const { return !left_silent.empty() || !left_still.empty(); }
  /// For so many milliseconds, or until a path is left; how many there were.
  uint64_t goes_on(uint64_t for_ms) {
    for (uint64_t ms = 1; ms <= for_ms; ++ms) {
      watchdog.tick(alive += kMs);
      watchdog.look(*this);
      if (acted()) return ms;
    }
    return for_ms;
  }
};

TEST(Watchdog, while_things_move_nothing_is_probed) {
  World w;
  for (int i = 0; i < 1000; ++i) {
    ++w.count;
    w.goes_on(10);
  }
  EXPECT_EQ(w.probes, 0);
  EXPECT_GE(w.had_room, 1000);
}

TEST(Watchdog, while_nobody_waits_nothing_is_probed) {
  World w;
  w.waiting = false;
  w.goes_on(60'000);
  EXPECT_EQ(w.probes, 0);
}

TEST(Watchdog, while_the_receiver_waits_it_is_as_if_the_program_did) {
  World w;
  w.waiting = false;
  w.peer_waits = true;
  w.answers[1] = ProbeSight::kAwaited;
  w.goes_on(kSuspect / kMs + 1);
  EXPECT_EQ(w.probes, 1);
}

TEST(Watchdog, what_moves_begins_the_silence_anew_and_forgets_probes) {
  World w;
  w.answers[1] = ProbeSight::kAwaited;
  w.goes_on(kSuspect / kMs + 1);
  ASSERT_EQ(w.probes, 1);
  ++w.count;
  w.goes_on(1);
  EXPECT_EQ(w.rested, 1);
  EXPECT_TRUE(w.probed_at.empty());
  w.goes_on(kSuspect / kMs - 1);
  EXPECT_EQ(w.probes, 1);
  w.goes_on(60);  // silences of this length are usual by now
  EXPECT_EQ(w.probes, 2);
}

TEST(Watchdog, another_path_that_carries_begins_without_silence) {
  World w;
  w.answers[1] = ProbeSight::kAwaited;
  w.goes_on(kSuspect / kMs - 2);
  w.watchdog.carries_on(w.count);
  w.goes_on(kSuspect / kMs - 1);
  EXPECT_EQ(w.probes, 0);
  w.goes_on(2);
  EXPECT_EQ(w.probes, 1);
}

TEST(Watchdog, counts_the_paths_left_while_nothing_arrives) {
  World w;
  EXPECT_EQ(w.watchdog.leaves(w.count), 0u);
  w.watchdog.left(true, w.count);
  w.watchdog.left(false, w.count);
  EXPECT_EQ(w.watchdog.leaves(w.count), 1u) << "of an error nobody says that it came early";
  w.watchdog.left(true, w.count);
  EXPECT_EQ(w.watchdog.leaves(w.count), 2u);
  EXPECT_EQ(w.watchdog.leaves(w.count + 1), 0u);
}

TEST(Watchdog, silence_leads_to_a_probe_and_a_failed_probe_to_a_migration) {
  World w;
  w.answers[1] = ProbeSight::kAwaited;
  w.goes_on(kSuspect / kMs - 1);
  EXPECT_EQ(w.probes, 0);
  w.goes_on(2);
  EXPECT_EQ(w.probes, 1);
  w.goes_on(1000);
  EXPECT_EQ(w.probes, 1) << "one at a time";
  EXPECT_FALSE(w.acted());
  w.answers[1] = ProbeSight::kFailed;
  EXPECT_EQ(w.goes_on(10), 1u);
  EXPECT_EQ(w.left_silent, std::vector<uint32_t>{1});
}

TEST(Watchdog, before_a_path_is_left_the_peer_is_heard_which_may_have_closed) {
  for (const uint32_t silent : {1u, 2u})
    for (const bool closes : {false, true}) {
      World w;
      w.other = {2};
      w.answers = {{1, ProbeSight::kAnswered}, {2, ProbeSight::kAnswered}};
      w.answers[silent] = ProbeSight::kFailed;
      w.closes_when_heard = closes;
      for (int i = 0; i < 100 && w.heard.empty(); ++i) w.goes_on(1);
      EXPECT_EQ(w.heard, std::vector<uint32_t>{silent});
      EXPECT_EQ(w.left_silent, closes ? std::vector<uint32_t>() : std::vector<uint32_t>{silent});
    }
}

TEST(Watchdog, what_comes_when_somebody_looks_ends_the_silence) {
  World w;
  w.comes_when_looked = 1;
  w.goes_on(kSuspect / kMs + 5);
  EXPECT_GE(w.looks, 1);
  EXPECT_EQ(w.probes, 0);
}

TEST(Watchdog, a_path_that_an_error_has_marked_is_not_probed) {
  World w;
  w.failed = true;
  w.goes_on(1000);
  EXPECT_EQ(w.probes, 0);
}

TEST(Watchdog, a_peer_that_answers_probes_is_waited_for_and_asked) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.work_open = false;  // it owes us: no queue pair of ours has anything to do
  w.goes_on(20'000);
  EXPECT_FALSE(w.acted());
  EXPECT_GE(w.probes, 100) << "again and again";
  EXPECT_LE(w.probes, 400) << "at a growing distance";
  ASSERT_EQ(w.told_slow.size(), 1u) << "once";
  EXPECT_NEAR(double(w.told_slow[0]), double(StallTimer::kSlowPeerNs), double(2 * kMs));
  ASSERT_FALSE(w.requests.empty());
  EXPECT_EQ(w.probed_twice, 0);
  EXPECT_EQ(w.had_room, 0) << "nothing moves";
  EXPECT_LE(int(w.requests.size()), w.probes + 1) << "with each probe";
  EXPECT_FALSE(w.requests.front());
  EXPECT_TRUE(w.requests.back()) << "after long everything is asked for";
}

TEST(Watchdog, a_queue_pair_that_stands_still_while_probes_pass_is_left) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.still = 1;
  EXPECT_NEAR(double(w.goes_on(60'000)), double(kStuck / kMs), 3);
  EXPECT_EQ(w.left_still, std::vector<uint32_t>{1});
  EXPECT_TRUE(w.left_silent.empty());
}

TEST(Watchdog, a_queue_pair_with_long_work_is_waited_for_as_long_as_that_may_take) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.still = 1;
  w.work = {{1, 3000 * kMs}, {2, 9000 * kMs}};
  EXPECT_NEAR(double(w.goes_on(60'000)), double(kStuck / kMs + 3000), 3);
  EXPECT_EQ(w.left_still, std::vector<uint32_t>{1});
}

TEST(Watchdog, a_lane_that_stands_still_is_the_one_that_is_left) {
  World w;
  w.other = {2};
  w.answers = {{1, ProbeSight::kAnswered}, {2, ProbeSight::kAnswered}};
  w.still = 2;
  w.goes_on(60'000);
  EXPECT_EQ(w.left_still, std::vector<uint32_t>{2});
}

TEST(Watchdog, the_next_queue_pair_that_stands_still_is_waited_for_twice_as_long) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.still = 1;
  const uint64_t first = w.goes_on(60'000);
  w.left_still.clear();
  w.watchdog.carries_on(w.count);
  EXPECT_NEAR(double(w.goes_on(60'000)), double(2 * first), 5);
}

TEST(Watchdog, a_queue_pair_that_has_had_nothing_to_do_does_not_stand_still) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.still = 1;
  w.work_open = false;
  w.goes_on(20'000);
  EXPECT_FALSE(w.acted());
}

TEST(Watchdog, behind_an_answer_the_next_probe_is_a_whole_packet) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.goes_on(2000);
  EXPECT_GT(w.probes, 2);
  EXPECT_EQ(w.full_probes, w.probes - 1);
  ++w.count;  // something moves: the next stall begins with a small one
  w.goes_on(2);
  const int full = w.full_probes, all = w.probes;
  w.answers[1] = ProbeSight::kAwaited;
  w.goes_on(2000);
  EXPECT_EQ(w.probes, all + 1);
  EXPECT_EQ(w.full_probes, full);
}

// 16 channels share a NIC on which a message takes 60 ms, and one of them is done every 4 ms.
TEST(Watchdog, while_whole_packets_of_others_pass_it_asks_with_small_ones) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  for (int message = 0; message < 50; ++message) {
    for (int ms = 0; ms < 60; ms += 4) {
      w.whole_packets_at[1] = w.alive;
      w.goes_on(4);
    }
    ++w.count;
  }
  EXPECT_GE(w.probes, 100);
  EXPECT_EQ(w.full_probes, 0);
}

TEST(Watchdog, what_has_passed_before_the_stall_proves_nothing) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.goes_on(1);
  w.whole_packets_at[1] = w.alive - kMs;
  w.goes_on(kSuspect / kMs + StallTimer::kFirstProbePauseNs / kMs + 2);
  EXPECT_EQ(w.full_probes, 1);
}

// While all is well the service thread looks each 100 ms, and its clock counts 2 ms of them.
TEST(Watchdog, what_has_passed_before_the_progress_thread_asked_for_help_proves_nothing) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.goes_on(1);
  w.whole_packets_at[1] = w.alive;
  w.goes_on(1);
  ++w.count;
  w.vain = true;
  w.goes_on(StallTimer::kFirstProbePauseNs / kMs + 2);
  EXPECT_EQ(w.full_probes, 1);
}

// Whole packets of all channels vanish 2 ms after this one has stalled: the last ones passed behind that.
TEST(Watchdog, what_passed_when_the_stall_began_and_no_longer_proves_nothing) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  w.goes_on(2);
  w.whole_packets_at[1] = w.alive;
  w.goes_on((kSuspect + StallTimer::kFirstProbePauseNs) / kMs + 2);
  EXPECT_EQ(w.full_probes, 1);
}

TEST(Watchdog, a_long_stall_is_asked_about_with_whole_packets_whatever_others_do) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  for (int ms = 0; ms < 100; ++ms) {
    w.whole_packets_at[1] = w.alive;
    w.goes_on(1);
  }
  EXPECT_EQ(w.full_probes, 0);
  for (int ms = 0; ms < 250; ++ms) {
    w.whole_packets_at[1] = w.alive;
    w.goes_on(1);
  }
  EXPECT_GE(w.full_probes, 1) << "small packets pass";
}

TEST(Watchdog, the_first_whole_packet_of_a_long_stall_is_not_late) {
  World w;
  w.answers[1] = ProbeSight::kAnswered;
  uint64_t ms = 0;
  for (; ms < 300 && w.full_probes == 0; ++ms) {
    w.whole_packets_at[1] = w.alive;
    w.goes_on(1);
  }
  EXPECT_GT(ms, 100u);
  EXPECT_LT(ms, 170u);
}

TEST(Watchdog, a_lane_that_does_not_answer_is_left_and_the_active_path_is_not_asked) {
  World w;
  w.other = {2, 3};
  w.answers = {{1, ProbeSight::kFailed}, {2, ProbeSight::kAnswered}, {3, ProbeSight::kFailed}};
  w.goes_on(1000);
  EXPECT_EQ(w.left_silent, std::vector<uint32_t>{3});
}

TEST(Watchdog, lanes_are_probed_again_after_the_longest_pause) {
  World w;
  w.other = {2};
  w.answers = {{1, ProbeSight::kAwaited}, {2, ProbeSight::kAnswered}};
  w.goes_on(kSuspect / kMs + 2);
  EXPECT_EQ(w.probes, 2);
  EXPECT_EQ(w.full_probes, 0);
  w.goes_on(StallTimer::kLongestProbePauseNs / kMs + 2);
  EXPECT_EQ(w.probes, 3) << "the lane alone: the active path's probe is on its way";
  EXPECT_EQ(w.full_probes, 1) << "small packets pass";
  EXPECT_EQ(w.probed_twice, 0);
}

TEST(Watchdog, what_the_progress_thread_has_polled_for_counts_at_once) {
  World w;
  w.answers[1] = ProbeSight::kAwaited;
  w.vain = true;
  w.goes_on(1);
  EXPECT_EQ(w.probes, 1);
}

// A channel comes to be when its process has run for long.
TEST(Watchdog, the_time_before_its_first_look_is_nobodys_silence) {
  World w;
  w.alive = 3'600'000 * kMs;
  w.still = 1;
  w.answers[1] = ProbeSight::kAnswered;
  w.goes_on(kSuspect / kMs - 1);
  EXPECT_EQ(w.probes, 0);
  EXPECT_TRUE(w.told_slow.empty());
  EXPECT_FALSE(w.acted());
}

}  // namespace
}  // namespace r2ccl
