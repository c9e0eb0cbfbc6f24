// SPDX-License-Identifier: Apache-2.0
#include "harness/exec/fabric_shape.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace r2bench {
namespace {

WantedShape gigabit() {
  WantedShape wanted;
  wanted.nodes = 3;
  wanted.rate_bits_per_s = 1'000'000'000;
  wanted.latency = std::chrono::microseconds(5);
  return wanted;
}

TEST(FabricShape, what_is_not_asked_for_has_a_default) {
  const FabricShape shape = shape_of(gigabit());
  EXPECT_EQ(describe(shape), "vhca, 3 nodes with 4 NICs each, 1 Gbit/s, 5 us");
  EXPECT_EQ(describe(shape_of({})), "vhca, 2 nodes with 4 NICs each, unlimited rate, 0 ns");
  EXPECT_EQ(shape.nodes().back().name, "node2");
}

TEST(FabricShape, link_ports_and_mtu_are_told_where_they_are_not_as_usual) {
  WantedShape wanted;
  wanted.link = LinkLayer::kInfiniBand;
  wanted.ports = 2;
  wanted.mtu = 2048;
  const FabricShape shape = shape_of(wanted);
  EXPECT_EQ(describe(shape),
            "vhca, 2 nodes with 4 NICs each, unlimited rate, 0 ns, infiniband, 2 ports each, MTU 2048");
  EXPECT_EQ(mismatch(wanted, shape_from(to_json(shape))), "");
  EXPECT_EQ(
      mismatch(wanted, shape_of({})),
      "--link infiniband was asked for, but it has ethernet; --ports 2 was asked for, but it has 1; --mtu "
      "2048 was asked for, but it has 4096");
}

TEST(FabricShape, only_what_was_asked_for_can_differ) {
  const FabricShape there = shape_of(gigabit());
  EXPECT_EQ(mismatch({}, there), "");
  EXPECT_EQ(mismatch(gigabit(), there), "");
  WantedShape other = gigabit();
  other.nics = 2;
  other.rate_bits_per_s = 0;
  EXPECT_EQ(mismatch(other, there),
            "--nics 2 was asked for, but it has 4; --rate unlimited was asked for, but it has 1 Gbit/s");
}

TEST(FabricShape, the_hosts_own_devices_have_no_rate_of_ours) {
  WantedShape wanted = gigabit();
  wanted.kind = "none";
  EXPECT_THROW(shape_of(wanted), std::invalid_argument);
  wanted.rate_bits_per_s.reset();
  wanted.latency.reset();
  for (const auto& set : {+[](WantedShape& w) { w.link = LinkLayer::kEthernet; },
                          +[](WantedShape& w) { w.ports = 1; }, +[](WantedShape& w) { w.mtu = 4096; }}) {
    WantedShape one = wanted;
    set(one);
    EXPECT_THROW(shape_of(one), std::invalid_argument);
  }
  EXPECT_EQ(describe(shape_of(wanted)), "the host's devices, 3 nodes with 4 NICs each");
  wanted.kind = "rxe";
  EXPECT_THROW(shape_of(wanted), std::invalid_argument);
}

TEST(FabricShape, survives_the_way_through_json) {
  WantedShape wanted = gigabit();
  wanted.seed = 77;
  const FabricShape shape = shape_of(wanted);
  EXPECT_EQ(mismatch(wanted, shape_from(to_json(shape))), "");
  EXPECT_EQ(to_json(shape_from(to_json(shape))), to_json(shape));
}

TEST(FabricShape, names_the_nodes_there_are) {
  const FabricShape shape = shape_of({});
  EXPECT_NO_THROW(check_node(shape, "node1"));
  try {
    check_node(shape, "node2");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "there is no node 'node2'; there is node0, node1");
  }
}

}  // namespace
}  // namespace r2bench
