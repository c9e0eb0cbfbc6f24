// SPDX-License-Identifier: Apache-2.0
// Fetch-and-add and compare-and-swap: what they return, what they refuse, and that no operation of any
// process is lost.
#include <gtest/gtest.h>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

class Atomics : public ::testing::Test {
 protected:
  void run(const std::function<void()>& body) {
    Process process(fabric_, "node0", [&](const Wire&) { body(); });
    EXPECT_EQ(process.wait(), 0);
  }
  FabricHost fabric_ = make_fabric(4, 2);
};

// Adds 1 `count` times, 8 requests outstanding; the results must ascend.
void add_ones(Endpoint& me, std::uint64_t count) {
  std::uint64_t posted = 0, last = 0;
  for (std::uint64_t done = 0; done < count; ++done) {
    for (; posted < count && posted < done + 8; ++posted)
      me.post({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
               .id = posted,
               .offset = 4096 + 8 * (posted % 8),
               .bytes = 8,
               .compare_add = 1});
    const ibv_wc wc = me.expect(IBV_WC_SUCCESS, done);
    VHCA_REQUIRE_EQ(wc.opcode, IBV_WC_FETCH_ADD);
    const std::uint64_t before = me.word(4096 + 8 * (done % 8));
    VHCA_REQUIRE(done == 0 || before > last);
    last = before;
  }
}

TEST_F(Atomics, return_what_was_there_and_change_it) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    b.word(64) = 40;
    a.post(
        {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 1, .bytes = 8, .remote_offset = 64, .compare_add = 2});
    a.expect(IBV_WC_SUCCESS, 1);
    VHCA_REQUIRE_EQ(a.word(0), 40);
    VHCA_REQUIRE_EQ(b.word(64), 42);
    a.post({.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
            .id = 2,
            .bytes = 8,
            .remote_offset = 64,
            .compare_add = 41,
            .swap = 7});
    VHCA_REQUIRE_EQ(a.expect(IBV_WC_SUCCESS, 2).opcode, IBV_WC_COMP_SWAP);
    VHCA_REQUIRE_EQ(a.word(0), 42);
    VHCA_REQUIRE_EQ(b.word(64), 42);
    a.post({.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
            .id = 3,
            .bytes = 8,
            .remote_offset = 64,
            .compare_add = 42,
            .swap = 7});
    a.expect(IBV_WC_SUCCESS, 3);
    VHCA_REQUIRE_EQ(a.word(0), 42);
    VHCA_REQUIRE_EQ(b.word(64), 7);
    ibv_device_attr attr;
    VHCA_REQUIRE_EQ(ibv_query_device(a.context(), &attr), 0);
    VHCA_REQUIRE_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
  });
}

TEST_F(Atomics, refuse_what_hardware_refuses) {
  run([] {
    {
      Endpoint a({.nic = 0}), b({.nic = 1});
      connect(a, b);
      a.post(
          {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 1, .bytes = 8, .remote_offset = 4, .compare_add = 1});
      a.expect(IBV_WC_REM_INV_REQ_ERR, 1);
      VHCA_REQUIRE_EQ(b.state(), IBV_QPS_ERR);
      VHCA_REQUIRE_EQ(b.word(0), 0);
    }
    {
      Endpoint a({.nic = 0}), b({.nic = 1});
      connect(a, b);
      a.post({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 1, .bytes = 4, .compare_add = 1});
      a.expect(IBV_WC_LOC_LEN_ERR, 1);
    }
    {
      Endpoint a({.nic = 0}), b({.nic = 1, .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
      connect(a, b);
      a.post({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 1, .bytes = 8, .compare_add = 1});
      a.expect(IBV_WC_REM_ACCESS_ERR, 1);
    }
    {
      Endpoint a({.nic = 0}), b({.nic = 1, .qp_access = IBV_ACCESS_REMOTE_WRITE});
      connect(a, b);
      a.post({.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .id = 1, .bytes = 8});
      a.expect(IBV_WC_REM_INV_REQ_ERR, 1);
      VHCA_REQUIRE_EQ(b.word(0), 0);
    }
  });
}

// One counter, three processes on other nodes and the owner itself through a loopback QP.
TEST_F(Atomics, lose_no_addition_of_any_process) {
  constexpr std::uint64_t kEach = 3000;
  Process owner(fabric_, "node0", [](const Wire& wire) {
    Endpoint first;
    Endpoint second({.share = &first}), third({.share = &first}), near({.share = &first});
    Endpoint loop({.nic = 1});
    first.connect_over(wire);
    second.connect_over(wire);
    third.connect_over(wire);
    connect(near, loop);
    wire.receive<char>();
    add_ones(loop, kEach);
    wire.send('d');
    wire.receive<char>();
    VHCA_REQUIRE_EQ(first.word(0), 4 * kEach);
  });
  std::vector<std::unique_ptr<Process>> adders;
  for (int n = 1; n <= 3; ++n) {
    adders.push_back(std::make_unique<Process>(fabric_, "node" + std::to_string(n), [](const Wire& wire) {
      Endpoint me;
      me.connect_over(wire);
      wire.receive<char>();
      add_ones(me, kEach);
      wire.send('d');
    }));
    introduce(owner, *adders.back());
  }
  owner.wire().send('g');
  for (auto& adder : adders) adder->wire().send('g');
  for (auto& adder : adders) EXPECT_EQ(adder->wait(), 0);
  owner.wire().receive<char>();
  owner.wire().send('g');
  EXPECT_EQ(owner.wait(), 0);
}

TEST_F(Atomics, of_a_killed_process_hold_up_nobody) {
  Process owner(fabric_, "node0", [](const Wire& wire) {
    Endpoint first;
    Endpoint second({.share = &first});
    first.connect_over(wire);
    wire.receive<char>();
    second.connect_over(wire);
    wire.receive<char>();
  });
  std::uint64_t kills = 0;
  {
    Process victim(fabric_, "node1", [](const Wire& wire) {
      Endpoint me;
      me.connect_over(wire);
      wire.send('s');
      add_ones(me, ~0ull);
    });
    introduce(owner, victim);
    victim.wire().receive<char>();
    const timespec while_it_adds{0, 20'000'000};
    ::nanosleep(&while_it_adds, nullptr);
    victim.signal(SIGKILL);
    kills += victim.wait() == 128 + SIGKILL;
  }
  EXPECT_EQ(kills, 1u);
  owner.wire().send('n');
  Process heir(fabric_, "node2", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    add_ones(me, 500);
  });
  introduce(owner, heir);
  EXPECT_EQ(heir.wait(), 0);
  owner.wire().send('e');
  EXPECT_EQ(owner.wait(), 0);
}

}  // namespace
}  // namespace vhca::test
