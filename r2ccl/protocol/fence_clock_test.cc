// SPDX-License-Identifier: Apache-2.0
// FenceClock: what is seen of a path that is left, and for how long, against what is done.
#include "r2ccl/protocol/fence.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace r2ccl {
namespace {

constexpr uint64_t kBegin = 1'000, kBound = 100, kShare = kBound / FenceClock::kFlushShare, kRemoval = 700;

/// Without one of the rules, or with all.
struct Host {
  Rule without = Rule::kNone;
  bool holds(Rule rule) const { return rule != without; }
};

FenceClock begun(bool sender, uint64_t delay = 0) {
  FenceClock clock(sender, kBound, kRemoval, delay);
  clock.begin(kBegin);
  return clock;
}

struct Look {
  uint64_t after;  ///< the beginning
  FenceSight seen;
  FenceAct act;
  NoFence why = NoFence::kNone;
};
struct Case {
  const char* name;
  bool sender;
  std::vector<Look> looks;
  Rule without = Rule::kNone;
};

constexpr FenceSight kInHand{.worker_busy = true}, kStuck{.worker_busy = true, .stuck = true}, kNothing{},
    kFlushed{.flushed = true}, kEmpty{.empty = true}, kMute{.empty = true, .mute = true},
    kDestroyed{.empty = true, .destroyed = true},
    kDestroyedByFailed{.empty = true, .destroyed = true, .failed = true},
    kRefused{.empty = true, .refused = true}, kRefusedByFailed{.refused = true, .failed = true},
    kSilentFailed{.empty = true, .failed = true}, kGiven{.given_up = true},
    kGivenInHand{.given_up = true, .worker_busy = true},
    kGivenStuck{.given_up = true, .worker_busy = true, .stuck = true},
    kGivenRefused{.given_up = true, .refused = true}, kGivenFailed{.given_up = true, .failed = true};

const Case kCases[] = {
    {"sentinels_are_back", true, {{0, kNothing, FenceAct::kWait}, {1, kFlushed, FenceAct::kDone}}},
    {"flushes_count_whatever_the_driver_says",
     true,
     {{1, {.flushed = true, .refused = true, .failed = true}, FenceAct::kDone}}},
    {"a_call_that_is_not_stuck_may_take_any_time",
     true,
     {{1, kInHand, FenceAct::kWait}, {100 * kBound, kInHand, FenceAct::kWait}}},
    {"a_stuck_call_has_the_bound_sender",
     true,
     {{kBound, kStuck, FenceAct::kWait}, {kBound + 1, kStuck, FenceAct::kCannot, NoFence::kDriverKeepsCall}}},
    {"a_stuck_call_has_the_bound_receiver",
     false,
     {{kBound, kStuck, FenceAct::kWait},
      {kBound + 1, kStuck, FenceAct::kUnfenceable, NoFence::kDriverKeepsCall}}},
    {"silence_begins_when_the_driver_has_returned",
     true,
     {{0, kEmpty, FenceAct::kWait},
      {50, kInHand, FenceAct::kWait},
      {60, kEmpty, FenceAct::kWait},
      {60 + kShare, kEmpty, FenceAct::kWait},
      {61 + kShare, kEmpty, FenceAct::kDestroy}}},
    {"what_is_there_is_read_before_silence_counts",
     true,
     {{10, kNothing, FenceAct::kWait}, {10 * kBound, kNothing, FenceAct::kWait}}},
    {"a_queue_that_is_known_to_be_mute_is_not_waited_for", true, {{0, kMute, FenceAct::kDestroy}}},
    {"nothing_comes_from_a_device_that_has_failed",
     false,
     {{0, kSilentFailed, FenceAct::kWait},
      {kShare + 1, kSilentFailed, FenceAct::kCannot, NoFence::kNoFlushesByFailed}}},
    {"destroyed_counts_a_share_later",
     false,
     {{5, kDestroyed, FenceAct::kWait},
      {4 + kShare, kDestroyed, FenceAct::kWait},
      {5 + kShare, kDestroyed, FenceAct::kDone}}},
    {"destroyed_by_a_device_that_fails_meanwhile_does_not",
     false,
     {{5, kDestroyed, FenceAct::kWait},
      {5 + kShare, kDestroyedByFailed, FenceAct::kCannot, NoFence::kDestroyedByFailed}}},
    {"refused_by_a_device_that_has_failed",
     false,
     {{0, kRefusedByFailed, FenceAct::kCannot, NoFence::kRefusedByFailed}}},
    {"refused_by_one_that_works_has_the_bound_sender",
     true,
     {{7, kRefused, FenceAct::kWait},
      {7 + kBound, kRefused, FenceAct::kWait},
      {8 + kBound, kRefused, FenceAct::kCannot, NoFence::kNoFlushesAndRefused}}},
    {"refused_by_one_that_works_has_the_bound_receiver",
     false,
     {{7, kRefused, FenceAct::kWait},
      {8 + kBound, kRefused, FenceAct::kUnfenceable, NoFence::kNoFlushesAndRefused}}},
    {"refused_and_flushed_after_all",
     false,
     {{7, kRefused, FenceAct::kWait}, {9, kFlushed, FenceAct::kDone}}},
    {"given_up_and_destroyed", true, {{0, kGivenInHand, FenceAct::kWait}, {1, kGiven, FenceAct::kDone}}},
    {"given_up_and_stuck_sender",
     true,
     {{kBound, kGivenStuck, FenceAct::kWait},
      {kBound + 1, kGivenStuck, FenceAct::kCannot, NoFence::kDriverKeepsCall}}},
    {"given_up_and_stuck_receiver",
     false,
     {{kBound + 1, kGivenStuck, FenceAct::kUnfenceable, NoFence::kDriverKeepsCall}}},
    {"given_up_and_refused_sender",
     true,
     {{kBound, kGivenRefused, FenceAct::kWait},
      {kBound + 1, kGivenRefused, FenceAct::kCannot, NoFence::kNoFlushesAndRefused}}},
    {"given_up_and_refused_receiver",
     false,
     {{kBound + 1, kGivenRefused, FenceAct::kUnfenceable, NoFence::kNoFlushesAndRefused}}},
    {"given_up_on_a_device_that_has_failed",
     false,
     {{0, kGivenFailed, FenceAct::kCannot, NoFence::kRefusedByFailed}}},
    {"without_one_fence_a_sender_needs_its_own",
     true,
     {{kBound + 1, kStuck, FenceAct::kUnfenceable, NoFence::kDriverKeepsCall}},
     Rule::kOneFence},
    {"without_one_fence_so_does_one_whose_device_has_failed",
     true,
     {{0, kRefusedByFailed, FenceAct::kUnfenceable, NoFence::kRefusedByFailed}},
     Rule::kOneFence},
    {"without_one_fence_a_receivers_is_what_it_was",
     false,
     {{0, kRefusedByFailed, FenceAct::kCannot, NoFence::kRefusedByFailed}},
     Rule::kOneFence},
    {"without_refused_not_fenced", true, {{0, kRefusedByFailed, FenceAct::kDone}}, Rule::kRefusedNotFenced},
    {"without_sender_sentinel", true, {{0, kNothing, FenceAct::kDone}}, Rule::kSenderSentinel},
    {"without_receiver_sentinel", false, {{0, kNothing, FenceAct::kDone}}, Rule::kReceiverSentinel},
    {"the_sender_does_not_ask_for_the_receivers_rule",
     true,
     {{0, kNothing, FenceAct::kWait}},
     Rule::kReceiverSentinel},
};

class Looks : public ::testing::TestWithParam<Case> {};
TEST_P(Looks, lead_to) {
  const Case& c = GetParam();
  FenceClock clock = begun(c.sender);
  for (const Look& look : c.looks) {
    const FenceStep step = clock.look(Host{c.without}, kBegin + look.after, look.seen);
    EXPECT_EQ(int(step.act), int(look.act)) << "after " << look.after;
    EXPECT_EQ(int(step.why), int(look.why)) << "after " << look.after;
  }
}
INSTANTIATE_TEST_SUITE_P(FenceClock, Looks, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FenceClock, nothing_is_looked_at_before_the_delay) {
  EXPECT_TRUE(begun(true).may_look(kBegin));
  const FenceClock late = begun(true, 30);
  EXPECT_FALSE(late.may_look(kBegin + 29));
  EXPECT_TRUE(late.may_look(kBegin + 30));
}

TEST(FenceClock, says_how_long_nothing_has_come) {
  FenceClock clock = begun(true);
  EXPECT_EQ(clock.silence(kBegin + 9), 0u);
  (void)clock.look(Host{}, kBegin + 10, kEmpty);
  EXPECT_EQ(clock.silence(kBegin + 14), 4u);
  (void)clock.look(Host{}, kBegin + 15, kInHand);
  EXPECT_EQ(clock.silence(kBegin + 16), 0u);
}

TEST(FenceClock, another_fence_begins_anew) {
  FenceClock clock = begun(false);
  (void)clock.look(Host{}, kBegin, kDestroyed);
  (void)clock.look(Host{}, kBegin, kEmpty);
  clock.begin(2 * kBegin);
  EXPECT_EQ(clock.silence(2 * kBegin), 0u);
  EXPECT_EQ(clock.look(Host{}, 2 * kBegin, kDestroyed).act, FenceAct::kWait);
  EXPECT_EQ(clock.look(Host{}, 2 * kBegin + kShare - 1, kDestroyed).act, FenceAct::kWait);
}

TEST(FenceClock, a_path_that_was_given_up_is_stopped_if_it_is_there) {
  FenceClock clock(true, kBound, kRemoval);
  EXPECT_EQ(clock.begin_given_up(Host{}, kBegin, true), FenceAct::kStop);
  EXPECT_EQ(clock.begin_given_up(Host{}, kBegin, false), FenceAct::kWait);
  EXPECT_EQ(clock.begin_given_up(Host{Rule::kGivenUpFence}, kBegin, true), FenceAct::kDone);
  EXPECT_EQ(clock.look(Host{}, kBegin + kBound, kGivenStuck).act, FenceAct::kWait) << "it has the bound anew";
}

TEST(FenceClock, only_the_kernels_word_stops_a_device_that_is_removed) {
  const FenceClock clock = begun(true);
  struct Removal {
    bool removed;
    FenceSight seen;
    FenceAct act;
  };
  const Removal removals[] = {
      {false, kRefusedByFailed, FenceAct::kWait}, {false, kNothing, FenceAct::kWait},
      {true, kNothing, FenceAct::kDestroy},       {true, kInHand, FenceAct::kWait},
      {true, kRefusedByFailed, FenceAct::kDone},  {true, kRefused, FenceAct::kWait},
      {false, kFlushed, FenceAct::kDone},         {false, kSilentFailed, FenceAct::kWait},
      {false, kDestroyed, FenceAct::kWait},       {true, kDestroyed, FenceAct::kDone},
  };
  for (const Removal& r : removals)
    EXPECT_EQ(int(clock.look_at_removal(r.removed, r.seen)), int(r.act)) << &r - removals;
}

TEST(FenceClock, a_kernel_has_a_bound_of_its_own_which_begins_with_the_last_word) {
  FenceClock clock = begun(true);
  clock.over(kBegin + 10);
  clock.peer_over(kBegin + 30, Phase::kUnfenced);
  EXPECT_EQ(clock.look_at_unfenced(Phase::kUnfenced, kBegin + 30 + kRemoval), FenceAct::kWait);
  EXPECT_EQ(clock.look_at_unfenced(Phase::kUnfenced, kBegin + 31 + kRemoval), FenceAct::kUnfenceable);
  EXPECT_EQ(clock.look_at_unfenced(Phase::kChoosing, kBegin + 31 + kRemoval), FenceAct::kWait);
}

TEST(FenceClock, the_peers_word_does_not_prolong_this_ends_fence) {
  FenceClock clock = begun(true);
  clock.peer_over(kBegin + 50, Phase::kFencing);
  EXPECT_EQ(clock.look(Host{}, kBegin + kBound + 1, kStuck).act, FenceAct::kCannot);
}

TEST(DeviceSight, has_failed_by_any_of_its_signs) {
  EXPECT_FALSE(has_failed({}));
  EXPECT_TRUE(has_failed({.refused = true}));
  EXPECT_TRUE(has_failed({.reported = true}));
  EXPECT_TRUE(has_failed({.removed = true}));
}

TEST(DestructionSight, of_a_path_that_was_given_up) {
  EXPECT_TRUE(of_given_up({.gone = true}).given_up);
  EXPECT_FALSE(of_given_up({.gone = true}).worker_busy);
  const FenceSight busy =
      of_given_up({.done = false, .stuck = true, .refused = true, .device = {.reported = true}});
  EXPECT_TRUE(busy.given_up && busy.worker_busy && busy.stuck);
  EXPECT_FALSE(busy.refused || busy.failed) << "nothing is known before the driver has returned";
  EXPECT_FALSE(of_given_up({.stuck = true}).stuck) << "another call keeps that driver";
  for (const DeviceSight& device :
       {DeviceSight{.refused = true}, DeviceSight{.reported = true}, DeviceSight{.removed = true}})
    EXPECT_TRUE(of_given_up({.device = device}).failed);
  const FenceSight refused = of_given_up({.refused = true});
  EXPECT_TRUE(refused.refused);
  EXPECT_FALSE(refused.failed) << "with another error than EIO, by a device that works";
}

TEST(DestructionSight, of_a_device_that_is_removed) {
  EXPECT_TRUE(of_removed({.done = false}).worker_busy);
  EXPECT_FALSE(of_removed({.done = false}).destroyed);
  EXPECT_TRUE(of_removed({}).destroyed);
  EXPECT_TRUE(of_removed({.refused = true, .device = {.refused = true, .removed = true}}).destroyed);
}

// The destruction of a path that was given up was refused with another error than EIO before its device
// failed.
TEST(DestructionSight, a_refusal_is_over_once_the_kernel_has_stopped_the_device) {
  FenceClock clock = begun(false);
  DestructionSight seen{.refused = true, .device = {.reported = true}};
  EXPECT_EQ(clock.look(Host{}, kBegin + 1, of_given_up(seen)).act, FenceAct::kCannot);
  EXPECT_EQ(clock.look_at_removal(false, of_removed(seen)), FenceAct::kWait);
  seen.device.removed = true;
  EXPECT_EQ(clock.look_at_removal(true, of_removed(seen)), FenceAct::kDone);
}

}  // namespace
}  // namespace r2ccl
