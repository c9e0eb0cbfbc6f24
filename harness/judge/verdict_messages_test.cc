// SPDX-License-Identifier: Apache-2.0
// What is known of lost, doubled and wrong data, and by what.
#include "harness/judge/testing/verdict_fixture.h"

namespace r2bench {
namespace {

TEST_F(VerdictTest, where_nothing_was_compared_nothing_is_known_to_be_right) {
  for (const char* metric : {"wrong_elements", "duplicated", "lost"}) {
    scenario.expectations = {{"migrate", metric, "0", 0, 0, parse_condition(*find_metric(metric), "0")}};
    const std::string name = std::string("migrate.") + metric;
    migrate().correctness.messages = 1000;
    EXPECT_EQ(of(name).verdict, Verdict::kPass);
    migrate().correctness.checked_elements = 0;
    EXPECT_EQ(of(name).verdict, Verdict::kUnknown);
    EXPECT_EQ(of(name).got, "no element was compared");
    migrate().correctness.checked_elements = 1;
  }
  migrate().correctness.checked_elements = 0;
  migrate().correctness.duplicated = 1;  // the plugin said so
  scenario.expectations = {
      {"migrate", "duplicated", "0", 0, 0, parse_condition(*find_metric("duplicated"), "0")}};
  EXPECT_EQ(of("migrate.duplicated").verdict, Verdict::kFail);
}

class Messages : public VerdictTest {
 protected:
  Messages() {
    scenario.expectations.clear();
    for (const char* metric : {"duplicated", "lost"})
      scenario.expectations.push_back(
          {"migrate", metric, "0", 0, 0, parse_condition(*find_metric(metric), "0")});
    baseline().outcome = Outcome::kOk;
    migrate().correctness.messages = 1000;
  }
  /// Of both metrics the same.
  std::pair<Verdict, std::string> known() {
    const Judgement lost = of("migrate.lost");
    EXPECT_EQ(of("migrate.duplicated").verdict, lost.verdict);
    EXPECT_EQ(of("migrate.duplicated").got, lost.got);
    return {lost.verdict, lost.got};
  }
  void expect_unknown(const std::string& why) {
    EXPECT_EQ(known(), std::pair(Verdict::kUnknown, why));
    EXPECT_EQ(verdict(), Verdict::kUnknown);
  }
  Correctness& c = migrate().correctness;
};

TEST_F(Messages, that_were_recognised_are_counted) {
  EXPECT_EQ(known(), std::pair(Verdict::kPass, std::string("0")));
  c.lost = c.duplicated = 2;
  EXPECT_EQ(known(), std::pair(Verdict::kFail, std::string("2")));
}

TEST_F(Messages, that_nobody_saw_are_known_not_to_be_lost_by_all_elements_being_right) {
  c.collnet_operations = 10;  // beside others whose messages were seen
  EXPECT_EQ(of("migrate.lost").verdict, Verdict::kPass);
  EXPECT_EQ(of("migrate.lost").got, "0: no element is wrong");
  c.wrong_elements = 1;
  expect_unknown("through CollNet no message is seen, and elements are wrong");
  c.wrong_elements = c.messages = c.collnet_operations = 0;
  scenario.workload.engine = Engine::kNccl;
  EXPECT_EQ(of("migrate.lost").verdict, Verdict::kPass);
  EXPECT_EQ(of("migrate.lost").got, "0: no element is wrong");
  c.wrong_elements = 1;
  expect_unknown("no message was recognised, and elements are wrong");
}

TEST_F(Messages, are_not_known_by_elements_that_hide_an_input) {
  c.messages = 0;
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
    scenario.workload.reduction = reduction;
    expect_unknown(std::string("no message was recognised, and a ") +
                   (reduction == Reduction::kMin ? "minimum" : "maximum") +
                   " does not show a missing or doubled input");
  }
}

// Half of an AllReduce's messages are copied. And where inputs are added up that is done behind the
// transport, from the buffer in which the message lies, stored once or twice.
TEST_F(Messages, that_were_stored_twice_are_not_known_by_elements) {
  c.messages = 0;
  for (const Operation op : {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
                             Operation::kBroadcast, Operation::kSendRecv, Operation::kAllToAll}) {
    scenario.workload.op = op;
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMin}) {
      if (reduces(op) && reduction == Reduction::kMin) continue;
      scenario.workload.reduction = reduction;
      EXPECT_EQ(of("migrate.lost").verdict, Verdict::kPass) << name(op);
      EXPECT_EQ(of("migrate.duplicated").verdict, Verdict::kUnknown) << name(op);
      EXPECT_EQ(
          of("migrate.duplicated").got,
          "no message was recognised, and one that is stored twice in its place leaves every element right");
    }
  }
  c.duplicated = 1;
  EXPECT_EQ(of("migrate.duplicated").verdict, Verdict::kFail) << "counted by the plugin";
}

TEST_F(Messages, of_a_command_are_unknown) {
  scenario.workload.engine = Engine::kExec;
  c.messages = 0;
  expect_unknown("the command sees no messages, and compares its own data");
}

// all_reduce_perf or a script may have compared its data: only r2bench has not.
TEST_F(Messages, of_a_command_that_may_compare_its_own_data_only_our_part_is_told) {
  scenario.workload.engine = Engine::kExec;
  c.messages = 0;
  c.checked_elements = 0;
  const std::string told =
      "r2bench compared no element; of a check by the command itself it knows the exit status only";
  expect_unknown(told);
  scenario.workload.exec.nccl_tests = true;
  expect_unknown("no element was compared: the table of nccl-tests has none (#wrong is N/A), or no row");
  scenario.workload.exec.nccl_tests = false;
  scenario.expectations = {
      {"migrate", "correctness", "exact", 0, 0, parse_condition(*find_metric("correctness"), "exact")}};
  EXPECT_EQ(of("migrate.correctness").verdict, Verdict::kUnknown);
  EXPECT_EQ(of("migrate.correctness").got, told);
  c.wrong_elements = 1;
  EXPECT_EQ(of("migrate.correctness").verdict, Verdict::kFail);
}

}  // namespace
}  // namespace r2bench
