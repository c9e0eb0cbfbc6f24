// SPDX-License-Identifier: Apache-2.0
// The rules of the agreement, explored: every order in which ranks begin operations and messages arrive, are
// lost, come twice or overtake each other, while capacities change, a proposal is given up and the
// coordinator dies. No operation ever begins under two views; when messages flow again every hold ends and
// everybody has the newest capacities. Each rule is switched off in turn, and the exploration finds what it
// is there for.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>

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
constexpr const char* kOtherLinks = "rank 0 does not know of the links what their rank does";

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

TEST(AgreementModel, links_become_slow_one_after_the_other) {
  expect_right({.ranks = 3, .nics = 1, .links = true, .operations = 2, .changes = 2, .report_at_once = true});
  expect_right({.ranks = 3, .nics = 1, .links = true, .operations = 1, .changes = 2, .in_order = true});
}

constexpr Setting kTrial{.ranks = 3, .nics = 1, .trial = true, .operations = 0, .changes = 3};
Setting trial(const std::function<void(Setting&)>& but) {
  Setting setting = kTrial;
  but(setting);
  return setting;
}
TEST(AgreementModel, a_nic_that_gets_its_full_share_again_is_slow_once_more) {
  expect_right(trial([](Setting& s) { s.operations = 1, s.report_at_once = true; }));
  expect_right(trial([](Setting& s) { s.in_order = true; }));
  expect_right(kTrial);
}
TEST(AgreementModel, a_trial_and_lost_messages) {
  expect_right(trial([](Setting& s) { s.losses = 1, s.crashes = 1, s.report_at_once = true; }));
}
TEST(AgreementModel, a_trial_and_repeated_messages) { expect_right(trial([](Setting& s) { s.copies = 1; })); }
TEST(AgreementModel, a_trial_is_given_up) {
  expect_right(trial([](Setting& s) { s.aborts = 1, s.report_at_once = true; }));
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
TEST(DeepAgreementModel, a_trial_and_lost_reports) {
  expect_right(trial([](Setting& s) { s.losses = 1, s.in_order = true; }));
}
TEST(DeepAgreementModel, a_trial_is_given_up_and_reports_are_late) {
  expect_right(trial([](Setting& s) { s.aborts = 1, s.in_order = true; }));
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
TEST(AgreementRule, trials_end_reports) {
  expect_found(without(&AgreementRules::trials_end_reports, trial([](Setting& s) { s.in_order = true; })), kOtherLinks);
}
TEST(AgreementRule, unanswered_is_repeated) {
  expect_found(without(&AgreementRules::unanswered_is_repeated,
                       {.ranks = 2, .changes = 1, .losses = 1, .report_at_once = true}),
               "a hold that does not end");
}

}  // namespace
}  // namespace r2ccl::collective
