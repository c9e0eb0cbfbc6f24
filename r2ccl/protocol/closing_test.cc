// SPDX-License-Identifier: Apache-2.0
// Closing: how long each end of a channel waits for the other when one of them is closed.
#include "r2ccl/protocol/closing.h"

#include <gtest/gtest.h>

#include <new>
#include <string>
#include <utility>

#include "r2ccl/protocol/unanswered.h"

namespace r2ccl {
namespace {

using Settling = Closing::Settling;
using Lacking = Closing::Lacking;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kBegin = 7000 * kMs;

/// `moves`: a migration is under way.
SettleSight seen(bool lacks, bool moves = false) {
  SettleSight sight;
  sight.lacks = lacks;
  sight.phase = moves ? Phase::kFencing : Phase::kRunning;
  return sight;
}

/// How many milliseconds it settles for, looked at in each.
uint64_t settles(Closing& closing, auto&& again, Settling& last) {
  uint64_t ms = 0;
  while (ms < 60'000 && (last = closing.settle(kBegin + ms * kMs, seen(false, again(ms)))) == Settling::kAsk)
    ++ms;
  return ms;
}

TEST(Closing, settles_for_a_bound_and_says_whether_anybody_answered) {
  Closing closing;
  Settling last{};
  EXPECT_EQ(settles(
                closing, [](uint64_t) { return false; }, last),
            Closing::kSettleNs / kMs + 1);
  EXPECT_EQ(last, Settling::kUnanswered);

  Closing answered;
  answered.heard();  // before it was closed: that says nothing
  EXPECT_EQ(answered.settle(kBegin, seen(false)), Settling::kAsk);
  answered.heard();
  EXPECT_EQ(answered.settle(kBegin + Closing::kSettleNs + 1, seen(false)), Settling::kOver);
}

TEST(Closing, what_came_before_it_settled_is_no_answer) {
  Closing closing;
  closing.heard();
  EXPECT_EQ(closing.settle(kBegin, seen(false)), Settling::kAsk);
  EXPECT_EQ(closing.settle(kBegin + Closing::kSettleNs + 1, seen(false)), Settling::kUnanswered);
}

TEST(Closing, settles_for_longer_while_something_is_sent_again_but_not_for_ever) {
  Settling last{};
  Closing once;  // for 50 ms
  EXPECT_EQ(settles(
                once, [](uint64_t ms) { return ms < 50; }, last),
            49 + Closing::kSettleNs / kMs + 1);
  Closing always;
  EXPECT_EQ(settles(
                always, [](uint64_t) { return true; }, last),
            Closing::kLingerNs / kMs + 1);
}

TEST(Closing, settles_for_longer_while_the_receiver_says_that_it_lacks_something) {
  Closing answered;
  EXPECT_EQ(answered.settle(kBegin, seen(true)), Settling::kAsk);
  answered.heard();
  uint64_t ms = 1;
  while (answered.settle(kBegin + ms * kMs, seen(ms < 1500)) == Settling::kAsk) ++ms;
  EXPECT_EQ(ms, 1499 + Closing::kSettleNs / kMs + 1);

  Closing always;
  EXPECT_EQ(always.settle(kBegin, seen(true)), Settling::kAsk);
  always.heard();
  ms = 1;
  while (always.settle(kBegin + ms * kMs, seen(true)) == Settling::kAsk) ++ms;
  EXPECT_EQ(ms, Closing::kLingerNs / kMs + 1);

  Closing silent;  // what it said before counts for nothing
  silent.heard();
  ms = 0;
  while (silent.settle(kBegin + ms * kMs, seen(true)) == Settling::kAsk) ++ms;
  EXPECT_EQ(ms, Closing::kSettleNs / kMs + 1);
}

TEST(Closing, does_not_settle_where_nobody_can_say_what_is_lacking) {
  const auto over = [](auto&& change) {
    Closing closing;
    SettleSight sight;
    change(sight, closing);
    return closing.settle(kBegin, sight) == Settling::kOver;
  };
  EXPECT_FALSE(over([](SettleSight&, Closing&) {}));
  EXPECT_TRUE(over([](SettleSight& s, Closing&) { s.greeted = false; }));
  EXPECT_TRUE(over([](SettleSight& s, Closing&) { s.failed = true; }));
  EXPECT_TRUE(over([](SettleSight& s, Closing&) { s.busy = true; }));
  EXPECT_TRUE(over([](SettleSight& s, Closing&) { s.unconfirmed = false; }));
  EXPECT_TRUE(over([](SettleSight& s, Closing&) { s.unanswered = true; }));
  EXPECT_TRUE(over([](SettleSight&, Closing& c) { c.peer_has_closed(); }));
}

/// How many milliseconds it waits for what is lacking.
uint64_t waits(Closing& closing, bool for_nic_alone, Lacking& last) {
  uint64_t ms = 0;
  while (ms < 60'000 && (last = closing.look(kBegin + ms * kMs, true, for_nic_alone)) == Lacking::kWait) ++ms;
  return ms;
}

TEST(Closing, waits_for_what_a_peer_delivered_before_it_closed) {
  Closing closing;
  Lacking last{};
  EXPECT_EQ(closing.look(kBegin, false, false), Lacking::kNothing);
  EXPECT_EQ(waits(closing, false, last), Closing::kLingerNs / kMs + 1);
  EXPECT_EQ(last, Lacking::kLost);
}

TEST(Closing, waits_less_for_a_nic_that_alone_has_not_reported) {
  Closing closing;
  Lacking last{};
  EXPECT_EQ(waits(closing, true, last), Closing::kLastAckNs / kMs + 1);
  EXPECT_EQ(last, Lacking::kLeave);
}

TEST(Closing, the_wait_begins_anew_with_the_next_request) {
  Closing closing;
  Lacking last{};
  waits(closing, false, last);
  EXPECT_EQ(closing.look(kBegin + 5000 * kMs, false, false), Lacking::kNothing);
  EXPECT_EQ(closing.look(kBegin + 6000 * kMs, true, false), Lacking::kWait);
}

TEST(Closing, answers_until_the_peer_closes_or_nobody_can_ask_or_long_enough) {
  Closing closing;
  closing.begin(kBegin);
  EXPECT_FALSE(closing.may_end(kBegin + Closing::kLastWordNs, true, false));
  EXPECT_TRUE(closing.may_end(kBegin + Closing::kLastWordNs + 1, true, false));
  EXPECT_TRUE(closing.may_end(kBegin, false, false));
  EXPECT_FALSE(closing.may_end(kBegin, false, true)) << "the peer may hear it over the next connection";
  closing.peer_has_closed();
  EXPECT_TRUE(closing.may_end(kBegin, true, false));
}

TEST(Closing, keeps_what_has_been_said_and_done) {
  Closing closing;
  EXPECT_FALSE(closing.told() || closing.begun() || closing.finished() || closing.peer_closed());
  closing.has_told();
  EXPECT_TRUE(closing.told());
  closing.begin(kBegin);
  EXPECT_TRUE(closing.begun());
  closing.finish();
  EXPECT_TRUE(closing.finished());
  EXPECT_FALSE(closing.peer_closed());
}

TEST(Closing, a_peer_that_cannot_be_reached_is_not_one_that_does_not_answer) {
  Closing closing;
  SettleSight sight = seen(false);
  sight.connected = false;
  EXPECT_EQ(closing.settle(kBegin, sight), Settling::kAsk);
  EXPECT_EQ(closing.settle(kBegin + Closing::kSettleNs + 1, sight), Settling::kOver);
}

TEST(Closing, says_the_last_word_once) {
  Closing closing;
  EXPECT_EQ(closing.last_word(false, true), LastWord::kClose);
  EXPECT_EQ(closing.last_word(true, true), LastWord::kFailure) << "the reason must not be kept from the peer";
  EXPECT_EQ(closing.last_word(true, false), LastWord::kRecord) << "though nobody hears it";
  EXPECT_EQ(closing.last_word(false, false), LastWord::kNothing) << "there is nobody to tell";
  closing.has_told();
  EXPECT_EQ(closing.last_word(false, true), LastWord::kNothing);
  EXPECT_EQ(closing.last_word(true, true), LastWord::kNothing);
}

TEST(Closing, is_closing_when_it_is_asked_to_or_has_said_its_last_word) {
  Closing closing;
  EXPECT_FALSE(closing.is_closing(false));
  EXPECT_TRUE(closing.is_closing(true));
  closing.has_told();
  EXPECT_TRUE(closing.is_closing(false));
}

TEST(Closing, settles_before_it_closes_and_closes_when_it_has_begun_to) {
  Closing closing;
  int asked = 0;
  const auto ending = [&](bool requested, bool settles) {
    return closing.ending(requested, [&] { return ++asked, settles; });
  };
  EXPECT_EQ(ending(false, true), Closing::Ending::kGoesOn);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(ending(true, true), Closing::Ending::kSettles);
  EXPECT_EQ(ending(true, false), Closing::Ending::kCloses);
  closing.begin(kBegin);
  asked = 0;
  EXPECT_EQ(ending(false, true), Closing::Ending::kCloses);
  EXPECT_EQ(ending(true, true), Closing::Ending::kCloses);
  EXPECT_EQ(asked, 0) << "its queue pairs are gone";
}

TEST(Closing, a_sender_that_nobody_has_greeted_hangs_up) {
  EXPECT_TRUE(Closing::hangs_up(true, false));
  EXPECT_FALSE(Closing::hangs_up(true, true));
  EXPECT_FALSE(Closing::hangs_up(false, false));
}

TEST(AfterFailure, the_connection_is_restored_for_the_reason_to_get_through_but_not_for_ever) {
  EXPECT_EQ(after_failure({}), AfterFailure::kStays);
  EXPECT_EQ(after_failure({.outage = true}), AfterFailure::kRestore);
  EXPECT_EQ(after_failure({.outage = true, .in_vain = true}), AfterFailure::kHangUp);
  EXPECT_EQ(after_failure({.greeted = false, .outage = true}), AfterFailure::kHangUp);
  EXPECT_EQ(after_failure({.greeted = false}), AfterFailure::kStays);
}

TEST(AfterFailure, set_up_is_given_up_only_where_nothing_was_carried) {
  EXPECT_TRUE(gives_set_up_up(false, 0));
  EXPECT_FALSE(gives_set_up_up(true, 0));
  EXPECT_FALSE(gives_set_up_up(false, 1)) << "it had a path";
}

/// Writes down what is done.
struct Host {
  std::string did;
  bool is_sender = true, is_greeted = true, is_torn_down = true, is_connected = true, is_broken = false;
  bool is_lacking = false, nic_alone = false, path = true, owns = false;
  uint32_t epochs = 0;
  FailureSight failure;

  template <typename F>
  bool owning(F&& f) {
    owns = true;
    const bool result = f();
    owns = false;
    return result;
  }
  bool sender() const { return is_sender; }
  bool greeted() const { return is_greeted; }
  bool torn_down() const { return is_torn_down; }
  bool connected() const { return is_connected; }
  bool outage() const { return is_broken; }
  bool lacks() const { return is_lacking; }
  bool for_nic_alone() const { return nic_alone; }
  bool has_path() const { return path; }
  uint32_t epoch() const { return epochs; }
  FailureSight see_failure() const { return failure; }
  void say_last_word() { did += "word "; }
  void hang_up() { did += "hang-up "; }
  void end_connection() { did += "end "; }
  void give_halves_up() { did += "halves "; }
  void leave_paths() {
    EXPECT_TRUE(owns);
    did += "leave ";
  }
  void closed() { did += "closed "; }
  void take_halves() { did += "take "; }
  void release() { did += "release "; }
  void restore() { did += "restore "; }
  void look() { did += "look "; }
  void nothing_is_sent() { did += "nothing-sent "; }
  void lost() { did += "lost "; }
  void give_set_up_up() { did += "give-up "; }
  std::string what() { return std::exchange(did, {}); }
};

TEST(ClosingStep, says_its_last_word_before_its_queue_pairs_go_and_gives_buffers_back_after_that) {
  Closing closing;
  Host host;
  host.is_torn_down = false;
  EXPECT_FALSE(closing.step(host, kBegin));
  EXPECT_EQ(host.what(), "word halves leave closed take ");
  EXPECT_TRUE(closing.begun());
  EXPECT_FALSE(closing.step(host, kBegin + 1));
  EXPECT_EQ(host.what(), "take ");
  host.is_torn_down = true;
  EXPECT_TRUE(closing.step(host, kBegin + 2));
  EXPECT_EQ(host.what(), "take release restore ");
  EXPECT_TRUE(closing.step(host, kBegin + 3));
  EXPECT_EQ(host.what(), "take restore ") << "once";
  EXPECT_FALSE(closing.finished());
  closing.peer_has_closed();
  EXPECT_TRUE(closing.step(host, kBegin + 4));
  EXPECT_EQ(host.what(), "take restore end ");
  EXPECT_TRUE(closing.finished());
}

TEST(ClosingStep, the_time_for_the_peer_begins_when_it_is_closed) {
  Closing closing;
  Host host;
  (void)closing.step(host, kBegin);
  (void)closing.step(host, kBegin + Closing::kLastWordNs);
  EXPECT_FALSE(closing.finished());
  (void)closing.step(host, kBegin + Closing::kLastWordNs + 1);
  EXPECT_TRUE(closing.finished());
}

TEST(ClosingStep, a_connection_that_is_broken_ends_nothing_while_it_is_restored) {
  Closing closing;
  Host host;
  host.is_connected = false;
  host.is_broken = true;
  (void)closing.step(host, kBegin);
  EXPECT_FALSE(closing.finished());
  host.is_broken = false;
  (void)closing.step(host, kBegin);
  EXPECT_TRUE(closing.finished());
}

TEST(ClosingStep, a_sender_that_nobody_has_greeted_hangs_up_first) {
  Closing closing;
  Host host;
  host.is_greeted = false;
  (void)closing.step(host, kBegin);
  EXPECT_EQ(host.what(), "word hang-up halves leave closed take release restore ");
}

TEST(ClosingStep, what_could_not_be_done_for_lack_of_memory_is_done_once_more) {
  struct Short : Host {
    bool has_memory = false;
    void leave_paths() {
      if (!has_memory) throw std::bad_alloc();
      Host::leave_paths();
    }
  } host;
  Closing closing;
  EXPECT_THROW((void)closing.step(host, kBegin), std::bad_alloc);
  EXPECT_FALSE(closing.begun());
  host.what();
  host.has_memory = true;
  EXPECT_TRUE(closing.step(host, kBegin));
  EXPECT_EQ(host.what(), "word halves leave closed take release restore ");
}

TEST(PeerClosed, takes_in_what_it_delivered_and_fails_when_something_is_lost) {
  Closing closing;
  Host host;
  EXPECT_TRUE(closing.step_after_peer(host, kBegin));
  EXPECT_EQ(host.what(), "look ");
  host.is_lacking = true;
  EXPECT_FALSE(closing.step_after_peer(host, kBegin));
  EXPECT_EQ(host.what(), "look ");
  EXPECT_FALSE(closing.step_after_peer(host, kBegin + Closing::kLingerNs + 1));
  EXPECT_EQ(host.what(), "look lost ");
}

TEST(PeerClosed, a_report_of_the_nic_is_not_waited_for_but_its_queue_pair_is) {
  Closing closing;
  Host host;
  host.is_lacking = host.nic_alone = true;
  host.is_torn_down = false;
  EXPECT_FALSE(closing.step_after_peer(host, kBegin));
  EXPECT_EQ(host.what(), "look ");
  EXPECT_FALSE(closing.step_after_peer(host, kBegin + Closing::kLastAckNs + 1));
  EXPECT_EQ(host.what(), "look leave ") << "the NIC may still read the buffer";
  host.is_torn_down = true;
  EXPECT_FALSE(closing.step_after_peer(host, kBegin + Closing::kLastAckNs + 2));
  EXPECT_EQ(host.what(), "look leave nothing-sent ");
}

TEST(AfterError, the_peer_is_told_before_set_up_is_given_up) {
  Closing closing;
  Host host;
  host.path = false;
  closing.step_after_error(host);
  EXPECT_EQ(host.what(), "word give-up ");
  host.epochs = 1;
  closing.step_after_error(host);
  EXPECT_EQ(host.what(), "word ");
  host.failure.outage = true;
  closing.step_after_error(host);
  EXPECT_EQ(host.what(), "word restore ");
  host.failure.in_vain = true;
  closing.step_after_error(host);
  EXPECT_EQ(host.what(), "word hang-up ");
}

TEST(Unanswered, is_remembered_for_a_while_or_until_the_process_answers) {
  Unanswered unanswered;
  EXPECT_FALSE(unanswered.has(7, kBegin));
  unanswered.note(7, kBegin);
  EXPECT_TRUE(unanswered.has(7, kBegin + Unanswered::kRememberNs - 1));
  EXPECT_FALSE(unanswered.has(7, kBegin + Unanswered::kRememberNs));
  EXPECT_FALSE(unanswered.has(8, kBegin)) << "another process";
  unanswered.heard(8);
  EXPECT_TRUE(unanswered.has(7, kBegin));
  unanswered.heard(7);
  EXPECT_FALSE(unanswered.has(7, kBegin));
}

}  // namespace
}  // namespace r2ccl
