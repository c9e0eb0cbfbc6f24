// SPDX-License-Identifier: Apache-2.0
// kill -9 of processes in the middle of everything, a hundred times: nothing of them is left, and the others
// go on.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "harness/vhca/testing/leftovers.h"
#include "harness/vhca/testing/shared_page.h"

namespace vhca::test {
namespace {

struct Stage {
  std::atomic<std::uint64_t> bystander_rounds;
  // One round's two victims.
  std::atomic<std::uint64_t> operations[2];
  std::atomic<bool> ready[2];
  Address address[2][2];  // [of][RC, UD]
};

// Two that are never killed: their transfers must go on and stay right.
void go_on(const Wire& wire, Stage& stage, bool counts) {
  Endpoint me({.channel = true});
  me.connect_over(wire);
  for (std::uint64_t round = 1;; ++round) {
    me.word(0) = round;
    me.post({.id = 1, .bytes = 100'000, .remote_offset = 500'000});
    me.expect(IBV_WC_SUCCESS, 1);
    me.post({.opcode = IBV_WR_RDMA_READ, .id = 2, .offset = 300'000, .bytes = 8, .remote_offset = 500'000});
    me.expect(IBV_WC_SUCCESS, 2);
    VHCA_REQUIRE_EQ(me.word(300'000), round);
    if (counts) stage.bystander_rounds.fetch_add(1);
    char end;
    if (::recv(wire.fd(), &end, 1, MSG_DONTWAIT) == 1) break;
  }
  wire.send('d');
  wire.receive<char>();
}

// Everything there is, without an end. Errors are expected: the other one may be gone.
void do_everything(Stage& stage, int who) {
  Endpoint rc({.srq_wr = 32, .channel = true, .timeout = 8, .retry = 1, .rnr_retry = 2});
  Endpoint ud({.nic = 1, .type = IBV_QPT_UD});
  stage.address[who][0] = rc.address();
  stage.address[who][1] = ud.address();
  stage.ready[who].store(true);
  VHCA_REQUIRE(eventually([&] { return stage.ready[1 - who].load(); }));
  rc.connect(stage.address[1 - who][0]);
  ud.connect(stage.address[1 - who][1]);
  ibv_req_notify_cq(rc.cq(), 0);
  for (std::uint64_t i = 0;; ++i) {
    rc.try_post_recv(i, 64 * (i % 32), 64);
    ud.try_post_recv(i, 128 * (i % 32), 128);
    rc.try_post({.id = i, .bytes = 200'000, .remote_offset = 600'000});
    rc.try_post({.opcode = IBV_WR_SEND, .id = i, .bytes = 64});
    rc.try_post({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                 .id = i,
                 .offset = 4096,
                 .bytes = 8,
                 .remote_offset = 8192,
                 .compare_add = 1});
    ud.try_post({.opcode = IBV_WR_SEND, .id = i, .bytes = 64});
    ibv_wc wc[8];
    for (Endpoint* e : {&rc, &ud})
      for (int got; (got = ibv_poll_cq(e->cq(), 8, wc)) > 0;)
        stage.operations[who].fetch_add(static_cast<unsigned>(got));
    ibv_mr* extra = ibv_reg_mr(rc.pd(), rc.memory(), 4096, IBV_ACCESS_LOCAL_WRITE);
    if (extra) ibv_dereg_mr(extra);
  }
}

void kill_again_and_again(std::uint64_t rate, std::chrono::nanoseconds latency, int kills) {
  std::optional<FabricHost> held = make_fabric(4, 2, rate, latency);
  const FabricHost& fabric = *held;
  const MemoryIdentity memory = MemoryIdentity::of(fabric.path());
  ASSERT_NE(memory.inode, 0u);
  SharedPage<Stage> stage;
  Process one(fabric, "node2", [&](const Wire& wire) { go_on(wire, *stage.operator->(), true); });
  Process other(fabric, "node3", [&](const Wire& wire) { go_on(wire, *stage.operator->(), false); });
  introduce(one, other);
  ASSERT_TRUE(eventually([&] { return stage->bystander_rounds.load() > 0; }));
  const FabricHost::Usage before = fabric.usage();
  EXPECT_EQ(before.processes, 2u);
  EXPECT_EQ(users_of(memory).size(), 3u);  // the two and this one; so the look sees what there is

  std::mt19937 random(4711);
  int killed = 0, in_traffic = 0;
  while (killed < kills) {
    for (int i = 0; i < 2; ++i) {
      stage->ready[i].store(false);
      stage->operations[i].store(0);
    }
    std::unique_ptr<Process> victims[2];
    for (int i = 0; i < 2; ++i)
      victims[i] = std::make_unique<Process>(fabric, "node" + std::to_string(i),
                                             [&, i](const Wire&) { do_everything(*stage.operator->(), i); });
    const int first = static_cast<int>(random() % 2);
    if (killed % 8 != 0) {  // else in the middle of setting up
      ASSERT_TRUE(
          eventually([&, wanted = random() % 400] { return stage->operations[first].load() >= wanted; }));
    }
    const timespec a_moment{0, static_cast<long>(random() % 3'000'000)};
    ::nanosleep(&a_moment, nullptr);
    in_traffic += stage->operations[first].load() > 0;
    for (const int i : {first, 1 - first}) {
      EXPECT_FALSE(maps_text(victims[i]->pid(), "/dev/shm/"));  // nothing there that could stay
      victims[i]->signal(SIGKILL);
      EXPECT_EQ(victims[i]->wait(), 128 + SIGKILL);
      ++killed;
      if (i == first) {
        const timespec survivor_alone{0, static_cast<long>(random() % 2'000'000)};
        ::nanosleep(&survivor_alone, nullptr);
      }
    }
    // Nothing of them is left, and those who live go on.
    ASSERT_TRUE(eventually([&] {
      const FabricHost::Usage now = fabric.usage();
      return now.processes == before.processes && now.queue_pairs == before.queue_pairs &&
             now.completion_queues == before.completion_queues &&
             now.memory_regions == before.memory_regions && now.shared_receive_queues == 0 &&
             now.arena_bytes == before.arena_bytes;
    })) << killed;
    const std::uint64_t rounds = stage->bystander_rounds.load();
    ASSERT_TRUE(eventually([&] { return stage->bystander_rounds.load() >= rounds + 2; })) << killed;
  }
  EXPECT_GE(in_traffic, kills / 4);
  for (Process* process : {&one, &other}) process->wire().send('e');
  for (Process* process : {&one, &other}) process->wire().receive<char>();
  for (Process* process : {&one, &other}) process->wire().send('e');
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(other.wait(), 0);
  const FabricHost::Usage after = fabric.usage();
  EXPECT_EQ(after.processes + after.queue_pairs + after.completion_queues + after.memory_regions +
                after.arena_bytes,
            0u);
  EXPECT_EQ(users_of(memory), std::vector<pid_t>{::getpid()});
  held.reset();
  EXPECT_TRUE(users_of(memory).empty());  // and so the kernel has freed it
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Kill, of_any_process_leaves_nothing_behind) { kill_again_and_again(0, std::chrono::nanoseconds(0), 60); }
TEST(Kill, while_transfers_are_under_way_leaves_nothing_behind) {
  kill_again_and_again(2'000'000'000, std::chrono::microseconds(50), 60);
}

}  // namespace
}  // namespace vhca::test
