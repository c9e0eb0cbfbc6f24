// SPDX-License-Identifier: Apache-2.0
// Opening: the stages of a path that is being opened. OpeningRetries: when the next one is.
#include "r2ccl/protocol/opening.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;

OpeningSight there(ProbeSight probe = ProbeSight::kNone) { return {.exists = true, .probe = probe}; }

TEST(Opening, goes_through_its_stages) {
  Opening opening;
  EXPECT_FALSE(opening.under_way());
  EXPECT_EQ(opening.path(), 0u);
  EXPECT_EQ(opening.begin(Purpose::kStandby, 1, 2, 0), 1u);
  EXPECT_TRUE(opening.is(1));
  EXPECT_TRUE(opening.is_for(Purpose::kStandby));
  EXPECT_FALSE(opening.is_for(Purpose::kRescue));
  EXPECT_EQ(opening.local(), 1);
  EXPECT_EQ(opening.remote(), 2);
  EXPECT_EQ(opening.look({.makes = true}), OpeningAct::kWait);
  EXPECT_FALSE(opening.peer_answers(1)) << "nobody has asked it yet";

  opening.half_made(10 * kMs);
  EXPECT_EQ(opening.look(there()), OpeningAct::kWait);
  EXPECT_TRUE(opening.peer_answers(1));
  EXPECT_FALSE(opening.peer_answers(2));

  opening.connecting(20 * kMs);
  EXPECT_FALSE(opening.peer_answers(1)) << "it has answered";
  EXPECT_EQ(opening.look({.exists = true, .worker_busy = true}), OpeningAct::kWait);
  EXPECT_EQ(opening.look(there()), OpeningAct::kConnect);

  opening.connected(30 * kMs);
  EXPECT_EQ(opening.look(there()), OpeningAct::kWait);
  EXPECT_EQ(opening.look(there(ProbeSight::kAwaited)), OpeningAct::kWait);
  EXPECT_EQ(opening.look(there(ProbeSight::kAnswered)), OpeningAct::kProved);

  opening.proved(40 * kMs);
  EXPECT_TRUE(opening.waits_for_peer());
  EXPECT_EQ(opening.look(there(ProbeSight::kAnswered)), OpeningAct::kWait) << "said once";
  opening.end();
  EXPECT_FALSE(opening.is(1));
  EXPECT_FALSE(opening.is_for(Purpose::kStandby));
  EXPECT_EQ(opening.purpose(), Purpose::kStandby) << "what has ended was for that";
  EXPECT_EQ(opening.path(), 0u);
  EXPECT_EQ(opening.begin(Purpose::kStandby, 1, 2, 0), 2u) << "no number is used twice";
}

TEST(Opening, is_proved_before_it_counts_as_open_where_that_matters) {
  EXPECT_TRUE(Opening::is_proved(true));
  EXPECT_FALSE(Opening::is_proved(false)) << "without resilience a failure is the end in any case";
}

TEST(Opening, fails_when_the_path_is_gone_in_any_stage) {
  Opening opening;
  opening.begin(Purpose::kFirst, 0, 0, 0);
  EXPECT_EQ(opening.look({}), OpeningAct::kDropped);
  opening.half_made(0);
  EXPECT_EQ(opening.look({}), OpeningAct::kDropped);
  opening.connecting(0);
  EXPECT_EQ(opening.look({}), OpeningAct::kDropped);
  opening.connected(0);
  EXPECT_EQ(opening.look({}), OpeningAct::kDropped);
  opening.proved(0);
  EXPECT_EQ(opening.look({}), OpeningAct::kDropped);
}

TEST(Opening, a_driver_that_does_not_answer_matters_while_it_has_the_call) {
  Opening opening;
  opening.begin(Purpose::kFirst, 0, 0, 0);
  EXPECT_EQ(opening.look({.makes = true, .driver_late = true}), OpeningAct::kDriverLate);
  opening.half_made(0);
  EXPECT_EQ(opening.look({.exists = true, .driver_late = true}), OpeningAct::kWait);
  opening.connecting(0);
  EXPECT_EQ(opening.look({.exists = true, .worker_busy = true, .driver_late = true}),
            OpeningAct::kDriverLate);
  EXPECT_EQ(opening.look({.exists = true, .driver_late = true}), OpeningAct::kConnect) << "it has returned";
}

TEST(Opening, fails_when_the_transfer_does_not_come_back) {
  Opening opening;
  opening.begin(Purpose::kFirst, 0, 0, 0);
  opening.connecting(0);
  EXPECT_EQ(opening.look(there(ProbeSight::kFailed)), OpeningAct::kConnect) << "of no matter yet";
  opening.connected(0);
  EXPECT_EQ(opening.look(there(ProbeSight::kFailed)), OpeningAct::kUnproved);
}

TEST(Opening, the_peer_owes_its_half_and_its_transfer) {
  Opening opening;
  opening.begin(Purpose::kFirst, 0, 0, 0);
  EXPECT_FALSE(opening.peer_owes(1000 * kMs, 20 * kMs)) << "that is this end's time";
  opening.half_made(1000 * kMs);
  EXPECT_FALSE(opening.peer_owes(1020 * kMs, 20 * kMs));
  EXPECT_TRUE(opening.peer_owes(1020 * kMs + 1, 20 * kMs));
  opening.connecting(1100 * kMs);
  EXPECT_FALSE(opening.peer_owes(2000 * kMs, 20 * kMs));
  opening.proved(2000 * kMs);
  EXPECT_FALSE(opening.peer_owes(2020 * kMs, 20 * kMs));
  EXPECT_TRUE(opening.peer_owes(2021 * kMs, 20 * kMs));
}

/// A sender that lacks a path that stands by.
struct Lacks {
  Phase in = Phase::kRunning;
  bool is_resilient = true, has_room = true, lanes = false, standby = false;
  Phase phase() const { return in; }
  bool resilient() const { return is_resilient; }
  bool room() const { return has_room; }
  bool has_lanes() const { return lanes; }
  bool stands_by() const { return standby; }
};

TEST(OpeningRetries, a_standby_is_opened_by_a_sender_that_carries_and_has_none) {
  const auto due = [](const Lacks& host) { return OpeningRetries().standby_due(host, kMs); };
  EXPECT_TRUE(due({}));
  EXPECT_FALSE(due({.is_resilient = false}));
  EXPECT_FALSE(due({.has_room = false}));
  EXPECT_FALSE(due({.lanes = true}));
  EXPECT_FALSE(due({.standby = true}));
  EXPECT_FALSE(due({.in = Phase::kChoosing}));
}

TEST(OpeningRetries, what_counts_as_standing_by) {
  EXPECT_EQ(count_of_standbys(true, 2, false), 2);
  EXPECT_EQ(count_of_standbys(true, 2, true), 3);
  EXPECT_EQ(count_of_standbys(false, 2, true), 0) << "one of them is about to carry";
}

TEST(PeerOpening, makes_what_it_can_and_says_why_it_cannot) {
  EXPECT_EQ(PeerOpening::on_open({}), OpenAct::kMake);
  EXPECT_EQ(PeerOpening::on_open({.known = true}), OpenAct::kIgnore);
  EXPECT_EQ(PeerOpening::on_open({.nics = false}), OpenAct::kNoSuchNic);
  EXPECT_EQ(PeerOpening::on_open({.usable = false}), OpenAct::kRefuse);
  EXPECT_EQ(PeerOpening::on_open({.under_way = PeerOpening::kMostHalves - 1}), OpenAct::kMake);
  EXPECT_EQ(PeerOpening::on_open({.under_way = PeerOpening::kMostHalves}), OpenAct::kRefuse);
}

TEST(PeerOpening, a_half_stands_by_when_its_transfer_is_back) {
  EXPECT_TRUE(PeerOpening::proves(PeerOpening::of_new(true)));
  EXPECT_FALSE(PeerOpening::proves(PeerOpening::of_new(false))) << "without resilience nothing is proved";
  EXPECT_EQ(PeerOpening::look(ProbeSight::kNone), ProofAct::kWait) << "it was not told to yet";
  EXPECT_EQ(PeerOpening::look(ProbeSight::kAwaited), ProofAct::kWait);
  EXPECT_EQ(PeerOpening::look(ProbeSight::kAnswered), ProofAct::kOpen);
  EXPECT_EQ(PeerOpening::look(ProbeSight::kFailed), ProofAct::kDrop);
}

TEST(OpeningRetries, a_standby_that_fails_is_tried_at_once_and_then_ever_later) {
  OpeningRetries retries;
  uint64_t now = 1000 * kMs;
  const auto waits = [&] {
    uint64_t ms = 0;
    while (!retries.standby_due(Lacks{}, now + ms * kMs)) ++ms;
    now += ms * kMs;
    return ms;
  };
  EXPECT_EQ(waits(), 0u);
  for (const uint64_t ms : {0, 1000, 2000, 4000, 8000, 16000, 16000}) {
    retries.standby_failed(now);
    EXPECT_EQ(waits(), ms);
  }
  retries.standby_opened();
  retries.standby_failed(now);
  EXPECT_EQ(waits(), 0u);
}

TEST(OpeningRetries, a_hint_makes_a_standby_due_and_never_later) {
  OpeningRetries retries;
  retries.no_standby(1000 * kMs);
  EXPECT_FALSE(retries.standby_due(Lacks{}, 1499 * kMs));
  retries.standby_hint(1200 * kMs);
  EXPECT_TRUE(retries.standby_due(Lacks{}, 1200 * kMs));
  retries.standby_hint(9000 * kMs);
  EXPECT_TRUE(retries.standby_due(Lacks{}, 1200 * kMs));
  retries.no_standby(1200 * kMs);
  retries.standby_wanted(1300 * kMs);
  EXPECT_TRUE(retries.standby_due(Lacks{}, 1300 * kMs)) << "traffic flows again";
}

TEST(OpeningRetries, each_rail_has_its_own_count_of_failed_lanes) {
  OpeningRetries retries;
  const uint64_t now = 1000 * kMs;
  for (const uint64_t ms : {50, 100, 200, 400, 800, 1600, 3200, 6400, 6400})
    EXPECT_EQ(retries.lane_failed(0, 1, now), now + ms * kMs);
  for (int more = 0; more < 300; ++more) EXPECT_EQ(retries.lane_failed(0, 1, now), now + 6400 * kMs);
  EXPECT_EQ(retries.lane_failed(1, 0, now), now + 50 * kMs);
  retries.lane_opened(0, 1);
  EXPECT_EQ(retries.lane_failed(0, 1, now), now + 50 * kMs);
}

TEST(Opening, the_peers_proof_counts_only_when_this_end_has_proved_it) {
  Opening opening;
  opening.begin(Purpose::kFirst, 0, 0, 0);
  opening.half_made(0);
  EXPECT_FALSE(opening.peer_proves(1));
  opening.connecting(0);
  EXPECT_FALSE(opening.peer_proves(1));
  opening.connected(0);
  EXPECT_FALSE(opening.peer_proves(1));
  opening.proved(0);
  EXPECT_TRUE(opening.peer_proves(1));
  EXPECT_FALSE(opening.peer_proves(2));
  opening.end();
  EXPECT_FALSE(opening.peer_proves(1));
}

}  // namespace
}  // namespace r2ccl
