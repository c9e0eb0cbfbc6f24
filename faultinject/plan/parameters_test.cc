// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <set>

#include "faultinject/plan/mapping.h"
#include "faultinject/plan/plan.h"

namespace faultinject {
namespace {

using namespace std::chrono_literals;

FaultSpec parse(const std::string& rest) {
  return parse_fault(YAML::Load("{target: node1/nic0, " + rest + "}"), "plan.yaml");
}

// Does parsing take this key of any kind?
bool is_parameter(const std::string& key) {
  return parameter_keys().end() != std::find(parameter_keys().begin(), parameter_keys().end(), key);
}

std::string error_of(const std::string& rest, const std::string& target = "node1/nic0") {
  try {
    parse_fault(YAML::Load("{target: " + target + ", " + rest + "}"), "plan.yaml");
  } catch (const PlanError& error) {
    EXPECT_EQ(error.line(), 1);
    EXPECT_GT(error.column(), 1) << error.what();
    return error.message();
  }
  return "no error";
}

TEST(PlanParameters, every_kind_is_understood_in_each_of_its_examples) {
  for (const FaultKind& kind : fault_kinds()) {
    SCOPED_TRACE(kind.name);
    EXPECT_FALSE(kind.examples.empty());
    for (const Example& example : kind.examples) {
      const std::string parameters = example.parameters;
      const FaultSpec spec =
          parse(std::string("kind: ") + kind.name + (parameters.empty() ? "" : ", ") + parameters);
      EXPECT_EQ(spec.kind, &kind);
    }
  }
}

TEST(PlanParameters, a_kind_is_declared_once_and_whole) {
  std::set<std::string> names, rows;
  for (const FaultKind& kind : fault_kinds()) {
    SCOPED_TRACE(kind.name);
    EXPECT_TRUE(names.insert(kind.name).second);
    for (const char* words : {kind.what, kind.past, kind.present}) EXPECT_STRNE(words, "");
    EXPECT_LE(kind.own.size(), kMostOwn);
    EXPECT_LT(std::string(kind.name).size(), 32u) << "the board has no room for more";
    EXPECT_EQ(kind.lasts != nullptr, kind.ends == Ends::kAfterItsTime);
    for (const char* key : kind.shared)
      EXPECT_TRUE(is_parameter(key)) << key << " is not known to plan/parameters.cc";
    for (const Example& example : kind.examples)
      EXPECT_TRUE(rows.insert(std::string(kind.name) + example.suffix).second) << example.suffix;
  }
}

TEST(PlanParameters, names_of_statuses_events_and_errors) {
  EXPECT_EQ(parse("kind: completion_error, status: IBV_WC_REM_ACCESS_ERR").status, 10);
  EXPECT_EQ(parse("kind: async_event, event: gid_change").event, 18);
  EXPECT_EQ(parse("kind: reg_fail, errno: EINVAL").error, EINVAL);
  EXPECT_EQ(parse("kind: reg_fail").error, ENOMEM);
  EXPECT_EQ(parse("kind: connect_fail").error, ETIMEDOUT);
  EXPECT_NE(error_of("kind: completion_error, status: REM_ACESS_ERR").find("did you mean 'REM_ACCESS_ERR'?"),
            std::string::npos);
  EXPECT_NE(error_of("kind: completion_error").find("needs 'status'"), std::string::npos);
  EXPECT_NE(error_of("kind: completion_error, status: SUCCESS").find("no error"), std::string::npos);
  EXPECT_NE(error_of("kind: async_event, event: PORT_ER").find("did you mean 'PORT_ERR'?"),
            std::string::npos);
  EXPECT_NE(error_of("kind: async_event, event: WQ_FATAL").find("out of reach"), std::string::npos);
  EXPECT_NE(error_of("kind: post_fail, errno: ENOMAM").find("did you mean 'ENOMEM'?"), std::string::npos);
}

TEST(PlanParameters, real_changes_say_what_they_need) {
  const FaultSpec tc = parse("kind: real_tc, loss: 12.5%, rate: 100 Mbit/s, delay: 3 ms");
  EXPECT_DOUBLE_EQ(tc.real.loss, 0.125);
  EXPECT_EQ(tc.rate_bits_per_s, 100'000'000u);
  EXPECT_EQ(tc.delay, 3ms);
  EXPECT_NE(error_of("kind: real_tc").find("needs 'loss', 'rate' or 'delay'"), std::string::npos);
  for (const char* loss : {"30", "0 %", "101 %", "-1 %", "some %"})
    EXPECT_NE(error_of("kind: real_tc, loss: " + std::string(loss)).find("loss: 30 %"), std::string::npos);
  EXPECT_NE(error_of("kind: real_tc, rate: unlimited").find("changes nothing"), std::string::npos);

  const FaultSpec ovs = parse("kind: real_ovs_drop, bridge: ovsbr1, via: ssh arm sudo");
  EXPECT_EQ(ovs.real.bridge + "/" + ovs.real.via, "ovsbr1/ssh arm sudo");
  EXPECT_NE(error_of("kind: real_ovs_drop").find("needs 'bridge'"), std::string::npos);
  EXPECT_NE(error_of("kind: real_ovs_drop, bridge: 'a; reboot'").find("no name of a bridge"),
            std::string::npos);

  const FaultSpec port = parse("kind: real_switch_port, cut: off 7, mend: on 7, check: is-off 7");
  EXPECT_EQ(port.real.cut + "/" + port.real.mend + "/" + port.real.check, "off 7/on 7/is-off 7");
  EXPECT_NE(error_of("kind: real_switch_port, cut: off 7").find("needs 'mend'"), std::string::npos);
  EXPECT_NE(error_of("kind: port_down, cut: off 7").find("belongs to real_switch_port"), std::string::npos);
  EXPECT_NE(error_of("kind: real_link_down", "node1/nic0/port:1").find("whole device"), std::string::npos);
  EXPECT_TRUE(fault_kind("real_switch_port").outside);
  EXPECT_FALSE(fault_kind("device_internal_error").outside);
}

TEST(PlanParameters, sides_directions_and_queues) {
  EXPECT_EQ(parse("kind: qp_error, side: both").value("side"), 2u);
  EXPECT_EQ(parse("kind: blackhole, direction: out").value("direction"), 1u);
  EXPECT_EQ(parse("kind: blackhole").value("direction"), 2u);
  EXPECT_TRUE(parse("kind: drop_completion, queue: recv").receive);
  EXPECT_EQ(parse("kind: connect_fail, state: rtr").value("state"), 1u);
  EXPECT_NE(error_of("kind: qp_error, side: remot").find("did you mean 'remote'?"), std::string::npos);
  EXPECT_NE(error_of("kind: port_down, side: remote").find("belongs to qp_error"), std::string::npos);
  EXPECT_NE(error_of("kind: drop_completion, queue: recv, opcode: send").find("no opcode"),
            std::string::npos);
  EXPECT_EQ(parse("kind: cq_error, queue: recv, opcode: write").opcodes, 1u)
      << "it chooses the queue pair whose queue fails";
}

TEST(PlanParameters, a_port_a_peer_and_opcodes_narrow_the_target) {
  EXPECT_EQ(parse_target("node1/nic0/port:2").port, 2u);
  EXPECT_EQ(parse_target("node1/nic0/port:2/qp:7").qp.index, 7u);
  EXPECT_EQ(parse_target("node1/nic0/port:*").port, 0u);
  const FaultSpec narrow =
      parse("kind: completion_error, status: REM_OP_ERR, peer: 'node*/nic1', opcode: [write, send]");
  EXPECT_EQ(narrow.target.peer_node, "node*");
  EXPECT_EQ(narrow.target.peer_nic, "nic1");
  EXPECT_EQ(narrow.opcodes, 1u | 1u << 2);
  EXPECT_EQ(parse("kind: delay, delay: 1 ms, opcode: read").opcodes, 1u << 4);
  EXPECT_NE(error_of("kind: delay, delay: 1 ms, opcode: wirte").find("did you mean 'write'?"),
            std::string::npos);
  EXPECT_NE(error_of("kind: noop, peer: node2").find("names no NIC"), std::string::npos);
  EXPECT_NE(error_of("kind: freeze", "node1/nic0/port:1").find("names no port"), std::string::npos);
  EXPECT_NE(error_of("kind: port_down, peer: '*/*'").find("no meaning for port_down"), std::string::npos);
  for (const char* text :
       {"node1/nic0/port:0", "node1/nic0/port:1/port:2", "node1/nic0/qp:1/qp:2", "node1/nic0/prt:1"})
    EXPECT_THROW(parse_target(text), PlanError) << text;
}

TEST(PlanParameters, a_peer_that_is_not_there_is_an_error) {
  const std::vector<NodeShape> nodes = {{"node0", 2}, {"node1", 2}};
  EXPECT_NO_THROW(check_targets(parse("kind: noop, peer: node0/nic1"), nodes));
  EXPECT_THROW(check_targets(parse("kind: noop, peer: node2/nic1"), nodes), PlanError);
  EXPECT_THROW(check_targets(parse("kind: noop, peer: node0/nic2"), nodes), PlanError);
}

TEST(PlanParameters, a_schedule_of_rates) {
  const FaultSpec spec = parse(
      "kind: throttle, rates: [{rate: 1 Gbit/s, for: 2 s}, {rate: unlimited, for: 1 s}, {rate: 100 Mbit/s}]");
  ASSERT_EQ(spec.rates.size(), 3u);
  EXPECT_EQ(spec.rates[0].lasts, 2s);
  EXPECT_EQ(spec.rates[1].bits_per_s, 0u);
  EXPECT_EQ(spec.rates[2].lasts.count(), 0);
  EXPECT_EQ(spec.rate_bits_per_s, 100000000u);
  EXPECT_NE(error_of("kind: throttle, rate: 1 Gbit/s, rates: [{rate: 1 Gbit/s}]").find("given twice"),
            std::string::npos);
  EXPECT_NE(error_of("kind: throttle, rates: []").find("is a list"), std::string::npos);
  EXPECT_NE(error_of("kind: throttle, rates: [{rate: 1 Gbit/s}, {rate: 2 Gbit/s}]").find("only the last"),
            std::string::npos);
  EXPECT_NE(error_of("kind: throttle, rates: [{rate: unlimited, for: 1 s}]").find("changes nothing"),
            std::string::npos);
  EXPECT_NE(error_of("kind: throttle, rates: [{rte: 1 Gbit/s}]").find("did you mean 'rate'?"),
            std::string::npos);
}

TEST(PlanParameters, counts_and_times_of_flap_and_reorder) {
  EXPECT_EQ(parse("kind: post_fail").count, 1u);
  EXPECT_EQ(parse("kind: post_fail, count: all").count, FaultSpec::kAll);
  const FaultSpec flap = parse("kind: port_flap, down: 50 ms, up: 1 s, count: 4");
  EXPECT_EQ(flap.time("down"), 50ms);
  EXPECT_EQ(flap.time("up"), 1s);
  EXPECT_EQ(flap.count, 4u);
  EXPECT_EQ(parse("kind: port_flap").count, 3u);
  EXPECT_EQ(parse("kind: reorder, window: 5 ms, depth: 4").value("depth"), 4u);
  EXPECT_NE(error_of("kind: reorder, depth: 1").find("2 or more"), std::string::npos);
  for (const char* least : {"down: 0 s", "up: 1 ns"})
    EXPECT_NE(error_of(std::string("kind: port_flap, ") + least).find("1 ms or more"), std::string::npos);
  EXPECT_EQ(parse("kind: port_flap, count: all").count, FaultSpec::kAll);
  EXPECT_NE(error_of("kind: port_flap, count: 18446744074").find("more than ten years"), std::string::npos);
  EXPECT_NE(error_of("kind: post_fail, count: many").find("number or all"), std::string::npos);
}

TEST(PlanParameters, times_of_a_removal) {
  const FaultSpec usual = parse("kind: device_removed");
  EXPECT_EQ(usual.time("window"), 20ms);
  EXPECT_EQ(usual.time("notice"), 0ms);
  EXPECT_EQ(usual.value("end"), 0u);
  EXPECT_EQ(usual.value("completions"), 0u);
  const FaultSpec all = parse(
      "kind: device_removed, notice: 5 ms, window: 0 ms, settle: 1 ms, end: fatal, completions: window");
  EXPECT_EQ(all.time("notice"), 5ms);
  EXPECT_EQ(all.time("window"), 0ms);
  EXPECT_EQ(all.time("settle"), 1ms);
  EXPECT_EQ(all.value("end"), 1u);
  EXPECT_EQ(all.value("completions"), 1u);
  EXPECT_EQ(parse("kind: device_internal_error, window: 3 ms").time("window"), 3ms);
  EXPECT_EQ(parse("kind: device_internal_error").value("end"), 0u);
  const FaultSpec silent = parse("kind: device_internal_error, settle: 2 ms, end: none");
  EXPECT_EQ(silent.time("settle"), 2ms);
  EXPECT_EQ(silent.value("end"), 2u);
  EXPECT_NE(error_of("kind: device_internal_error, notice: 1 ms").find("no meaning"), std::string::npos);
  EXPECT_NE(error_of("kind: device_internal_error, events: false, end: fatal").find("is an event"),
            std::string::npos);
  EXPECT_NE(error_of("kind: device_removed, end: none").find("pollerr or fatal"), std::string::npos);
  EXPECT_NE(error_of("kind: device_removed, end: eof").find("pollerr or fatal"), std::string::npos);
  EXPECT_NE(error_of("kind: device_removed, events: false, notice: 1 ms").find("DEVICE_FATAL"),
            std::string::npos);
  EXPECT_NE(error_of("kind: device_removed, events: false, end: fatal").find("is an event"),
            std::string::npos);
  EXPECT_NE(error_of("kind: device_fatal, window: 1 ms").find("no meaning"), std::string::npos);
  EXPECT_NE(error_of("kind: device_removd").find("did you mean 'device_removed'?"), std::string::npos);
}

TEST(PlanParameters, a_delay_of_nothing_is_refused) {
  EXPECT_NE(error_of("kind: delay, delay: 0 ms").find("'delay' must be longer than 0"), std::string::npos);
  EXPECT_NE(error_of("kind: delay, delay: 0 ms, jitter: 0 ms").find("'delay' must be longer than 0"),
            std::string::npos);
  EXPECT_EQ(parse("kind: delay, delay: 1 ns").delay, 1ns);
}

}  // namespace
}  // namespace faultinject
