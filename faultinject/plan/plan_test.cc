// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/plan.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

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
  return PlanError("", 0, 0, "no error");
}

TEST(Plan, the_scenario_of_the_design_parses) {
  const FaultSpec spec = parse("{at: {iter: 60}, target: node1/nic0, kind: port_down}");
  EXPECT_EQ(spec.kind, &fault_kind("port_down"));
  EXPECT_EQ(spec.trigger.kind, Trigger::Kind::kEvent);
  EXPECT_EQ(spec.trigger.event, "iteration");
  EXPECT_EQ(spec.trigger.value, 60u);
  EXPECT_EQ(spec.name, "port_down node1/nic0");
  EXPECT_TRUE(spec.events);
  EXPECT_TRUE(spec.query);
  EXPECT_FALSE(spec.duration);
}

TEST(Plan, every_trigger_is_understood) {
  EXPECT_EQ(parse("{target: '*/*', kind: noop}").trigger.kind, Trigger::Kind::kManual);
  EXPECT_EQ(parse("{at: now, target: '*/*', kind: noop}").trigger.kind, Trigger::Kind::kNow);
  const Trigger time = parse("{at: {time: 200 ms, since: first_op}, target: '*/*', kind: noop}").trigger;
  EXPECT_EQ(time.kind, Trigger::Kind::kTime);
  EXPECT_EQ(time.after, 200ms);
  EXPECT_TRUE(time.since_first_op);
  EXPECT_EQ(parse("{at: {wr: 1000}, target: '*/*', kind: noop}").trigger.count, 1000u);
  EXPECT_EQ(parse("{at: {bytes: 10 MiB}, target: '*/*', kind: noop}").trigger.count, 10u << 20);
  const Trigger event = parse("{on: migration_started, target: '*/*', kind: noop}").trigger;
  EXPECT_EQ(event.event, "migration_started");
  EXPECT_FALSE(event.value);
  EXPECT_EQ(parse("{on: {event: rail_down, value: 2}, target: '*/*', kind: noop}").trigger.value, 2u);
}

TEST(Plan, the_random_phase_stands_beside_or_inside_the_trigger) {
  EXPECT_EQ(parse("{at: {iter: 6}, phase: {up_to: 20 ms}, target: '*/*', kind: noop}").trigger.phase_up_to,
            20ms);
  EXPECT_EQ(parse("{at: {iter: 6, phase: {up_to: 20 ms}}, target: '*/*', kind: noop}").trigger.phase_up_to,
            20ms);
}

TEST(Plan, parameters_belong_to_their_kind) {
  EXPECT_EQ(parse("{target: '*/nic0', kind: throttle, rate: 100 Mbit/s, for: 500 ms}").rate_bits_per_s,
            100000000u);
  EXPECT_EQ(parse("{target: '*/nic0', kind: throttle, rate: 100 Mbit/s, for: 500 ms}").duration, 500ms);
  const FaultSpec delay = parse("{target: '*/nic0', kind: delay, delay: 1 ms, jitter: 200 us}");
  EXPECT_EQ(delay.delay, 1ms);
  EXPECT_EQ(delay.time("jitter"), 200us);
  EXPECT_FALSE(parse("{target: '*/nic0', kind: port_down, events: false}").events);
  const PlanError error = error_of("[{target: '*/nic0', kind: qp_error, rate: 1 Gbit/s}]");
  EXPECT_NE(error.message().find("'rate' has no meaning for qp_error (it belongs to real_tc, throttle)"),
            std::string::npos)
      << error.what();
  EXPECT_NE(error_of("[{target: '*/nic0', kind: throttle}]").message().find("needs 'rate'"),
            std::string::npos);
  EXPECT_NE(error_of("[{target: '*/nic0', kind: delay, delay: 1 ms, jitter: 2 ms}]").message().find("larger"),
            std::string::npos);
}

TEST(Plan, a_misspelt_kind_is_an_error_with_its_place_and_a_suggestion) {
  const PlanError error = error_of("- {target: node1/nic0,\n   kind: port_dwon}");
  EXPECT_EQ(error.line(), 2);
  EXPECT_EQ(error.column(), 10);
  EXPECT_EQ(std::string(error.what()).rfind("plan.yaml:2:10: ", 0), 0u) << error.what();
  EXPECT_NE(error.message().find("did you mean 'port_down'?"), std::string::npos) << error.what();
}

TEST(Plan, an_unknown_key_is_an_error_with_a_suggestion) {
  const PlanError error = error_of("- {target: node1/nic0, kind: port_down, evnets: false}");
  EXPECT_NE(error.message().find("unknown key 'evnets'"), std::string::npos) << error.what();
  EXPECT_NE(error.message().find("did you mean 'events'?"), std::string::npos) << error.what();
  EXPECT_NE(error_of("[{target: '*/nic0', kind: noop, at: {itr: 5}}]").message().find("did you mean 'iter'?"),
            std::string::npos);
}

TEST(Plan, contradictions_are_errors) {
  for (const char* text : {"[{kind: noop}]",
                           "[{target: '*/nic0'}]",
                           "[{target: '*/nic0', kind: noop, at: later}]",
                           "[{target: '*/nic0', kind: noop, at: {iter: 1, wr: 2}}]",
                           "[{target: '*/nic0', kind: noop, at: {}}]",
                           "[{target: '*/nic0', kind: noop, at: {iter: 1, since: start}}]",
                           "[{target: '*/nic0', kind: noop, at: {iter: 1}, on: x}]",
                           "[{target: '*/nic0', kind: noop, for: 0 s}]",
                           "[{target: '*/nic0', kind: noop, phase: {up_to: 1 ms}}]",
                           "[{target: '*/nic0', kind: noop, at: {wr: 0}}]",
                           "[{target: '*/nic0', kind: noop, at: {iter: -3}}]",
                           "[{target: '*/nic0', kind: noop, at: {iter: 1.5}}]",
                           "[{target: '*/nic0', kind: port_down, events: maybe}]",
                           "[{target: '*/nic0/qp:3', kind: port_down}]",
                           "[{target: '*/nic0/qp:3', kind: qp_error, qp: all}]",
                           "[{target: '*/nic0', kind: qp_error, qp: al}]",
                           "{target: '*/nic0', kind: noop}",
                           "[port_down]",
                           "[{target: '*/nic0', kind: ack_lost, report: later}]",
                           "[{target: '*/nic0', kind: throttle, rate: unlimited}]"})
    EXPECT_NE(error_of(text).message(), "no error") << text;
}

TEST(Plan, no_faults_is_an_empty_plan) {
  EXPECT_TRUE(parse_faults(YAML::Load("{}")["faults"], "plan.yaml").empty());
  EXPECT_TRUE(parse_faults(YAML::Load("~"), "plan.yaml").empty());
  EXPECT_EQ(
      parse_faults(YAML::Load("[{target: '*/*', kind: noop}, {target: '*/*', kind: qp_error}]"), "p").size(),
      2u);
}

TEST(Target, patterns_match_whole_names) {
  EXPECT_TRUE(pattern_matches("node*", "node12"));
  EXPECT_TRUE(pattern_matches("*", ""));
  EXPECT_TRUE(pattern_matches("n?de1", "node1"));
  EXPECT_TRUE(pattern_matches("nic[0-1]", "nic1"));
  EXPECT_FALSE(pattern_matches("nic[0-1]", "nic2"));
  EXPECT_FALSE(pattern_matches("nic[0-1]", "nic10"));
  EXPECT_TRUE(pattern_matches("node[8-12]", "node10"));
  EXPECT_TRUE(pattern_matches("rack[a-c]1", "rackb1"));
  EXPECT_FALSE(pattern_matches("node1", "node11"));
}

TEST(Target, a_target_is_node_nic_and_perhaps_a_queue_pair) {
  const Target target = parse_target("*/nic0/qp:3");
  EXPECT_TRUE(matches(target, "node7", 0));
  EXPECT_TRUE(matches(target, "node7", 0, 3));
  EXPECT_FALSE(matches(target, "node7", 0, 4));
  EXPECT_FALSE(matches(target, "node7", 1));
  EXPECT_EQ(parse_target("a/nic0/qp:all").qp.kind, QpSelector::Kind::kAll);
  for (const char* text : {"", "node1", "/nic0", "node1/", "node1/mlx5_0", "node1/nic0/3", "node1/nic0/qp:x",
                           "node[/nic0", "node1/nic[1-0]", "node1/nic0/qp:1/2"})
    EXPECT_THROW(parse_target(text), PlanError) << text;
}

TEST(Target, one_that_hits_nothing_is_an_error_that_lists_what_there_is) {
  const std::vector<NodeShape> nodes = {{"node0", 2}, {"node1", 2}};
  EXPECT_NO_THROW(check_targets(parse("{target: 'node*/nic[0-1]', kind: noop}"), nodes));
  try {
    check_targets(parse("{target: node1/nic7, kind: noop}"), nodes);
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_NE(error.message().find("nic0 to nic1"), std::string::npos) << error.what();
  }
  try {
    check_targets(parse("{target: noed1/nic0, kind: noop}"), nodes);
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_NE(error.message().find("did you mean 'node1'?"), std::string::npos) << error.what();
    EXPECT_EQ(error.line(), 1);
  }
}

TEST(Target, a_range_names_only_what_there_is) {
  const std::vector<NodeShape> nodes = {{"node0", 2}, {"node1", 2}, {"far", 2}};
  const auto refusal = [&](const std::string& target) -> std::string {
    try {
      check_targets(parse("{target: '" + target + "', kind: noop}"), nodes);
    } catch (const PlanError& error) {
      EXPECT_EQ(error.line(), 1);
      return error.message();
    }
    return "";
  };
  for (const char* target : {"node[0-1]/nic[0-1]", "*/nic[1-1]", "node?/nic*", "*/nic?", "node[0-1]/*"})
    EXPECT_EQ(refusal(target), "") << target;
  EXPECT_NE(refusal("node1/nic[0-6]").find("has a NIC 'nic2' (there are: nic0 to nic1)"), std::string::npos)
      << refusal("node1/nic[0-6]");
  EXPECT_NE(refusal("node[0-2]/nic0").find("there is no node 'node2' (there are: node0, node1, far)"),
            std::string::npos)
      << refusal("node[0-2]/nic0");
  EXPECT_NE(refusal("*/nic[1-18446744073709551615]").find("'nic2'"), std::string::npos);
}

TEST(Target, a_port_that_no_nic_has_is_an_error) {
  const std::vector<NodeShape> nodes = {{"node0", 2, 1}, {"node1", 2, 2}, {"far", 2}};
  const auto refusal = [&](const std::string& target) -> std::string {
    try {
      check_targets(parse("{target: '" + target + "', kind: port_down}"), nodes);
    } catch (const PlanError& error) {
      EXPECT_EQ(error.line(), 1);
      return error.message();
    }
    return "";
  };
  for (const char* target :
       {"node0/nic0/port:1", "node1/nic*/port:2", "node?/nic0/port:2", "far/nic0/port:3"})
    EXPECT_EQ(refusal(target), "") << target;
  EXPECT_EQ(refusal("node0/nic0/port:2"),
            "target 'node0/nic0/port:2': there is no port 2 (each NIC has 1 port)");
  EXPECT_NE(refusal("node?/nic0/port:3").find("there is no port 3 (each NIC has 2 ports)"),
            std::string::npos);
}

}  // namespace
}  // namespace faultinject
