// SPDX-License-Identifier: Apache-2.0
// Scenarios that compare two modes within one job: what they say, and what they are refused for.
#include <gtest/gtest.h>

#include "harness/scenario/testing/problems_of.h"

namespace r2bench {
namespace {

Scenario beside_scenario(const std::string& body) {
  return parse_scenarios("x.yaml", "version: 1\n" + body + "\n").at(0);
}

TEST(Beside, a_mode_is_enough) {
  const Scenario scenario =
      beside_scenario("workload: {iters: 64}\nmodes: [baseline, {mode: balance, beside: migrate}]");
  EXPECT_FALSE(scenario.modes[0].beside);
  EXPECT_FALSE(scenario.compares_sides(scenario.modes[0]));
  ASSERT_TRUE(scenario.modes[1].beside);
  EXPECT_EQ(scenario.modes[1].kind, ModeKind::kBalance);
  EXPECT_EQ(scenario.modes[1].beside->kind, ModeKind::kMigrate);
  EXPECT_TRUE(scenario.modes[1].beside->env.empty());
  EXPECT_TRUE(scenario.compares_sides(scenario.modes[1]));
  EXPECT_EQ(scenario.workload.pairs(), 1);
}

TEST(Beside, the_other_side_may_have_variables_of_its_own_and_more_communicators) {
  const Scenario scenario = beside_scenario(
      "workload: {iters: 128, copies: 4}\n"
      "modes: [{mode: balance, env: {R2CC_TRACE_SLOTS: 7}, beside: {mode: balance, env: {R2CC_A: 2}}}]");
  ASSERT_TRUE(scenario.modes[0].beside);
  EXPECT_EQ(scenario.modes[0].beside->env, (std::map<std::string, std::string>{{"R2CC_A", "2"}}));
  EXPECT_EQ(scenario.workload.pairs(), 4);
}

TEST(Beside, gpus_have_eight_communicators_of_each_transport_unless_told) {
  const std::string text = "modes: [{mode: migrate, transport: plugin_beside_ib}]\nworkload: {engine: nccl, ";
  const Scenario scenario = beside_scenario(text + "iters: 256}");
  EXPECT_EQ(scenario.workload.pairs(), 8);
  EXPECT_TRUE(scenario.compares_sides(scenario.modes[0]));
  EXPECT_EQ(beside_scenario(text + "iters: 64, copies: 2}").workload.pairs(), 2);
}

TEST(Beside, a_ratio_can_be_expected_of_either_engine) {
  const char* expect = "\nexpect: {all: {beside_ratio: <= 1.02, beside_operations: 64}}";
  const Scenario cpu = beside_scenario(
      std::string("workload: {iters: 64}\nmodes: [{mode: balance, beside: migrate}]") + expect);
  ASSERT_EQ(cpu.expectations.size(), 2u);
  EXPECT_EQ(cpu.expectations[0].metric, "beside_ratio");
  const Scenario nccl = beside_scenario(
      std::string(
          "workload: {engine: nccl, iters: 256}\nmodes: [{mode: baseline, transport: ib_beside_ib}]") +
      expect);
  EXPECT_EQ(nccl.expectations.size(), 2u);
}

TEST(OwnPlugin, is_the_modes_or_the_other_sides) {
  const Scenario scenario = beside_scenario(
      "workload: {iters: 64, plugin: a}\n"
      "modes: [baseline, {mode: migrate, plugin: b, beside: baseline}, {mode: balance, beside: {mode: "
      "baseline, plugin: c}}]");
  const auto plugin = [&](size_t mode) { return scenario.plugin_of(scenario.modes[mode]); };
  const auto other = [&](size_t mode) {
    return scenario.plugin_of(scenario.modes[mode], *scenario.modes[mode].beside);
  };
  EXPECT_EQ(plugin(0), "a");
  EXPECT_EQ(plugin(1), "b");
  EXPECT_EQ(other(1), "b");
  EXPECT_EQ(plugin(2), "a");
  EXPECT_EQ(other(2), "c");
}

TEST(OwnPlugin, is_for_the_engine_cpu_and_not_empty) {
  for (const auto& [body, message] :
       {std::pair{"workload: {engine: nccl}\nmodes: [{mode: baseline, plugin: b}]",
                  "write 'engine: cpu', or"},
        std::pair{"workload: {engine: exec, command: [x]}\nmodes: [{mode: baseline, plugin: b}]",
                  "write 'engine: cpu', or"},
        std::pair{"modes: [{mode: baseline, plugin: ''}]", "'plugin' is empty"},
        std::pair{"workload: {iters: 64}\nmodes: [{mode: baseline, beside: {mode: baseline, plugin: ''}}]",
                  "'plugin' is empty"}}) {
    const std::vector<Problem> problems = problems_of(std::string("version: 1\n") + body + "\n");
    ASSERT_FALSE(problems.empty());
    EXPECT_NE(problems[0].message.find(message), std::string::npos) << problems[0].message;
    EXPECT_GT(problems[0].line, 1);
  }
}

/// Copies and expectations of a mode that is left out are not in the way of the others.
TEST(Beside, the_modes_that_compare_nothing_can_be_run_alone) {
  const std::string text =
      "version: 1\nworkload: {iters: 64, copies: 2}\n"
      "modes: [migrate, {mode: balance, beside: migrate}]\nexpect: {balance: {beside_ratio: <= 2}}\n";
  const std::vector<Scenario> all = parse_scenarios("x.yaml", text, {.modes = {"migrate"}});
  ASSERT_EQ(all.at(0).modes.size(), 1u);
  EXPECT_TRUE(all[0].expectations.empty());
}

struct BesideCase {
  const char* name;
  const char* body;  ///< begins at line 2
  int line;
  int column;
  const char* message;  ///< part of it
};

class BesideRefused : public testing::TestWithParam<BesideCase> {};

TEST_P(BesideRefused, says_where_and_why) {
  const BesideCase& c = GetParam();
  const std::vector<Problem> problems = problems_of(std::string("version: 1\n") + c.body + "\n");
  ASSERT_EQ(problems.size(), 1u) << ScenarioError(problems).what();
  EXPECT_EQ(problems[0].line, c.line) << to_string(problems[0]);
  EXPECT_EQ(problems[0].column, c.column) << to_string(problems[0]);
  EXPECT_NE(problems[0].message.find(c.message), std::string::npos) << to_string(problems[0]);
}

#define SIXTY_FOUR "workload: {iters: 64}\n"

INSTANTIATE_TEST_SUITE_P(
    Mode, BesideRefused,
    testing::Values(
        BesideCase{"unknown", SIXTY_FOUR "modes: [{mode: balance, beside: migrat}]", 3, 33,
                   "unknown mode 'migrat'; did you mean 'migrate'?"},
        BesideCase{"unknown_in_map", SIXTY_FOUR "modes: [{mode: balance, beside: {mode: migrat}}]", 3, 40,
                   "unknown mode 'migrat'; did you mean 'migrate'?"},
        BesideCase{"missing", SIXTY_FOUR "modes: [{mode: balance, beside: {env: {A: b}}}]", 3, 33,
                   "'beside' needs 'mode'"},
        BesideCase{"key", SIXTY_FOUR "modes: [{mode: balance, beside: {mode: migrate, envs: {A: b}}}]", 3, 49,
                   "unknown key 'envs' in 'the other side'; did you mean 'env'?"},
        BesideCase{"list", SIXTY_FOUR "modes: [{mode: balance, beside: [migrate]}]", 3, 33,
                   "must be a map of keys and values, but is a list"},
        BesideCase{"own_mode",
                   SIXTY_FOUR "modes: [{mode: balance, beside: {mode: migrate, env: {R2CC_MODE: 1}}}]", 3, 55,
                   "choose the mode under 'modes'"},
        BesideCase{"own_env",
                   SIXTY_FOUR "modes: [{mode: balance, beside: {mode: migrate, env: {R2CC_TRACE: x}}}]", 3,
                   55, "'R2CC_TRACE' is set by r2bench itself"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Job, BesideRefused,
    testing::Values(
        BesideCase{"nccl", "workload: {engine: nccl, iters: 256}\nmodes: [{mode: balance, beside: migrate}]",
                   3, 8, "in 'engine: nccl' write 'transport: plugin_beside_ib' instead"},
        BesideCase{"exec",
                   "workload: {engine: exec, command: [x]}\nmodes: [{mode: balance, beside: migrate}]", 3, 8,
                   "write 'engine: cpu'"},
        BesideCase{"repeats",
                   SIXTY_FOUR "modes: [{mode: balance, beside: migrate}]\nrepeats: 2\n"
                              "faults: [{at: {iter: 2}, target: node1/nic0, kind: port_down, for: 1 s}]",
                   4, 10, "leave out 'repeats'"},
        BesideCase{"one_queue_pair",
                   SIXTY_FOUR "modes: [{mode: balance, beside: migrate}]\n"
                              "faults: [{at: {iter: 2}, target: node1/nic0, kind: qp_error}]",
                   4, 10, "would strike one of them alone; write 'qp: all'"},
        BesideCase{"pairs", SIXTY_FOUR "modes: [migrate, {mode: balance, beside: migrate}]\npairs: 8", 4, 8,
                   "those of mode 'balance' have the operations of two sides; leave out 'pairs'"},
        BesideCase{"pairs_of_transports",
                   "workload: {engine: nccl, iters: 256}\n"
                   "modes: [migrate, {mode: migrate, label: a, transport: plugin_beside_ib}]\npairs: 8",
                   4, 8, "those of mode 'a' have the operations of two sides"},
        BesideCase{"iters", "workload: {iters: 48}\nmodes: [{mode: balance, beside: migrate}]", 2, 19,
                   "begins equally often in a multiple of 32 operations (32 × copies)"},
        BesideCase{"iters_of_copies",
                   "workload: {iters: 96, copies: 2}\nmodes: [{mode: balance, beside: migrate}]", 2, 19,
                   "in a multiple of 64 operations"},
        BesideCase{"no_iters", "modes: [{mode: balance, beside: migrate}]", 2, 8,
                   "write such a number as 'iters'"},
        BesideCase{"copies_of_nothing", "workload: {iters: 64, copies: 2}\nmodes: [balance]", 2, 31,
                   "'copies' is for modes that compare two sides"},
        BesideCase{"too_many_copies",
                   "workload: {iters: 544, copies: 17}\nmodes: [{mode: balance, beside: migrate}]", 2, 32,
                   "16"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Expectation, BesideRefused,
    testing::Values(
        BesideCase{"nothing_compared", "modes: [balance]\nexpect: {balance: {beside_ratio: <= 1.02}}", 3, 34,
                   "compares the two sides of one job, and mode 'balance' has one; write 'beside' in it"},
        BesideCase{"not_in_all",
                   SIXTY_FOUR "modes: [migrate, {mode: balance, beside: migrate}]\n"
                              "expect: {all: {beside_operations: 64}}",
                   4, 35, "mode 'migrate' has one"},
        BesideCase{"rate_of_one_side",
                   SIXTY_FOUR "modes: [{mode: balance, beside: migrate}]\n"
                              "faults: [{at: {iter: 2}, target: node1/nic0, kind: port_down}]\n"
                              "expect: {balance: {retained_bw: 0.9}}",
                   5, 33,
                   "'retained_bw' needs every delivery, and the trace of mode 'balance' has those of one"},
        BesideCase{"time_of_one_side",
                   SIXTY_FOUR "modes: [{mode: balance, beside: migrate}]\n"
                              "faults: [{at: {iter: 2}, target: node1/nic0, kind: port_down}]\n"
                              "expect: {all: {recover_ms.max: <= 9 ms}}",
                   5, 32, "'recover_ms.max' needs every delivery"},
        BesideCase{
            "cpu_of_one_side",
            "workload: {engine: nccl, iters: 256}\nmodes: [{mode: migrate, transport: plugin_beside_ib}]\n"
            "expect: {migrate: {cpu_per_gb: <= 9}}",
            4, 32, "'cpu_per_gb' needs every delivery"},
        BesideCase{"transport",
                   "workload: {engine: nccl}\nmodes: [migrate]\nexpect: {migrate: {beside_ratio: <= 1.02}}",
                   4, 34, "write 'transport: plugin_beside_ib'"},
        BesideCase{"unit",
                   SIXTY_FOUR
                   "modes: [{mode: balance, beside: migrate}]\nexpect: {balance: {beside_ratio: <= 2 %}}",
                   4, 37, "'beside_ratio' is a plain number"}),
    [](const auto& info) { return std::string(info.param.name); });

#undef SIXTY_FOUR

}  // namespace
}  // namespace r2bench
