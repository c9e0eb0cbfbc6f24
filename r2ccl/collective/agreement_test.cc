// SPDX-License-Identifier: Apache-2.0
// The rules of the agreement, explored: every order in which ranks begin operations and messages arrive, are
// lost, come twice or overtake each other, while capacities change, a proposal is given up and the
// coordinator dies. No operation ever begins under two views; when messages flow again every hold ends and
// everybody has the newest capacities. Each rule is switched off in turn, and the exploration finds what it
// is there for.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "r2ccl/collective/agreement_message.h"
#include "r2ccl/collective/testing/agreement_model.h"

namespace r2ccl::collective {
namespace {

using namespace agreement_model;

model::Outcome explored(const Setting& setting, uint64_t limit = 30'000'000) {
  const model::Outcome outcome = model::explore(Model(setting), limit);
  std::printf("%llu states, %llu steps, at most %u in a row, %.1f s: %s\n",
              static_cast<unsigned long long>(outcome.states), static_cast<unsigned long long>(outcome.steps),
              outcome.longest, outcome.seconds,
              outcome.violation.empty() ? "right" : outcome.violation.c_str());
  return outcome;
}

void expect_right(const Setting& setting) {
  const model::Outcome outcome = explored(setting);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.complete);
  EXPECT_GT(outcome.ends, 0u);
  for (const std::string& step : outcome.trace) std::printf("  %s\n", step.c_str());
}

void expect_found(const Setting& setting, const std::string& violation) {
  const model::Outcome outcome = explored(setting);
  EXPECT_EQ(outcome.violation, violation);
}

constexpr const char* kTwoViews = "an operation under two views";

TEST(AgreementModel, two_ranks_two_changes_reordered_messages) {
  expect_right({.ranks = 2, .operations = 3, .changes = 2});
}
TEST(AgreementModel, operations_ahead_of_the_ready) {
  expect_right({.ranks = 2, .operations = 3, .ahead = 1, .changes = 2, .report_at_once = true});
}
TEST(AgreementModel, reports_are_lost_and_repeated) {
  expect_right({.ranks = 2, .operations = 1, .changes = 2, .losses = 1, .in_order = true});
}
TEST(AgreementModel, messages_are_lost) {
  expect_right({.ranks = 2, .operations = 2, .changes = 2, .losses = 1, .report_at_once = true});
}
TEST(AgreementModel, messages_are_repeated) {
  expect_right({.ranks = 2, .operations = 2, .changes = 2, .copies = 1, .report_at_once = true});
}
TEST(AgreementModel, a_proposal_is_given_up) {
  expect_right({.ranks = 2, .operations = 2, .changes = 1, .losses = 1, .aborts = 1, .report_at_once = true});
}
TEST(AgreementModel, the_coordinator_dies) {
  expect_right(
      {.ranks = 2, .operations = 2, .changes = 2, .losses = 1, .crashes = 1, .report_at_once = true});
}
TEST(AgreementModel, two_sequences) {
  expect_right({.ranks = 2, .sequences = 2, .operations = 2, .changes = 2, .report_at_once = true});
}
TEST(AgreementModel, three_ranks) {
  expect_right({.ranks = 3, .operations = 2, .changes = 1, .copies = 1, .report_at_once = true});
}
TEST(AgreementModel, three_ranks_the_coordinator_dies) {
  expect_right({.ranks = 3, .operations = 2, .changes = 1, .crashes = 1, .report_at_once = true});
}

TEST(AgreementModel, a_nic_degrades_and_its_node_as_a_whole_does_not) {
  expect_right({.ranks = 2, .nics = 2, .operations = 2, .changes = 2, .losses = 1, .report_at_once = true});
}

TEST(Admission, answers_with_the_view_of_each_operation) {
  const auto view = [](uint64_t epoch) {
    auto made = std::make_shared<View>();
    made->epoch = epoch;
    return made;
  };
  Admission admission(view(0));
  EXPECT_EQ(admission.limit(), kNever);
  EXPECT_EQ(admission.admit(0)->epoch, 0u);
  EXPECT_EQ(admission.hold(2), 3u);
  EXPECT_EQ(admission.admit(1)->epoch, 0u);
  EXPECT_EQ(admission.admit(2)->epoch, 0u);
  EXPECT_EQ(admission.admit(3), nullptr);
  admission.resume(5, view(1));
  EXPECT_EQ(admission.limit(), 5u);
  EXPECT_EQ(admission.admit(3)->epoch, 0u);
  EXPECT_EQ(admission.hold(4), 8u);
  admission.resume(8, view(2));
  EXPECT_EQ(admission.admit(4)->epoch, 0u);
  EXPECT_EQ(admission.admit(5)->epoch, 1u);
  EXPECT_EQ(admission.admit(7)->epoch, 1u);
  EXPECT_EQ(admission.limit(), 8u);
  EXPECT_EQ(admission.admit(8)->epoch, 2u);
  EXPECT_EQ(admission.hold(0), 9u);
  EXPECT_EQ(admission.admit(9), nullptr);
  admission.resume(0, nullptr);  // an abort
  EXPECT_EQ(admission.admit(9)->epoch, 2u);
}

TEST(Capacity, changes_below_three_percent_make_no_difference) {
  EXPECT_FALSE(differ(code_of(1), code_of(0.98)));
  EXPECT_TRUE(differ(code_of(1), code_of(0.97)));
  EXPECT_FALSE(differ(code_of(0.50), code_of(0.49)));
  EXPECT_TRUE(differ(code_of(0.50), code_of(0.48)));
  EXPECT_TRUE(differ(code_of(0), code_of(0.01)));
  EXPECT_FALSE(differ(code_of(0), code_of(-1)));
}

TEST(Capacity, a_nic_makes_a_difference_from_eight_percent_on) {
  NodeCapacity one, other;
  other.nics[1] = 0.93;
  EXPECT_FALSE(differ(codes_of(one, 2), codes_of(other, 2)));
  other.nics[1] = 0.91;
  EXPECT_TRUE(differ(codes_of(one, 2), codes_of(other, 2)));
  EXPECT_FALSE(differ(codes_of(one, 1), codes_of(other, 1)));  // not of the group
  EXPECT_TRUE(differ(codes_of(NodeCapacity(0.97), 2), codes_of(one, 2)));
}

TEST(AgreementMessage, nics_travel_as_far_as_a_frame_has_room_for_them) {
  EXPECT_EQ(nics_told(64, 8), 8u);
  EXPECT_EQ(nics_told(2000, 8), 0u);
  AgreementMessage proposal;
  proposal.type = Type::kPropose;
  proposal.epoch = 3;
  proposal.capacities = {7500, 0, kNominal, kNominal, kNominal, kNominal};
  const auto bytes = encode(proposal);
  EXPECT_EQ(decode(bytes, 2, 2).value(), proposal);
  EXPECT_FALSE(decode(bytes, 2, 0).ok());  // of a rank that tells of no NICs
  EXPECT_FALSE(decode(bytes, 3, 2).ok());
}

TEST(ReportPacer, bursts_are_one_report_and_small_changes_become_rare) {
  constexpr uint64_t kMs = 1'000'000;
  ReportPacer pacer(10 * kMs);
  EXPECT_EQ(pacer.due({kNominal}, {kNominal}, 0), kNever);
  EXPECT_EQ(pacer.due({5000}, {kNominal}, 100 * kMs), 110 * kMs);
  EXPECT_EQ(pacer.due({4000}, {kNominal}, 105 * kMs), 110 * kMs);  // still the same burst
  pacer.done(110 * kMs);
  EXPECT_EQ(pacer.due({4000}, {4000}, 110 * kMs), kNever);
  EXPECT_EQ(pacer.due({kNominal}, {4000}, 111 * kMs), 160 * kMs);  // a large change waits for the least pause
  EXPECT_EQ(pacer.due({4000}, {4000}, 112 * kMs), kNever);         // and has gone by itself
  uint64_t now = 1000 * kMs, last = 0;
  for (int i = 0; i < 10; ++i) {
    const uint64_t when = pacer.due({4200}, {4000}, now);
    EXPECT_GE(when - now, last);
    last = when - now;
    now = when;
    pacer.done(now);
  }
  EXPECT_EQ(last, 2000 * kMs);
  EXPECT_EQ(pacer.due({9000}, {4000}, now + kMs), now + 50 * kMs);  // a failure does not wait for that
  EXPECT_EQ(pacer.due({4000}, {4000}, now + kMs), kNever);
  now += 20'000 * kMs;
  EXPECT_EQ(pacer.due({4200}, {4000}, now), now + 10 * kMs);
  pacer.done(now + 10 * kMs);
  EXPECT_EQ(pacer.due({4000}, {4200}, now + 11 * kMs), now + 60 * kMs);  // all quiet since: as in the beginning
}

// A coordinator's group that does not decide for the tuner, or a rank that does not count its operations: the
// tuner's sequence keeps its view, and gets the newest one as soon as all count.
TEST(Agreement, a_sequence_that_somebody_does_not_count_keeps_its_view) {
  Coordinator coordinator(2);
  Member members[2];
  std::vector<Coordinator::Outgoing> out;
  const auto run = [&](const Points& of_rank_1) {
    std::optional<Decision> last;
    while (!out.empty()) {
      const auto [to, message] = out.front();
      out.erase(out.begin());
      std::optional<Decision> decision;
      const auto answer = members[to].on_message(message, to == 0 ? Points{5, 6} : of_rank_1, decision);
      if (decision) last = decision;
      if (answer) coordinator.on_message(to, *answer, out);
    }
    return last;
  };
  coordinator.on_message(0, members[0].report({kNominal}, kAllSequences), out);
  coordinator.on_message(1, members[1].report({5000}, bit(Sequence::kEngine)), out);
  run({});
  ASSERT_TRUE(coordinator.due(kAllSequences));
  coordinator.propose(kAllSequences, out);
  auto decision = run({3, kNever});
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->from, (Points{5, kNever}));
  EXPECT_FALSE(coordinator.due(kAllSequences));
  coordinator.on_message(1, members[1].report({5000}, kAllSequences), out);
  run({});
  EXPECT_FALSE(coordinator.due(bit(Sequence::kEngine)));
  ASSERT_TRUE(coordinator.due(kAllSequences));
  coordinator.propose(kAllSequences, out);
  decision = run({9, 8});
  EXPECT_EQ(decision->from, (Points{9, 8}));
  EXPECT_FALSE(coordinator.due(kAllSequences));
}

// Deeper: minutes.
TEST(DeepAgreementModel, every_fault_at_once) {
  expect_right({.ranks = 2,
                .operations = 2,
                .changes = 1,
                .losses = 1,
                .copies = 1,
                .aborts = 1,
                .crashes = 1,
                .report_at_once = true});
}
TEST(DeepAgreementModel, two_lost_messages) {
  expect_right({.ranks = 2, .operations = 3, .changes = 2, .losses = 2, .report_at_once = true});
}
TEST(DeepAgreementModel, three_ranks_a_lost_message) {
  expect_right({.ranks = 3, .operations = 2, .changes = 1, .losses = 1, .report_at_once = true});
}
TEST(DeepAgreementModel, two_changes_and_a_proposal_given_up) {
  expect_right({.ranks = 2, .operations = 2, .changes = 2, .copies = 1, .aborts = 1, .report_at_once = true});
}
TEST(DeepAgreementModel, three_changes) {
  expect_right({.ranks = 2, .operations = 3, .ahead = 1, .changes = 3, .report_at_once = true});
}
TEST(DeepAgreementModel, three_ranks_two_changes) {
  expect_right({.ranks = 3, .operations = 1, .changes = 2, .report_at_once = true});
}

// Each rule is needed: without it the exploration finds an execution that is wrong.
Setting without(bool AgreementRules::*rule, Setting setting) {
  setting.rules.*rule = false;
  return setting;
}
constexpr Setting kPlain{.ranks = 2, .operations = 3, .changes = 2, .report_at_once = true};
constexpr Setting kCopies{.ranks = 2, .operations = 3, .changes = 2, .copies = 1, .report_at_once = true};
constexpr Setting kAborts{.ranks = 2, .operations = 3, .changes = 2, .aborts = 1, .report_at_once = true};

TEST(AgreementRule, operations_are_held) {
  Setting setting = kPlain;
  setting.holds = false;
  expect_found(setting, kTwoViews);
}
TEST(AgreementRule, the_largest_point) {
  expect_found(without(&AgreementRules::the_largest_point, kPlain), kTwoViews);
}
TEST(AgreementRule, everybody_is_ready) {
  expect_found(without(&AgreementRules::everybody_is_ready, kPlain), kTwoViews);
}
TEST(AgreementRule, answers_of_this_epoch) {
  expect_found(without(&AgreementRules::answers_of_this_epoch, kAborts), kTwoViews);
}
TEST(AgreementRule, points_are_kept) {
  Setting setting = kCopies;
  setting.operations = 4;
  setting.ahead = 1;
  expect_found(without(&AgreementRules::points_are_kept, setting), kTwoViews);
}
TEST(AgreementRule, one_at_a_time) {
  // The commit that a member has lost would never be repeated.
  const Setting setting{.ranks = 2, .operations = 1, .changes = 2, .losses = 1, .report_at_once = true};
  expect_found(without(&AgreementRules::one_at_a_time, setting), "a run that goes on for ever");
}
TEST(AgreementRule, decisions_are_final) {
  expect_found(without(&AgreementRules::decisions_are_final, kAborts), kTwoViews);
}
TEST(AgreementRule, commits_count_once) {
  expect_found(without(&AgreementRules::commits_count_once, kCopies), kTwoViews);
}
TEST(AgreementRule, ended_epochs_stay) {
  expect_found(without(&AgreementRules::ended_epochs_stay,
                       {.ranks = 2, .operations = 1, .changes = 1, .copies = 1, .report_at_once = true}),
               "a run that goes on for ever");
}
TEST(AgreementRule, unanswered_is_repeated) {
  expect_found(without(&AgreementRules::unanswered_is_repeated,
                       {.ranks = 2, .changes = 1, .losses = 1, .report_at_once = true}),
               "a hold that does not end");
}

}  // namespace
}  // namespace r2ccl::collective
