// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/host_boards.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faultinject/control/board.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

using faultinject::BoardHost;
using faultinject::FaultSpec;
using faultinject::FaultState;
using faultinject::Trigger;

const std::vector<faultinject::NodeShape> kNodes = {{"node0", 2}, {"node1", 2}};

FaultSpec fault(const char* target, Trigger::Kind kind = Trigger::Kind::kManual) {
  FaultSpec spec;
  spec.name = std::string("on ") + target;
  spec.kind = &faultinject::fault_kind("port_down");
  spec.target = faultinject::parse_target(target);
  spec.trigger.kind = kind;
  return spec;
}

class Boards : public testing::Test {
 protected:
  /// An injected process of that host reports an effect.
  void take_effect(BoardHost& board, uint32_t id) {
    const int fd = open(board.path().c_str(), O_RDWR | O_CLOEXEC);
    void* memory = mmap(nullptr, sizeof(faultinject::Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    faultinject::took_effect(static_cast<faultinject::Board*>(memory)->faults[id - 1], r2ccl::now_ns());
    munmap(memory, sizeof(faultinject::Board));
  }

  BoardHost a = BoardHost::create(kNodes, 1), b = BoardHost::create(kNodes, 1);
  HostBoards both{{{&a, {0, 1, {}}}, {&b, {1, 1, {}}}}, kNodes, 1};
};

TEST_F(Boards, ids_are_the_same_on_every_host) {
  EXPECT_EQ(both.arm(fault("node0/nic1"), faultinject::TimeOrigin::kBoard), 1u);
  EXPECT_EQ(both.arm(fault("node1/nic0"), faultinject::TimeOrigin::kBoard), 2u);
  EXPECT_EQ(a.armed(), 2u);
  EXPECT_EQ(b.armed(), 2u);
  EXPECT_EQ(both.spec(2).target.text, "node1/nic0");
  EXPECT_THROW(both.arm(fault("node7/nic0"), faultinject::TimeOrigin::kBoard), faultinject::PlanError);
  EXPECT_EQ(b.armed(), 2u) << "none or all";
}

TEST_F(Boards, a_fault_is_fired_where_its_target_lives) {
  const uint32_t id = both.arm(fault("node1/nic0"), faultinject::TimeOrigin::kBoard);
  both.fire(id);
  EXPECT_EQ(a.state(id).phase, FaultState::Phase::kArmed);
  EXPECT_EQ(b.state(id).phase, FaultState::Phase::kFired);
  EXPECT_EQ(both.state(id).phase, FaultState::Phase::kFired);
  EXPECT_EQ(both.state(id).t0_ns, 0u);
  take_effect(b, id);
  EXPECT_EQ(both.state(id).t0_ns, b.state(id).t0_ns);
  EXPECT_NE(both.state(id).t0_ns, 0u);
  both.heal(id);
  EXPECT_EQ(both.state(id).phase, FaultState::Phase::kHealed);
  EXPECT_NE(both.state(id).healed_ns, 0u);
}

TEST_F(Boards, an_event_on_another_host_fires_it) {
  FaultSpec spec = fault("node1/nic0", Trigger::Kind::kEvent);
  spec.trigger.event = "migration_started";
  const uint32_t id = both.arm(spec, faultinject::TimeOrigin::kBoard);
  both.forward();
  EXPECT_EQ(b.state(id).phase, FaultState::Phase::kArmed);
  a.event("migration_started", 1);  // on the host of node 0
  EXPECT_EQ(b.state(id).phase, FaultState::Phase::kArmed);
  both.forward();
  EXPECT_EQ(b.state(id).phase, FaultState::Phase::kFired);
  const uint32_t rounds = b.state(id).rounds;
  both.forward();
  EXPECT_EQ(b.state(id).rounds, rounds) << "once";
  EXPECT_EQ(both.state(id).recent_ns, b.state(id).recent_ns);
  EXPECT_EQ(both.state(id).recent_ns.size(), rounds);
}

TEST_F(Boards, a_fault_that_follows_one_of_another_host_strikes) {
  const uint32_t first = both.arm(fault("node0/nic0"), faultinject::TimeOrigin::kBoard);
  FaultSpec follower = fault("node1/nic0", Trigger::Kind::kAfter);
  follower.trigger.fault = "on node0/nic0";
  const uint32_t second = both.arm(follower, faultinject::TimeOrigin::kBoard);
  both.fire(first);
  take_effect(a, first);
  both.forward();
  EXPECT_EQ(both.state(second).phase, FaultState::Phase::kFired);
}

TEST_F(Boards, a_target_on_both_hosts_is_healed_when_it_is_on_both) {
  const uint32_t id = both.arm(fault("*/nic0"), faultinject::TimeOrigin::kBoard);
  both.fire(id);
  a.heal(id);
  EXPECT_EQ(both.state(id).phase, FaultState::Phase::kFired);
  EXPECT_EQ(both.state(id).healed_ns, 0u);
  b.heal(id);
  EXPECT_EQ(both.state(id).phase, FaultState::Phase::kHealed);
  EXPECT_EQ(both.state(id).healed_ns, b.state(id).healed_ns) << "when the last one was";
}

}  // namespace
}  // namespace r2bench
