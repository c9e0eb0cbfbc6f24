// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "faultinject/plan/plan.h"

namespace faultinject {
namespace {

using namespace std::chrono_literals;

FaultSpec parse(const std::string& text) { return parse_fault(YAML::Load(text), "plan.yaml"); }

PlanError error_of(const std::string& text) {
  try {
    parse_faults(YAML::Load(text), "plan.yaml");
  } catch (const PlanError& error) {
    return error;
  }
  return PlanError("", 0, 0, "");
}

TEST(PlanTrigger, a_probability_is_drawn_for_each_wr) {
  const Trigger trigger = parse("{at: {probability: 0.001}, target: '*/*', kind: noop}").trigger;
  EXPECT_EQ(trigger.kind, Trigger::Kind::kProbability);
  EXPECT_DOUBLE_EQ(trigger.probability, 0.001);
  EXPECT_DOUBLE_EQ(parse("{at: {probability: 1}, target: '*/*', kind: noop}").trigger.probability, 1);
  for (const char* text : {"0", "1.5", "-0.1", "often", "1 %"})
    EXPECT_NE(error_of("[{at: {probability: " + std::string(text) + "}, target: '*/*', kind: noop}]")
                  .message()
                  .find("not a probability"),
              std::string::npos)
        << text;
}

TEST(PlanTrigger, repeats_say_how_often_and_how_far_apart) {
  const FaultSpec flaps =
      parse("{at: {time: 1 s}, repeat: 5, every: 2 s, for: 200 ms, target: '*/*', kind: port_down}");
  EXPECT_EQ(flaps.repeat, 5u);
  EXPECT_EQ(flaps.every, 2s);
  EXPECT_EQ(flaps.duration, 200ms);
  const FaultSpec again = parse("{at: {wr: 100}, repeat: 3, target: '*/*', kind: drop_completion}");
  EXPECT_EQ(again.repeat, 3u);
  EXPECT_EQ(again.every.count(), 0);
  EXPECT_EQ(parse("{at: now, target: '*/*', kind: noop}").repeat, 1u);
}

TEST(PlanTrigger, a_repeat_that_could_not_happen_is_an_error_that_says_what_is_missing) {
  const auto why = [](const std::string& keys) {
    return error_of("[{" + keys + ", target: '*/*', kind: port_down}]").message();
  };
  EXPECT_NE(why("repeat: 2, at: now, for: 1 s").find("every: 2 s"), std::string::npos);
  EXPECT_NE(why("repeat: 2, for: 1 s").find("needs a trigger"), std::string::npos);
  EXPECT_NE(why("repeat: 2, every: 2 s, at: now").find("for: 200 ms"), std::string::npos);
  EXPECT_NE(why("every: 2 s, at: now").find("needs 'repeat'"), std::string::npos);
  EXPECT_NE(why("repeat: 2, every: 1 s, for: 1 s, at: now").find("shorter than 'every'"), std::string::npos);
  EXPECT_NE(why("repeat: 0, every: 1 s, at: now").find("1 or more"), std::string::npos);
  EXPECT_NE(why("repeat: 1000001, every: 2 s, for: 1 s, at: now").find("1000000 or less"), std::string::npos);
  EXPECT_NE(why("repeat: 2, on: x, for: 1 ms, phase: {up_to: 1 ms}").find("needs 'every'"),
            std::string::npos);
  EXPECT_NE(error_of("[{repeat: 2, at: {wr: 5}, count: all, target: '*/*', kind: drop_completion}]")
                .message()
                .find("lasts until it is healed"),
            std::string::npos);
}

TEST(PlanTrigger, after_names_a_fault_that_comes_first) {
  const auto faults = parse_faults(
      YAML::Load("- {name: first, at: {wr: 9}, target: '*/*', kind: qp_error}\n"
                 "- {after: first, target: '*/*', kind: port_down}\n"
                 "- {after: {fault: 3, until: healed, wait: 50 ms}, target: '*/*', kind: noop}\n"),
      "plan.yaml");
  EXPECT_EQ(faults[1].trigger.kind, Trigger::Kind::kAfter);
  EXPECT_EQ(faults[1].trigger.fault, "first");
  EXPECT_EQ(faults[1].trigger.until, Trigger::Until::kEffect);
  EXPECT_EQ(faults[2].trigger.fault, "3");
  EXPECT_EQ(faults[2].trigger.until, Trigger::Until::kHealed);
  EXPECT_EQ(faults[2].trigger.after, 50ms);
}

TEST(PlanTrigger, after_a_fault_that_is_not_there_is_an_error_with_its_place_and_a_suggestion) {
  const PlanError error = error_of(
      "- {name: first, at: now, target: '*/*', kind: qp_error}\n"
      "- {after: frist, target: '*/*', kind: port_down}\n");
  EXPECT_EQ(error.line(), 2);
  EXPECT_EQ(error.column(), 11);
  EXPECT_NE(error.message().find("did you mean 'first'?"), std::string::npos) << error.what();
  EXPECT_NE(error_of("[{after: x, target: '*/*', kind: noop}, {name: x, at: now, target: '*/*', kind: noop}]")
                .message()
                .find("before this one"),
            std::string::npos)
      << "its own order is the order of the list";
  EXPECT_NE(
      error_of(
          "[{name: x, at: now, target: '*/*', kind: noop}, {after: x, at: now, target: '*/*', kind: noop}]")
          .message()
          .find("one trigger"),
      std::string::npos);
  EXPECT_NE(error_of("[{name: x, at: now, target: '*/*', kind: noop},"
                     " {after: {fault: x, until: heald}, target: '*/*', kind: noop}]")
                .message()
                .find("did you mean 'healed'?"),
            std::string::npos);
}

TEST(PlanTrigger, repeats_of_what_strikes_all_queue_pairs_until_it_is_healed_say_how_long_they_last) {
  for (const char* how : {"target: '*/nic0', qp: all", "target: '*/nic0/qp:all'"}) {
    const std::string fault = std::string("kind: ack_lost, ") + how + ", at: {wr: 5}, repeat: 3";
    const PlanError error = error_of("[{" + fault + "}]");
    EXPECT_NE(
        error.message().find("ack_lost with 'qp: all' lasts until it is healed; say how long each time"),
        std::string::npos)
        << error.what();
    EXPECT_EQ(error.line(), 1) << error.what();
    EXPECT_EQ(parse("{" + fault + ", for: 20 ms}").repeat, 3u);
  }
  EXPECT_EQ(parse("{target: '*/nic0', kind: ack_lost, at: {wr: 5}, repeat: 3}").repeat, 3u);
  EXPECT_EQ(parse("{target: '*/nic0', kind: qp_error, qp: all, at: {wr: 5}, repeat: 3}").repeat, 3u);
}

TEST(PlanTrigger, a_phase_is_given_once) {
  for (const char* trigger :
       {"at: {time: 1 s, phase: {up_to: 1 ms}}", "on: {event: x, phase: {up_to: 1 ms}}"})
    EXPECT_NE(error_of("[{" + std::string(trigger) + ", phase: {up_to: 2 ms}, target: '*/*', kind: noop}]")
                  .message()
                  .find("given twice"),
              std::string::npos)
        << trigger;
}

TEST(PlanTrigger, rounds_come_to_an_end) {
  const auto why = [](const std::string& keys) {
    return error_of("[{" + keys + ", for: 1 ms, at: now, target: '*/*', kind: port_down}]").message();
  };
  EXPECT_EQ(why("repeat: 1000000, every: 5 min"), "");
  EXPECT_NE(why("repeat: 1000000, every: 6 min").find("more than ten years"), std::string::npos);
}

}  // namespace
}  // namespace faultinject
