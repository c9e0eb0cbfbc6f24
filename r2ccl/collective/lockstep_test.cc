// SPDX-License-Identifier: Apache-2.0
// Connections in step, against cases that can be worked out by hand.
#include "r2ccl/collective/lockstep.h"

#include <gtest/gtest.h>

#include <cmath>

namespace r2ccl::collective {
namespace {

/// One connection from `out` to `in`, of chunks of a second each.
Lockstep::Flow flow_of(uint16_t out, uint16_t in, uint32_t segments, uint32_t credits = 8) {
  Lockstep::Flow flow;
  flow.ports = {{out, 1}, {in, 1}};
  flow.chunk = 1;
  flow.segments = segments;
  flow.credits = credits;
  return flow;
}

Lockstep::After after(uint16_t lane) { return {lane, 0, 1, 0}; }

TEST(Lockstep, a_connection_takes_its_bytes_and_one_latency) {
  for (const double capacity : {1.0, 0.5}) {
    Lockstep lockstep(0.25);
    const uint16_t out = lockstep.add_port(1), in = lockstep.add_port(capacity);
    lockstep.add_flow(flow_of(out, in, 10));
    EXPECT_NEAR(lockstep.run(), 10 / capacity + 0.25, 0.01);
    EXPECT_NEAR(lockstep.run(), 10 / capacity + 0.25, 0.01) << "again";
  }
}

TEST(Lockstep, credits_come_back_after_a_latency) {
  for (const uint32_t credits : {1u, 2u, 4u}) {
    Lockstep lockstep(9);
    const uint16_t port = lockstep.add_port(1);
    lockstep.add_flow(flow_of(port, lockstep.add_port(1), 8, credits));
    // So many chunks every ten seconds; the last ones one behind the other.
    EXPECT_NEAR(lockstep.run(), 10.0 * (8.0 / credits) + (credits - 1), 0.05) << credits;
  }
}

TEST(Lockstep, on_channels_a_sender_is_told_later) {
  for (const uint32_t credits : {1u, 2u}) {
    Lockstep lockstep(5, 3);
    const uint16_t port = lockstep.add_port(1);
    lockstep.add_flow(flow_of(port, lockstep.add_port(1), 4, credits));
    // Receives are known after 3 s; so many chunks every nine seconds.
    EXPECT_NEAR(lockstep.run(), 3 + 9.0 * (4.0 / credits) + (credits - 1), 0.05) << credits;
  }
  Lockstep lockstep(5, 3);
  const uint16_t there = lockstep.add_flow(flow_of(lockstep.add_port(1), lockstep.add_port(1), 1));
  Lockstep::Flow back = flow_of(lockstep.add_port(1), lockstep.add_port(1), 1);
  back.receive_after[0] = after(Lockstep::send_lane(there));
  const uint16_t second = lockstep.add_flow(back);
  EXPECT_NEAR(lockstep.run(), 3 + 1 + 5 + 3 + 3, 0.05)
      << "a receive waits until the other send is known to have "
         "arrived, and its own sender is told";
  lockstep.flow(second).receive_after[0] = {};
  EXPECT_NEAR(lockstep.run(), 3 + 1 + 5 + 3, 0.05);
}

TEST(Lockstep, connections_share_ports_by_weight_and_by_what_others_cannot_use) {
  Lockstep lockstep(0);
  const uint16_t out = lockstep.add_port(1), wide = lockstep.add_port(10), narrow = lockstep.add_port(0.1);
  Lockstep::Flow heavy = flow_of(out, wide, 3);
  heavy.weight = 3;
  lockstep.add_flow(heavy);
  lockstep.add_flow(flow_of(out, wide, 1));
  EXPECT_NEAR(lockstep.run(), 4, 0.05) << "three quarters and one";
  lockstep.add_flow(flow_of(out, narrow, 1));
  EXPECT_NEAR(lockstep.run(), 10, 0.1) << "a tenth has to be enough for this one";
}

TEST(Lockstep, a_use_stands_for_several_connections) {
  Lockstep lockstep(0);
  const uint16_t leaf = lockstep.add_port(0.5), owner = lockstep.add_port(1);
  Lockstep::Flow flow = flow_of(leaf, owner, 4);
  flow.ports[0].connections = 3;
  lockstep.add_flow(flow);
  EXPECT_NEAR(lockstep.run(), 4 * 3 / 0.5, 0.1);
}

TEST(Lockstep, a_connection_uses_no_more_than_its_messages_allow) {
  Lockstep lockstep(0);
  const uint16_t out = lockstep.add_port(1), in = lockstep.add_port(1);
  Lockstep::Flow flow = flow_of(out, in, 4);
  flow.most = 0.25;
  lockstep.add_flow(flow);
  EXPECT_NEAR(lockstep.run(), 16, 0.1);
  lockstep.add_flow(flow_of(out, in, 12));
  EXPECT_NEAR(lockstep.run(), 16, 0.1) << "the others have what it leaves";
}

// A ring of any number of ranks: each sends on what it has received, three steps to a segment.
TEST(Lockstep, a_lane_waits_for_what_it_receives) {
  Lockstep lockstep(2);
  const uint16_t out = lockstep.add_port(1);
  Lockstep::Flow flow = flow_of(out, lockstep.add_port(1), 5);
  flow.ops = 3;
  flow.send_after[0] = {Lockstep::receive_lane(0), 1, 3, 1};
  lockstep.add_flow(flow);
  // The first send of a segment waits for nothing but the one before it.
  EXPECT_NEAR(lockstep.run(), 5 * (3 * 1 + 2 * 2) + 2, 0.1);
}

TEST(Lockstep, an_adder_adds_one_after_the_other) {
  Lockstep lockstep(0);
  const uint16_t in = lockstep.add_port(2);
  for (int i = 0; i < 2; ++i) {
    Lockstep::Flow flow = flow_of(lockstep.add_port(1), in, 3);
    flow.added = 1;
    flow.addition = 4;
    lockstep.add_flow(flow);
  }
  EXPECT_NEAR(lockstep.run(), 1 + 6 * 4, 0.1);
  lockstep.flow(1).adder = 1;
  EXPECT_NEAR(lockstep.run(), 1 + 3 * 4, 0.1) << "of another rank";
  lockstep.flow(0).added = lockstep.flow(1).added = 0;
  EXPECT_NEAR(lockstep.run(), 3, 0.1);
}

TEST(Lockstep, a_second_lane_follows_the_first_one) {
  Lockstep lockstep(1);
  const uint16_t out = lockstep.add_port(1), in = lockstep.add_port(1);
  const uint16_t there = lockstep.add_flow(flow_of(out, in, 4));
  Lockstep::Flow back = flow_of(in, out, 4);
  back.ports = {{lockstep.add_port(1), 1}, {lockstep.add_port(1), 1}};
  back.send_after[0] = after(Lockstep::receive_lane(there));
  back.receive_after[0] = after(Lockstep::send_lane(there));
  lockstep.add_flow(back);
  EXPECT_NEAR(lockstep.run(), 4 + 1 + 1 + 1, 0.1);
}

TEST(Lockstep, what_never_ends_takes_forever) {
  Lockstep stuck(1);
  const uint16_t port = stuck.add_port(1);
  Lockstep::Flow flow = flow_of(port, port, 1);
  flow.send_after[0] = after(Lockstep::receive_lane(0));
  stuck.add_flow(flow);
  EXPECT_TRUE(std::isinf(stuck.run()));
  Lockstep large(1);
  for (size_t i = 0; i <= Lockstep::kMostFlows; ++i) large.add_flow(flow_of(large.add_port(1), 0, 1));
  EXPECT_TRUE(std::isinf(large.run())) << "more than there may be";
}

TEST(Lockstep, connections_without_a_weight_never_end) {
  Lockstep lockstep(1);
  const uint16_t out = lockstep.add_port(1);
  Lockstep::Flow flow = flow_of(out, lockstep.add_port(1), 1);
  flow.weight = 0;
  lockstep.add_flow(flow);
  EXPECT_TRUE(std::isinf(lockstep.run()));
}

TEST(Lockstep, takes_no_time_without_data) {
  Lockstep lockstep(0);
  const uint16_t out = lockstep.add_port(1);
  Lockstep::Flow flow = flow_of(out, lockstep.add_port(1), 8);
  flow.chunk = 0;
  lockstep.add_flow(flow);
  EXPECT_EQ(lockstep.run(), 0);
}

// Transfers that meet at a port go on meeting there, at whatever latency.
TEST(Lockstep, ends_without_waits_for_tiny_chunks_late_in_a_long_operation) {
  Lockstep lockstep(1e3);
  const uint16_t out = lockstep.add_port(1);
  Lockstep::Flow flow = flow_of(out, lockstep.add_port(1), 1000, 1);
  flow.chunk = 1e-9;
  lockstep.add_flow(flow);
  EXPECT_NEAR(lockstep.run(), 1e6, 1);
}

}  // namespace
}  // namespace r2ccl::collective
