// SPDX-License-Identifier: Apache-2.0
// The migration protocol of one end, step by step. How two ends of it get along is protocol_model_test's
// matter.
#include "r2ccl/protocol/migration.h"

#include <gtest/gtest.h>

#include "r2ccl/protocol/sent.h"

namespace r2ccl {
namespace {

TEST(MigrationEnd, the_sender_chooses_only_when_both_ends_have_fenced_in_either_order) {
  for (const bool peer_first : {true, false}) {
    MigrationEnd sender(true);
    sender.leave(7);
    EXPECT_EQ(sender.phase(), Phase::kFencing);
    EXPECT_EQ(sender.leaving(), 7u);
    if (peer_first) {
      EXPECT_TRUE(sender.peer_has_fenced(sender.epoch(), sender.leaving(), true));
    }
    EXPECT_EQ(sender.phase(), Phase::kFencing);
    sender.fenced();
    EXPECT_EQ(sender.phase(), peer_first ? Phase::kChoosing : Phase::kWaitingForPeer);
    if (!peer_first) {
      EXPECT_TRUE(sender.peer_has_fenced(sender.epoch(), sender.leaving(), true));
    }
    EXPECT_EQ(sender.phase(), Phase::kChoosing);
    sender.running();
    EXPECT_FALSE(sender.peer_has_fenced(sender.epoch(), sender.leaving(), true)) << "said before";
  }
}

TEST(Sent, the_longest_work_of_a_path_is_of_what_its_nic_has_not_reported) {
  struct Messages {
    bool known(uint64_t message) const { return message != 3; }
    uint32_t segments(uint64_t) const { return 2; }
    uint32_t path_of(uint64_t, uint32_t segment) const { return 7 + segment; }
    uint32_t bytes_of(uint64_t message, uint32_t segment) const {
      return (message == 0 ? 900 : uint32_t(message) * 100) + segment;
    }
  };
  SendLedger ledger;
  EXPECT_EQ(longest_work(ledger, Messages(), 7), 0u) << "nothing was sent";
  for (int message = 0; message < 4; ++message) ledger.open(2);
  EXPECT_EQ(longest_work(ledger, Messages(), 7), 900u);
  EXPECT_EQ(longest_work(ledger, Messages(), 8), 901u);
  EXPECT_EQ(longest_work(ledger, Messages(), 9), 0u);
  for (const uint32_t segment : {0u, 1u}) ledger.completed(0, segment);
  EXPECT_EQ(longest_work(ledger, Messages(), 7), 200u) << "what became of message 3 is not known";
  ledger.completed(2, 1);
  EXPECT_EQ(longest_work(ledger, Messages(), 8), 101u) << "the other segment of message 2 is open";
  EXPECT_EQ(longest_work(ledger, Messages(), 7), 200u);
}

TEST(MigrationEnd, a_sender_that_cannot_fence_chooses_behind_the_receivers_fence) {
  for (const bool peer_first : {true, false}) {
    MigrationEnd sender(true);
    sender.leave(7);
    const auto peer = [&] { EXPECT_TRUE(sender.peer_has_fenced(sender.epoch(), 7, true)); };
    peer_first ? (peer(), sender.cannot_fence()) : (sender.cannot_fence(), peer());
    EXPECT_EQ(sender.phase(), Phase::kChoosing);
  }
}

TEST(MigrationEnd, where_the_receiver_cannot_fence_the_sender_waits_until_it_can_after_all) {
  for (const bool sender_can : {true, false})
    for (const bool peer_first : {true, false}) {
      MigrationEnd sender(true);
      sender.leave(7);
      const auto own = [&] { sender_can ? sender.fenced() : sender.cannot_fence(); };
      const auto peer = [&] { EXPECT_TRUE(sender.peer_has_fenced(1, 7, false)); };
      peer_first ? (peer(), own()) : (own(), peer());
      EXPECT_EQ(sender.phase(), Phase::kUnfenced);
      sender.fenced();
      EXPECT_EQ(sender.phase(), Phase::kUnfenced) << "what the receiver's NIC holds it may still write";
      EXPECT_TRUE(sender.peer_has_fenced(1, 7, true));
      EXPECT_EQ(sender.phase(), Phase::kChoosing);
      EXPECT_FALSE(sender.peer_has_fenced(1, 7, false)) << "an old word, come once more";
      EXPECT_EQ(sender.phase(), Phase::kChoosing);
    }
}

TEST(MigrationEnd, a_receiver_that_cannot_fence_leaves_it_to_the_sender_what_follows) {
  MigrationEnd receiver(false);
  receiver.leave(1);
  receiver.cannot_fence();
  EXPECT_EQ(receiver.phase(), Phase::kWaitingForPeer);
  EXPECT_EQ(receiver.peer_uses(1, 2, true, true), MigrateReply::kUse);
}

TEST(MigrationEnd, the_receiver_waits_for_a_path_however_many_have_fenced) {
  MigrationEnd receiver(false);
  receiver.leave(1);
  receiver.fenced();
  EXPECT_TRUE(receiver.peer_has_fenced(1, receiver.leaving(), true));
  EXPECT_EQ(receiver.phase(), Phase::kWaitingForPeer);
  EXPECT_EQ(receiver.peer_uses(1, 2, true, true), MigrateReply::kUse);
}

TEST(MigrationEnd, two_ends_that_notice_at_once_make_one_epoch) {
  MigrationEnd sender(true), receiver(false);
  sender.leave(1);
  receiver.leave(1);
  EXPECT_EQ(sender.peer_leaves(receiver.epoch(), 1, false), MigrateReply::kOld);
  EXPECT_EQ(receiver.peer_leaves(sender.epoch(), 1, false), MigrateReply::kOld);
  EXPECT_EQ(sender.epoch(), 1u);
}

TEST(MigrationEnd, two_ends_that_notice_different_failures_leave_the_senders_first) {
  MigrationEnd sender(true), receiver(false);
  sender.leave(1);
  receiver.leave(2);
  receiver.fenced();
  EXPECT_EQ(sender.peer_leaves(1, 2, true), MigrateReply::kOther);
  EXPECT_FALSE(sender.peer_has_fenced(1, 2, true)) << "that is not the path that this end leaves";
  EXPECT_EQ(receiver.peer_leaves(1, 1, true), MigrateReply::kFenceActive);
  EXPECT_EQ(receiver.leaving(), 1u);
  EXPECT_EQ(receiver.phase(), Phase::kFencing);
  EXPECT_EQ(receiver.peer_leaves(1, 1, true), MigrateReply::kOld) << "said before";
  sender.fenced();
  receiver.fenced();
  EXPECT_TRUE(sender.peer_has_fenced(1, 1, true));
  sender.running();
  EXPECT_EQ(receiver.peer_uses(1, 3, true, true), MigrateReply::kUse);
  receiver.running();
  sender.leave(2);
  EXPECT_EQ(receiver.peer_leaves(2, 2, false), MigrateReply::kFenceGivenUp);
}

TEST(MigrationEnd, both_ends_know_whether_the_path_that_is_left_has_failed) {
  MigrationEnd sender(true), receiver(false);
  sender.leave(1, 2);
  EXPECT_TRUE(sender.planned());
  receiver.peer_leaves(1, 1, true, true);
  EXPECT_TRUE(receiver.planned());
  sender.running();
  sender.leave(2);
  EXPECT_FALSE(sender.planned());
  receiver.peer_leaves(2, 2, true, false);
  EXPECT_FALSE(receiver.planned());
  receiver.peer_leaves(3, 3, true, true);
  EXPECT_EQ(receiver.peer_uses(3, 4, false, true), MigrateReply::kFenceGivenUp);
  EXPECT_FALSE(receiver.planned()) << "it has given that path up itself";
}

TEST(MigrationEnd, a_path_that_the_peer_leaves_is_fenced_whether_it_is_active_here_or_not) {
  MigrationEnd active(false), given_up(false);
  EXPECT_EQ(active.peer_leaves(1, 4, true), MigrateReply::kFenceActive);
  EXPECT_EQ(given_up.peer_leaves(1, 4, false), MigrateReply::kFenceGivenUp);
  EXPECT_EQ(given_up.phase(), Phase::kFencing);
  EXPECT_EQ(given_up.leaving(), 4u);
}

TEST(MigrationEnd, a_lane_that_the_peer_leaves_is_fenced_as_one_also_in_the_middle_of_another_migration) {
  MigrationEnd receiver(false);
  receiver.leave(1);
  EXPECT_EQ(receiver.peer_leaves(2, 5, true), MigrateReply::kFenceActive)
      << "or it would stay among the lanes";
  EXPECT_EQ(receiver.leaving(), 5u);
  EXPECT_EQ(receiver.peer_leaves(3, 6, false), MigrateReply::kFenceGivenUp);
}

TEST(MigrationEnd, a_peer_that_leaves_no_path_is_not_taken_to_mean_the_one_that_an_end_does_not_have) {
  MigrationEnd end(false);
  EXPECT_EQ(end.peer_leaves(1, 0, false), MigrateReply::kFenceGivenUp);
}

TEST(MigrationEnd, using_a_path_that_the_receiver_has_given_up_begins_the_next_epoch) {
  MigrationEnd receiver(false);
  receiver.leave(1);
  receiver.fenced();
  EXPECT_EQ(receiver.peer_uses(1, 2, false, true), MigrateReply::kFenceGivenUp);
  EXPECT_EQ(receiver.epoch(), 2u);
  EXPECT_EQ(receiver.leaving(), 2u);
  EXPECT_EQ(receiver.peer_uses(1, 3, true, true), MigrateReply::kOld) << "of the epoch before";
}

TEST(MigrationEnd, a_first_path_that_was_given_up_is_the_senders_matter) {
  MigrationEnd receiver(false);
  EXPECT_EQ(receiver.peer_uses(0, 1, false, false), MigrateReply::kOld);
  EXPECT_EQ(receiver.epoch(), 0u);
  EXPECT_EQ(receiver.peer_leaves(1, 1, false), MigrateReply::kFenceGivenUp);
  receiver.fenced();
  EXPECT_EQ(receiver.peer_uses(1, 2, true, false), MigrateReply::kUse);
}

TEST(MigrationEnd, messages_of_another_epoch_count_for_nothing) {
  MigrationEnd sender(true);
  sender.leave(1);
  sender.fenced();
  EXPECT_FALSE(sender.peer_has_fenced(2, 1, true));
  EXPECT_FALSE(sender.peer_has_fenced(0, 1, true));
  EXPECT_EQ(sender.phase(), Phase::kWaitingForPeer);
  EXPECT_EQ(sender.peer_uses(1, 1, true, true), MigrateReply::kOld) << "only the sender uses";
}

TEST(MigrationEnd, a_planned_target_is_forgotten_with_the_next_epoch) {
  MigrationEnd sender(true);
  sender.leave(1, 5);
  EXPECT_EQ(sender.target(), 5u);
  sender.fenced();
  sender.peer_has_fenced(1, 1, true);
  sender.running();
  sender.leave(5);
  EXPECT_EQ(sender.target(), 0u);
}

TEST(AckQuery, asks_one_question_at_a_time) {
  AckQuery ack_query;
  EXPECT_TRUE(ack_query.ask(0));
  EXPECT_FALSE(ack_query.ask(0));
  EXPECT_FALSE(ack_query.answered(0));
  EXPECT_TRUE(ack_query.ask(0));
}

TEST(AckQuery, marks_a_path_failed_when_the_receiver_lacks_twice_what_the_nic_reported) {
  AckQuery ack_query;
  ack_query.ask(3);
  EXPECT_FALSE(ack_query.answered(2)) << "it may be on its way from the NIC";
  ack_query.ask(3);
  EXPECT_TRUE(ack_query.answered(2));
}

TEST(AckQuery, a_receiver_that_gets_on_is_believed) {
  AckQuery ack_query;
  for (uint64_t received = 0; received < 4; ++received) {
    ack_query.ask(9);
    EXPECT_FALSE(ack_query.answered(received)) << received;
  }
  ack_query.ask(3);
  EXPECT_FALSE(ack_query.answered(3)) << "it has everything";
  ack_query.ask(4);
  EXPECT_FALSE(ack_query.answered(3));
}

TEST(AckQuery, what_was_asked_over_another_path_says_nothing_of_this_one) {
  AckQuery ack_query;
  ack_query.ask(3);
  ack_query.answered(2);
  ack_query.ask(3);
  ack_query.moved();
  EXPECT_FALSE(ack_query.answered(2));
  ack_query.ask(3);
  EXPECT_FALSE(ack_query.answered(2)) << "for the first time on this path";
}

TEST(AfterDrop, a_path_that_is_fenced_already_is_left_alone) {
  EXPECT_EQ(after_drop(PathState::kFencing), AfterDrop::kNothing);
  EXPECT_EQ(after_drop(PathState::kActive), AfterDrop::kLeave);
  for (const PathState state : {PathState::kOpening, PathState::kProving, PathState::kStandby})
    EXPECT_EQ(after_drop(state), AfterDrop::kDrop);
}

TEST(Replay, goes_to_the_path_with_the_least_to_do_that_can_take_it) {
  EXPECT_TRUE(is_better({.under_way = 1}, {.under_way = 2}));
  EXPECT_FALSE(is_better({.under_way = 2}, {.under_way = 2})) << "the active path comes first";
  EXPECT_TRUE(is_better({.under_way = 9}, {.failed = true}));
  EXPECT_TRUE(is_better({.under_way = 9}, {.room = false}));
  EXPECT_TRUE(is_better({.under_way = 9}, {.registered = false}));
  for (const CarrierSight& cannot :
       {CarrierSight{.failed = true}, CarrierSight{.room = false}, CarrierSight{.registered = false}}) {
    EXPECT_FALSE(is_better(cannot, {.under_way = 9}));
    EXPECT_FALSE(is_better(cannot, {.failed = true})) << "none can";
  }
  EXPECT_TRUE(is_sent_now(false));
  EXPECT_FALSE(is_sent_now(true)) << "when that path has been left";
}

}  // namespace
}  // namespace r2ccl
