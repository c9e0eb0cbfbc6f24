// SPDX-License-Identifier: Apache-2.0
// Memory on another NUMA node than the NIC's: such a lane carries its share of the port's rate and no more,
// at either end. Ratios of what lanes have carried by the same moment of one run; a run in which the machine
// was away is taken again.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr std::uint64_t kRate = 200'000'000;  // 25 bytes in 1 µs
constexpr int kMessages = 100;
constexpr std::size_t kBytes = 65536;
constexpr double kAlone =
    double(kMessages) * double(kBytes) / 25e6;  // seconds of a lane that has its port to itself
constexpr int kAttempts = 20;

// NICs of both nodes; even ones hang on NUMA node 0, odd ones on 1.
FabricHost make_numa_fabric(unsigned percent, int nics = 8) {
  FabricSpec spec = make_spec(2, std::size_t(nics), {kRate, {}});
  spec.cross_percent = percent;
  for (NodeSpec& node : spec.nodes)
    for (int nic = 0; nic < nics; ++nic) node.nics[std::size_t(nic)].memory_node = nic % 2;
  return FabricHost::create(spec);
}

struct Lane {
  int own_nic = 0;
  int target = 0;  // index of the target process
  int target_nic = 0;
  ibv_qp_type type = IBV_QPT_RC;
};

Options options_of(const Lane& lane, int nic) {
  return {.nic = nic, .type = lane.type, .send_depth = 1024, .cq_depth = 2048};
}

void on_memory_node(int node) {
  if (node >= 0) ::setenv("VHCA_MEMORY_NODE", std::to_string(node).c_str(), 1);
}

void be_target(const Wire& wire, int memory_node, const std::vector<Lane>& lanes, int index) {
  on_memory_node(memory_node);
  std::vector<std::unique_ptr<Endpoint>> ends;
  for (const Lane& lane : lanes)
    if (lane.target == index) {
      ends.push_back(std::make_unique<Endpoint>(options_of(lane, lane.target_nic)));
      ends.back()->connect_over(wire);
    }
  for (;;) ::pause();
}

struct Work {
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  int messages = kMessages;
  std::size_t bytes = kBytes;
};

// Posts the same on every lane at once. Messages that each lane has carried when lane 0 has carried all of
// its own.
std::vector<int> race(std::vector<std::unique_ptr<Endpoint>>& ends, const Work& work, double& seconds) {
  std::vector<int> done(ends.size());
  const std::uint64_t start = now_ns();
  for (int m = 0; m < work.messages; ++m)
    for (auto& end : ends) end->post({.opcode = work.opcode, .bytes = work.bytes});
  std::vector<int> when_first_is_done;
  const int all = work.messages * int(ends.size());
  for (int total = 0; total < all;) {
    for (std::size_t k = ends.size(); k-- > 0;) {  // lane 0 last: the others are never counted too low
      ibv_wc wc[64];
      const int got = ibv_poll_cq(ends[k]->cq(), 64, wc);
      for (int i = 0; i < got; ++i) VHCA_REQUIRE_EQ(wc[i].status, IBV_WC_SUCCESS);
      done[k] += got;
      total += got;
    }
    if (when_first_is_done.empty() && done[0] == work.messages) {
      when_first_is_done = done;
      seconds = double(now_ns() - start) / 1e9;
    }
  }
  return when_first_is_done;
}

// `expected[k]`: what lane k has carried when lane 0 is done, which takes `seconds` if nobody is in the way.
int run(const FabricHost& fabric, int memory_node, const std::vector<int>& targets,
        const std::vector<Lane>& lanes, const Work& work, const std::vector<double>& expected,
        double seconds) {
  std::vector<std::unique_ptr<Process>> there;
  for (std::size_t t = 0; t < targets.size(); ++t)
    there.push_back(std::make_unique<Process>(
        fabric, "node1", [&, t](const Wire& wire) { be_target(wire, targets[t], lanes, int(t)); }));
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    on_memory_node(memory_node);
    std::vector<std::unique_ptr<Endpoint>> ends;
    for (const Lane& lane : lanes) {
      ends.push_back(std::make_unique<Endpoint>(options_of(lane, lane.own_nic)));
      ends.back()->connect_over(wire);
    }
    for (int attempt = 0;; ++attempt) {
      double took = 0;
      const std::vector<int> carried = race(ends, work, took);
      std::printf("%.3f s of %.3f s:", took, seconds);
      for (const int messages : carried) std::printf(" %d", messages);
      std::printf(" of %d\n", work.messages);
      VHCA_REQUIRE(took > 0.98 * seconds);  // a port never carries more than its rate
      if (took > 1.1 * seconds && attempt < kAttempts) continue;
      for (std::size_t k = 0; k < carried.size(); ++k)
        VHCA_REQUIRE(std::abs(carried[k] - expected[k] * work.messages) <= 0.04 * work.messages);
      return;
    }
  });
  for (std::size_t t = 0; t < targets.size(); ++t)
    for (const Lane& lane : lanes)
      if (lane.target == int(t)) introduce(*there[t], initiator);
  return initiator.wait();
}

// Lane 0 near at both ends; far at the sender, at the receiver, at both. The initiator's memory is on node 0,
// the targets' on nodes 0 and 1. Lanes stand in the order of their targets, as they are introduced.
const std::vector<Lane> kEachEnd = {{0, 0, 0}, {2, 0, 3}, {5, 0, 5}, {1, 1, 1}};

TEST(MemoryNode, a_lane_to_or_from_far_memory_carries_its_share_of_the_rate) {
  const auto fabric = make_numa_fabric(50);
  EXPECT_EQ(run(fabric, 0, {0, 1}, kEachEnd, {}, {1, 0.5, 0.5, 0.5}, kAlone), 0);
}

TEST(MemoryNode, so_do_reads) {
  const auto fabric = make_numa_fabric(25);
  EXPECT_EQ(run(fabric, 0, {0, 1}, kEachEnd, {.opcode = IBV_WR_RDMA_READ}, {1, 0.25, 0.25, 0.25}, kAlone), 0);
}

TEST(MemoryNode, so_do_datagrams) {
  const auto fabric = make_numa_fabric(50);
  std::vector<Lane> lanes = kEachEnd;
  for (Lane& lane : lanes) lane.type = IBV_QPT_UD;
  // Nobody has posted a receive: they are dropped at the end of their way.
  const Work work{.opcode = IBV_WR_SEND, .messages = 1000, .bytes = 4096};
  EXPECT_EQ(run(fabric, 0, {0, 1}, lanes, work, {1, 0.5, 0.5, 0.5}, 1000 * 4096 / 25e6), 0);
}

// The port's time is what is shared: a far byte takes as much of it as two near ones.
TEST(MemoryNode, near_and_far_lanes_share_the_time_of_a_port) {
  const auto fabric = make_numa_fabric(50);
  EXPECT_EQ(run(fabric, 0, {0, 1}, {{0, 0, 0}, {2, 1, 0}}, {}, {1, 0.5}, 2 * kAlone), 0);
}

TEST(MemoryNode, nothing_is_far_where_nobody_says_where_memory_is) {
  const auto fabric = make_numa_fabric(50);
  EXPECT_EQ(run(fabric, -1, {-1}, {{0, 0, 0}, {1, 0, 1}, {2, 0, 3}}, {}, {1, 1, 1}, kAlone), 0);
}

TEST(MemoryNode, crossing_may_cost_nothing) {
  const auto fabric = make_numa_fabric(100);
  EXPECT_EQ(run(fabric, 0, {0, 1}, kEachEnd, {}, {1, 1, 1, 1}, kAlone), 0);
}

TEST(MemoryNode, a_fabric_that_cannot_be_is_refused) {
  EXPECT_THROW(make_numa_fabric(0), std::invalid_argument);
  EXPECT_THROW(make_numa_fabric(101), std::invalid_argument);
  FabricSpec spec = make_spec(1, 1);
  spec.nodes[0].nics[0].memory_node = 64;
  EXPECT_THROW(FabricHost::create(spec), std::invalid_argument);
}

}  // namespace
}  // namespace vhca::test
