// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/host_plan.h"

#include <gtest/gtest.h>

#include "harness/hosts/fault_fields.h"
#include "harness/hosts/json_fields.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;
using faultinject::Effect;
using faultinject::FaultSpec;
using faultinject::Witness;
using nlohmann::json;

/// As over a link between hosts.
json sent(const json& message) { return json::from_cbor(json::to_cbor(message)); }

TEST(HostPlan, arrives_as_it_was_sent) {
  HostPlan plan;
  plan.fabric = "vhca";
  plan.shape.nodes = 3;
  plan.shape.nics_per_node = 8;
  plan.shape.nic_rate_bits_per_s = 400'000'000'000;
  plan.shape.latency = 7us;
  plan.nodes = {1, 2, "/proc/4711/fd/5"};
  plan.seed = UINT64_MAX;
  plan.topology = "<topology/>";
  plan.inherited = {{"NCCL_DEBUG", "INFO"}};
  plan.ranks.push_back({1,
                        1,
                        "node1/rank0",
                        "r2bench-cpu-rank",
                        {{"R2CC_MODE", "2"}},
                        {"NCCL_NET"},
                        {{"bytes", 16}},
                        "logs/a.log"});
  FaultSpec real;
  real.kind = &faultinject::fault_kind("real_tc");
  real.real = {0.25, "br0", "ssh dpu", "cut it", "mend it", "is it cut"};
  plan.real_faults = {real};
  const HostPlan got = HostPlan::from_json(sent(plan.to_json()));
  EXPECT_EQ(got.fabric, plan.fabric);
  EXPECT_EQ(got.shape.nodes, 3);
  EXPECT_EQ(got.shape.nics_per_node, 8);
  EXPECT_EQ(got.shape.nic_rate_bits_per_s, plan.shape.nic_rate_bits_per_s);
  EXPECT_EQ(got.shape.latency, 7us);
  EXPECT_EQ(got.nodes, plan.nodes);
  EXPECT_EQ(got.seed, plan.seed);
  EXPECT_EQ(got.topology, plan.topology);
  EXPECT_EQ(got.inherited, plan.inherited);
  ASSERT_EQ(got.ranks.size(), 1u);
  EXPECT_EQ(got.ranks[0].label, "node1/rank0");
  EXPECT_EQ(got.ranks[0].variables, plan.ranks[0].variables);
  EXPECT_EQ(got.ranks[0].removed, plan.ranks[0].removed);
  EXPECT_EQ(got.ranks[0].config, plan.ranks[0].config);
  ASSERT_EQ(got.real_faults.size(), 1u);
  EXPECT_EQ(fields_to_json(got.real_faults[0]), fields_to_json(real));
  EXPECT_EQ(got.real_faults[0].real.loss, 0.25);
  EXPECT_EQ(got.real_faults[0].real.check, "is it cut");
  ASSERT_EQ(got.node_shapes().size(), 3u);
  EXPECT_EQ(got.node_shapes()[2].name, "node2");
}

TEST(FaultFields, every_field_of_a_fault_arrives) {
  // Nothing has its default here. What describe() leaves out would not come back.
  FaultSpec spec(faultinject::fault_kind("throttle"));
  spec.name = "n";
  spec.target = faultinject::parse_target("node1/nic[0-1]/qp:3");
  spec.target.peer_node = "node0";
  spec.trigger = {faultinject::Trigger::Kind::kAfter,   5ms, true, "e", 9, 8, 0.25, "other",
                  faultinject::Trigger::Until::kHealed, 6ms};
  spec.duration = 70ms;
  spec.repeat = 4;
  spec.every = 2s;
  spec.opcodes = 6;
  spec.count = FaultSpec::kAll;
  spec.events = spec.query = false;
  spec.rates = {{100, 3ms}, {200, 0ms}};
  spec.rate_bits_per_s = 100;
  spec.delay = 1us;
  spec.own = {1, 2, 3};
  spec.written = "rate: 100";
  spec.line = 12;
  const json first = fields_to_json(spec);
  const FaultSpec got = fields_from_json<FaultSpec>(sent(first));
  EXPECT_EQ(fields_to_json(got), first);
  EXPECT_EQ(got.kind, spec.kind);
  EXPECT_EQ(got.target.qp.index, 3u);
  EXPECT_EQ(got.target.text, "node1/nic[0-1]/qp:3");
  EXPECT_EQ(got.trigger.value, 9u);
  EXPECT_EQ(got.trigger.until, faultinject::Trigger::Until::kHealed);
  EXPECT_EQ(got.duration, 70ms);
  EXPECT_EQ(got.count, FaultSpec::kAll);
  ASSERT_EQ(got.rates.size(), 2u);
  EXPECT_EQ(got.rates[1].bits_per_s, 200u);
  EXPECT_FALSE(got.events);
}

TEST(FaultFields, a_witness_arrives_whole) {
  const Witness witness{
      3, 2, 1000, 7, "node1/rank0", "node1", 1, 33, Effect::kQpToErr, 12, "QP moved to ERR"};
  const Witness got = fields_from_json<Witness>(sent(fields_to_json(witness)));
  EXPECT_EQ(got.fault_id, 3u);
  EXPECT_EQ(got.round, 2u);
  EXPECT_EQ(got.time_ns, 1000u);
  EXPECT_EQ(got.pid, 7);
  EXPECT_EQ(got.rank + " " + got.node + " " + got.what, "node1/rank0 node1 QP moved to ERR");
  EXPECT_EQ(got.nic, 1u);
  EXPECT_EQ(got.qp_num, 33u);
  EXPECT_EQ(got.effect, Effect::kQpToErr);
  EXPECT_EQ(got.value, 12u);
}

TEST(FaultFields, what_is_not_there_stays_not_there) {
  const FaultSpec got = fields_from_json<FaultSpec>(sent(fields_to_json(FaultSpec{})));
  EXPECT_FALSE(got.duration);
  EXPECT_FALSE(got.trigger.value);
  EXPECT_EQ(got.count, 1u);
}

}  // namespace
}  // namespace r2bench
