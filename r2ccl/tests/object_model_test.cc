// SPDX-License-Identifier: Apache-2.0
// Objects of protocol/ that decide about times, each explored exhaustively by itself, up to the bounds that
// each test names: the opening of paths, failback, outages of the control connection, and the turns of the
// service thread. Each property is shown to fail when a decision is made wrongly. PROTOCOL.md explains;
// model/ holds the models.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "r2ccl/tests/model/explorer.h"
#include "r2ccl/tests/model/failback.h"
#include "r2ccl/tests/model/opening.h"
#include "r2ccl/tests/model/outage.h"
#include "r2ccl/tests/model/turn.h"

namespace r2ccl::model {
namespace {

// More than any bound here needs.
constexpr uint64_t kLimit = 2'000'000;

std::string text(const Outcome& outcome) {
  std::string out = outcome.violation.empty() ? "more states than the limit" : outcome.violation;
  for (size_t i = 0; i < outcome.trace.size(); ++i)
    out += "\n  " + std::to_string(i + 1) + ". " + outcome.trace[i];
  return out;
}

template <class Model>
void expect_that_it_holds(const char* what, const Model& model) {
  const Outcome outcome = explore(model, kLimit);
  EXPECT_TRUE(outcome.complete && outcome.violation.empty()) << what << ": " << text(outcome);
  std::printf("holds: %s: %llu states, %llu steps, longest way %u, %.1f s\n", what,
              static_cast<unsigned long long>(outcome.states), static_cast<unsigned long long>(outcome.steps),
              outcome.longest, outcome.seconds);
}

/// While it is in scope, a decision of `Object` is made wrongly.
template <class Object, class Wrong>
class Made {
 public:
  explicit Made(Wrong wrong) { Object::wrong = wrong; }
  ~Made() { Object::wrong = Wrong::kNone; }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
};

template <class Wrong, class Bounds>
struct Broken {
  Wrong wrong;
  const char* what;  ///< is violated
  Bounds bounds;
};

template <class Object, class Model, class Wrong, class Bounds>
void expect_that_it_fails(const Broken<Wrong, Bounds>& broken) {
  Outcome outcome;
  {
    const Made<Object, Wrong> made(broken.wrong);
    outcome = explore(Model(broken.bounds), kLimit);
  }
  EXPECT_EQ(outcome.violation, broken.what) << int(broken.wrong) << ": " << text(outcome);
  std::printf("found after %llu states: %s\n", static_cast<unsigned long long>(outcome.states),
              text(outcome).c_str());
  const Outcome right = explore(Model(broken.bounds), kLimit);  // so it is the decision
  EXPECT_TRUE(right.complete && right.violation.empty()) << text(right);
}

// --- Opening ----------------------------------------------------------------------------------------------

TEST(OpeningModel, every_opening_ends_once) {
  expect_that_it_holds("2 openings, 1 tick, 1 broken path, 1 NIC or path lost, 1 repeated message",
                       OpeningModel({.ticks = 1, .breaks = 1, .losses = 1, .repeats = 1}));
  expect_that_it_holds("2 openings, 1 late driver call, 1 driver call that fails, 1 repeated message",
                       OpeningModel({.lates = 1, .errors = 1, .repeats = 1}));
  expect_that_it_holds("3 openings, 1 late driver call, 1 NIC or path lost",
                       OpeningModel({.openings = 3, .lates = 1, .losses = 1}));
}

TEST(OpeningModel, each_wrong_decision_is_found) {
  using enum WrongOpening;
  static constexpr const char* kTwice = "an opening ends twice";
  static constexpr const char* kForEver = "an opening is under way, and nothing happens any more";
  static constexpr const char* kUnproved = "a path counts as open that was not proved at both ends";
  const Broken<WrongOpening, OpeningBounds> kBroken[] = {
      {kAnswerInAnyStage, "a half is connected twice", {.openings = 1, .repeats = 1}},
      {kAnswerOfAnother, "a half is connected twice", {.repeats = 1}},
      {kProvedOfAnother, kUnproved, {.repeats = 1}},
      {kProvedOfAnother, "one end has a path that the other has not", {.losses = 1}},
      {kEndsAgain, kTwice, {.openings = 1, .repeats = 1}},
      {kGoesOn, "an opening that has ended goes on", {}},
      {kNumberAgain, "a number is used twice", {}},
      {kNoWordOfPurpose, "what has ended was opened for something else", {}},
      {kWaitsForDriver, kForEver, {.lates = 1}},
      {kWaitsForTransfer, kForEver, {.breaks = 1}},
      {kWaitsForDropped, kForEver, {.losses = 1}},
      {kFailedCounts, kUnproved, {.openings = 1, .breaks = 1}},
      {kDoesNotWaitForCall, "a half is used before it is connected", {.openings = 1}},
      {kPeerOwesFromTheStart, "the time for which the peer owes an answer is another", {.openings = 1}},
      {kTwoHalves, "an end has two halves of one path", {.openings = 1, .repeats = 1}},
      {kPeerFailedCounts, kUnproved, {.openings = 1, .breaks = 1}},
      {kPeerWaitsForTransfer, kForEver, {.openings = 1, .breaks = 1}},
  };
  for (const auto& broken : kBroken) expect_that_it_fails<TestedOpening, OpeningModel>(broken);
}

// --- Failback ---------------------------------------------------------------------------------------------

TEST(FailbackModel, traffic_comes_home_in_time_and_not_before) {
  expect_that_it_holds("60 ticks, 1 failure, 1 port event", FailbackModel({.falls = 1, .hints = 1}));
  expect_that_it_holds("24 ticks, 2 failures, 1 opening refused or path dropped",
                       FailbackModel({.ticks = 24, .falls = 2, .refusals = 1}));
  expect_that_it_holds("12 ticks, 2 failures, 1 late answer, 1 other path opened or dropped, 1 port event",
                       FailbackModel({.ticks = 12, .falls = 2, .hints = 1, .slow = 1, .others = 1}));
  expect_that_it_holds("14 ticks and 1 long time, 3 failures",
                       FailbackModel({.ticks = 14, .falls = 3, .longs = 1}));
}

TEST(FailbackModel, each_wrong_decision_is_found) {
  using enum WrongFailback;
  static constexpr const char* kEarly = "a rail is tried before its wait is over";
  static constexpr const char* kLate = "a rail is not tried when its wait is over";
  const Broken<WrongFailback, FailbackBounds> kBroken[] = {
      {kTwoAtOnce, "two failbacks at once", {.ticks = 20, .falls = 1}},
      {kDoesNotSettle, "traffic returns before the rail has settled", {.ticks = 20, .falls = 1}},
      {kUnansweredCounts,
       "traffic returns to a path that has not answered",
       {.ticks = 20, .falls = 1, .slow = 2}},
      {kProbesOnce, "traffic returns to a path that has not answered of late", {.ticks = 20, .falls = 1}},
      {kNeverWaitsLonger, kEarly, {.ticks = 20, .falls = 1}},
      {kNoCeiling, kLate, {.falls = 1}},
      {kNeverForgives, kLate, {.ticks = 8, .falls = 2, .longs = 1}},
      {kTriesAtOnce, kEarly, {.ticks = 20, .falls = 1}},
      {kBelievesEveryPort, kEarly, {.falls = 1, .hints = 1}},
      {kNeverTries, kLate, {.ticks = 20, .falls = 1}},
      {kKeepsFailed, "a rail that works is not used", {.ticks = 30, .falls = 2}},
      {kAnotherPathDropped, "the path on probation is another", {.ticks = 20, .falls = 1, .others = 1}},
      {kNotUpAgain, "the home rail is taken for what it is not", {.ticks = 20, .falls = 1}},
      {kNotNear, "a try falls due while the service thread sleeps", {.ticks = 20, .falls = 1}},
  };
  for (const auto& broken : kBroken) expect_that_it_fails<TestedFailback, FailbackModel>(broken);
}

// --- Outage -----------------------------------------------------------------------------------------------

TEST(OutageModel, a_peer_counts_as_ended_in_time_and_not_before) {
  for (const bool sender : {true, false}) {
    const std::string end = sender ? "sender, " : "receiver, ";
    const auto holds = [&](const char* what, OutageBounds bounds) {
      bounds.sender = sender;
      expect_that_it_holds((end + what).c_str(), OutageModel(bounds));
    };
    holds("50 ms × 10, 1 silence, 1 reset, 1 pause, peer may end",
          {.ticks = 10, .silences = 1, .breaks = 1, .pauses = 1, .ends = true, .worker = true});
    holds("50 ms × 10, 1 silence, 2 resets", {.ticks = 10, .silences = 1, .breaks = 2});
    holds("50 ms × 32, 1 reset, peer may stop answering", {.ticks = 32, .breaks = 1, .deaf = true});
    holds("500 ms × 24, 1 silence, 1 reset, peer may stop answering",
          {.tick_ms = 500, .ticks = 24, .silences = 1, .breaks = 1, .deaf = true});
    holds("set-up: 50 ms × 42, 1 reset, peer may end",
          {.sets_up = true, .ticks = 42, .breaks = 1, .ends = true});
    holds("path works: 50 ms × 42, 1 reset, peer may end",
          {.ticks = 42, .breaks = 1, .ends = true, .in_haste = false});
    holds("path works, firewall: 50 ms × 12, 2 resets, peer may end",
          {.ticks = 12, .breaks = 2, .ends = true, .in_haste = false, .firewall = true});
  }
  expect_that_it_holds(
      "sender, peer has given up: 150 ms × 18, 1 silence, 1 reset",
      OutageModel({.tick_ms = 150, .ticks = 18, .silences = 1, .breaks = 1, .gives_up = true}));
}

TEST(OutageModel, each_wrong_decision_is_found) {
  using enum WrongOutage;
  static constexpr const char* kEarly = "a process counts as ended too early";
  static constexpr const char* kForEver = "the peer's process is waited for without a bound";
  const OutageBounds silent{.tick_ms = 500, .ticks = 24, .silences = 1};
  const Broken<WrongOutage, OutageBounds> kBroken[] = {
      {kNoPatience, kEarly, silent},
      {kPauseCounts, kEarly, {.silences = 1, .breaks = 1, .pauses = 1}},
      {kOneRefusalInSetUp,
       "in set-up a process counts as ended before it has refused for long",
       {.sets_up = true, .ends = true}},
      {kBrokenIsRefused,
       "in set-up a process counts as ended before it has refused for long",
       {.sets_up = true, .ticks = 42, .breaks = 1, .ends = true}},
      {kOneCloseIsEnough, kEarly, {.tick_ms = 150, .ticks = 18, .breaks = 1, .gives_up = true}},
      {kClosingIsGivenUp,
       "a peer that closes connections counts as ended when nobody minds",
       {.tick_ms = 150, .ticks = 18, .breaks = 1, .gives_up = true, .closing = true}},
      {kKeepsConnection, "two connections are made at once", {.breaks = 2}},
      {kTriesAtOnce, "a connection is tried again without a pause", {.breaks = 2}},
      {kNeverTries, "nobody tries to connect", {.ticks = 6, .breaks = 1}},
      {kWaitsForConnection,
       "a connection that is not made is waited for without a bound",
       {.sets_up = true, .ticks = 25, .silences = 1}},
      {kNeverReached, kEarly, {.sender = false, .breaks = 1}},
      {kNeverAsks, "nobody asks over a connection", {.breaks = 1}},
      {kNeverOver, kForEver, {.silences = 1, .breaks = 1}},
      {kRefusalIgnored, "a process that has ended does not count as that", {.breaks = 1, .ends = true}},
      {kDataIgnored,
       "a process counts as ended that moves data",
       {.breaks = 1, .in_haste = false, .firewall = true}},
      {kAlwaysInHaste,
       "a process counts as ended before it has refused for long",
       {.breaks = 1, .ends = true, .in_haste = false}},
      {kGoesOn, "an outage that is over lasts", {.breaks = 1}},
      {kWrongTime, "the outage is said to have lasted for another time", {.breaks = 1}},
      {kToldWhileWorkerBusy,
       "a channel fails before what its path has brought is taken in",
       {.breaks = 1, .ends = true, .worker = true}},
      {kWorkerForEver,
       "a driver call is waited for without a bound",
       {.breaks = 1, .ends = true, .worker = true}},
  };
  for (const auto& broken : kBroken) expect_that_it_fails<TestedOutage, OutageModel>(broken);
}

// --- Turn -------------------------------------------------------------------------------------------------

TEST(TurnModel, what_is_to_be_done_is_done_and_then_it_sleeps) {
  expect_that_it_holds("4 events", TurnModel({.events = 4}));
  expect_that_it_holds("4 events, without resilience", TurnModel({.resilient = false, .events = 4}));
}

TEST(TurnModel, each_wrong_decision_is_found) {
  using enum WrongTurn;
  static constexpr const char* kStarved = "something is to be done, and turn after turn does not do it";
  static constexpr const char* kSleeps = "the service thread sleeps, and something is to be done";
  static constexpr const char* kSpins = "the service thread does not sleep, although there is nothing to do";
  const Broken<WrongTurn, TurnBounds> kBroken[] = {
      {kErrorEndsNoTurn, kSpins, {}},
      {kWorksAfterError, "a channel that is over is worked on", {}},
      {kLeavesTwice, "a path is left while another one is", {}},
      {kNoRemoval, kStarved, {}},
      {kNoOutage, kStarved, {}},
      {kNoSetUp, "a connection that brings nothing in set-up is not replaced", {}},
      {kNoRetired, kStarved, {}},
      {kClosedEarlyForgotten, kSleeps, {}},
      {kPeerEndedForgotten, kSleeps, {}},
      {kTooLateForgotten, kStarved, {}},
      {kProbesUnread, kStarved, {}},
      {kSleepsInOutage, kSleeps, {}},
      {kSleepsWithRetired, kSleeps, {}},
      {kSleepsInSetUp, kSleeps, {}},
      {kSleepsWhenAsked, kSleeps, {}},
      {kSleepsWhileProbing, kSleeps, {}},
      {kSleepsInMigration, kSleeps, {}},
      {kSleepsAfterError, kSleeps, {}},
      {kSleepsWhileSettling, kSleeps, {}},
      {kSleepsThroughNearTry, kSleeps, {}},
      {kNeverSleeps, kSpins, {}},
  };
  for (const auto& broken : kBroken) expect_that_it_fails<TestedTurn, TurnModel>(broken);
}

}  // namespace
}  // namespace r2ccl::model
