// SPDX-License-Identifier: Apache-2.0
// Transfers that succeed, within one process and between two.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

void fill(char* memory, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i) memory[i] = static_cast<char>(i * 31 + seed);
}
bool holds(const char* memory, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (memory[i] != static_cast<char>(i * 31 + seed)) return false;
  return true;
}

int run_alone(const FabricHost& fabric, const std::function<void()>& body) {
  Process process(fabric, "node0", [&](const Wire&) { body(); });
  return process.wait();
}

// Target side first: sizes around the piece size, with and without immediate.
void exercise_all_operations(
    const std::function<void(std::size_t)>& prepare_receive, Endpoint& me,
    const std::function<ibv_wc()>& far_completion,
    const std::function<bool(std::size_t offset, std::size_t bytes, unsigned seed)>& far_holds) {
  unsigned seed = 1;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, std::size_t{4096}, std::size_t{262144},
                                  std::size_t{262145}, std::size_t{1000003}}) {
    fill(me.memory(), bytes, ++seed);
    me.post({.opcode = IBV_WR_RDMA_WRITE, .id = bytes, .bytes = bytes});
    VHCA_REQUIRE_EQ(me.expect(IBV_WC_SUCCESS, bytes).opcode, IBV_WC_RDMA_WRITE);
    VHCA_REQUIRE(far_holds(0, bytes, seed));

    prepare_receive(1 << 20);
    fill(me.memory(), bytes, ++seed);
    me.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 2, .bytes = bytes, .imm = htonl(77)});
    me.expect(IBV_WC_SUCCESS, 2);
    ibv_wc wc = far_completion();
    VHCA_REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
    VHCA_REQUIRE_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    VHCA_REQUIRE_EQ(wc.byte_len, bytes);
    VHCA_REQUIRE_EQ(ntohl(wc.imm_data), 77);
    VHCA_REQUIRE(wc.wc_flags & IBV_WC_WITH_IMM);
    VHCA_REQUIRE(far_holds(0, bytes, seed));

    prepare_receive(1 << 20);
    fill(me.memory(), bytes, ++seed);
    me.post({.opcode = IBV_WR_SEND, .id = 3, .bytes = bytes});
    VHCA_REQUIRE_EQ(me.expect(IBV_WC_SUCCESS, 3).opcode, IBV_WC_SEND);
    wc = far_completion();
    VHCA_REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
    VHCA_REQUIRE_EQ(wc.byte_len, bytes);
    VHCA_REQUIRE_EQ(wc.wc_flags & IBV_WC_WITH_IMM, 0);
    VHCA_REQUIRE(far_holds(0, bytes, seed));

    std::memset(me.memory(), 0, bytes);
    me.post({.opcode = IBV_WR_RDMA_READ, .id = 4, .bytes = bytes});
    const ibv_wc read = me.expect(IBV_WC_SUCCESS, 4);
    VHCA_REQUIRE_EQ(read.opcode, IBV_WC_RDMA_READ);
    VHCA_REQUIRE_EQ(read.byte_len, bytes);
    VHCA_REQUIRE(holds(me.memory(), bytes, seed));
  }
}

TEST(Transfer, every_operation_moves_every_byte_within_a_process) {
  const auto fabric = make_fabric(1, 2);
  EXPECT_EQ(run_alone(fabric,
                      [] {
                        Endpoint a({.nic = 0}), b({.nic = 1});
                        connect(a, b);
                        exercise_all_operations([&](std::size_t bytes) { b.post_recv(9, 0, bytes); }, a,
                                                [&] { return b.wait(); },
                                                [&](std::size_t at, std::size_t bytes, unsigned seed) {
                                                  return holds(b.memory() + at, bytes, seed);
                                                });
                      }),
            0);
}

TEST(Transfer, every_operation_moves_every_byte_between_processes) {
  const auto fabric = make_fabric(2, 1);
  struct Question {
    char kind;  // r: post a receive, c: wait for a completion, h: compare, q: quit
    std::size_t offset, bytes;
    unsigned seed;
  };
  Process target(fabric, "node1", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    for (;;) {
      const auto question = wire.receive<Question>();
      if (question.kind == 'q') return;
      if (question.kind == 'r') {
        me.post_recv(9, 0, question.bytes);
        wire.send('k');
      } else if (question.kind == 'c') {
        wire.send(me.wait());
      } else {
        wire.send(holds(me.memory() + question.offset, question.bytes, question.seed));
      }
    }
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    const Wire far = target.wire();
    Endpoint me;
    me.connect_over(wire);
    exercise_all_operations(
        [&](std::size_t bytes) {
          far.send(Question{'r', 0, bytes, 0});
          far.receive<char>();
        },
        me,
        [&] {
          far.send(Question{'c', 0, 0, 0});
          return far.receive<ibv_wc>();
        },
        [&](std::size_t offset, std::size_t bytes, unsigned seed) {
          far.send(Question{'h', offset, bytes, seed});
          return far.receive<bool>();
        });
    far.send(Question{'q', 0, 0, 0});
  });
  introduce(target, initiator);
  EXPECT_EQ(initiator.wait(), 0);
  EXPECT_EQ(target.wait(), 0);
  EXPECT_GT(fabric.counters("node0", 0).tx_bytes, 1'000'000u);
  EXPECT_GT(fabric.counters("node1", 0).tx_bytes, 1'000'000u);  // the responses of the READs
}

TEST(Transfer, scatters_and_gathers_in_order) {
  const auto fabric = make_fabric(1, 2);
  EXPECT_EQ(
      run_alone(
          fabric,
          [] {
            Endpoint a({.nic = 0}), b({.nic = 1});
            connect(a, b);
            const auto sge = [](const Endpoint& e, std::size_t offset, std::uint32_t bytes) {
              return ibv_sge{reinterpret_cast<std::uintptr_t>(e.memory() + offset), bytes, e.mr()->lkey};
            };
            ibv_sge into[3] = {sge(b, 5000, 3), sge(b, 6000, 0), sge(b, 7000, 300'000)};
            ibv_recv_wr recv{};
            recv.wr_id = 5;
            recv.sg_list = into;
            recv.num_sge = 3;
            ibv_recv_wr* bad_recv;
            VHCA_REQUIRE_EQ(ibv_post_recv(b.qp(), &recv, &bad_recv), 0);
            fill(a.memory(), 1 << 20, 3);
            ibv_sge from[2] = {sge(a, 100, 200'001), sge(a, 300'000, 7)};
            ibv_send_wr send{};
            send.wr_id = 6;
            send.sg_list = from;
            send.num_sge = 2;
            send.opcode = IBV_WR_SEND;
            ibv_send_wr* bad_send;
            VHCA_REQUIRE_EQ(ibv_post_send(a.qp(), &send, &bad_send), 0);
            a.expect(IBV_WC_SUCCESS, 6);
            VHCA_REQUIRE_EQ(b.expect(IBV_WC_SUCCESS, 5).byte_len, 200'008);
            std::string sent(a.memory() + 100, 200'001);
            sent.append(a.memory() + 300'000, 7);
            std::string got(b.memory() + 5000, 3);
            got.append(b.memory() + 7000, 200'005);
            VHCA_REQUIRE(sent == got);
          }),
      0);
}

TEST(Transfer, inline_data_may_change_as_soon_as_it_is_posted) {
  const auto fabric = make_fabric(1, 2, 1'000'000'000, std::chrono::milliseconds(5));
  EXPECT_EQ(run_alone(fabric,
                      [] {
                        Endpoint a({.nic = 0}), b({.nic = 1});
                        connect(a, b);
                        bool changed_in_time = false;  // 5 ms away, if this process has a CPU meanwhile
                        for (unsigned seed = 1; seed < 50; ++seed) {
                          fill(a.memory(), 200, seed);
                          a.post({.id = 1, .bytes = 200, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE});
                          fill(a.memory(), 200, 99);
                          changed_in_time |= !holds(b.memory(), 200, seed);
                          a.expect(IBV_WC_SUCCESS, 1);
                          VHCA_REQUIRE(holds(b.memory(), 200, seed));
                        }
                        VHCA_REQUIRE(changed_in_time);
                      }),
            0);
}

TEST(Transfer, unsignaled_requests_show_no_completion_and_free_their_slots_with_the_next_signaled_one) {
  const auto fabric = make_fabric(1, 2);
  EXPECT_EQ(run_alone(fabric,
                      [] {
                        Endpoint a({.nic = 0, .send_depth = 16, .all_signaled = false}), b({.nic = 1});
                        connect(a, b);
                        for (int round = 0; round < 3; ++round) {
                          for (std::uint64_t i = 0; i < 15; ++i) a.post({.id = i, .bytes = 8, .flags = 0});
                          a.post({.id = 15, .bytes = 8});
                          VHCA_REQUIRE_EQ(a.try_post({.id = 16, .bytes = 8}), ENOMEM);
                          a.expect(IBV_WC_SUCCESS, 15);
                          VHCA_REQUIRE(a.nothing_to_poll());
                        }
                      }),
            0);
}

TEST(Transfer, queues_refuse_more_than_their_depth) {
  const auto fabric = make_fabric(1, 2);
  EXPECT_EQ(run_alone(fabric,
                      [] {
                        Endpoint a({.nic = 0, .recv_depth = 5});
                        for (std::uint64_t i = 0; i < 5; ++i) a.post_recv(i, 0, 8);
                        VHCA_REQUIRE_EQ(a.try_post_recv(5, 0, 8), ENOMEM);
                      }),
            0);
}

TEST(Transfer, a_process_that_does_not_poll_still_makes_progress) {
  const auto fabric = make_fabric(2, 1, 1'000'000'000);
  Process target(fabric, "node1", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    const std::uint64_t end = now_ns() + 10'000'000'000;
    while (!holds(me.memory(), 1 << 20, 5)) {
      VHCA_REQUIRE(now_ns() < end);
      ::sched_yield();
    }
    wire.send('k');
  });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    fill(me.memory(), 1 << 20, 5);
    me.post({.id = 1, .bytes = 1 << 20});
    wire.receive<char>();  // no verbs call until the data is there
  });
  introduce(target, initiator);
  EXPECT_EQ(target.wait(), 0);
  initiator.wire().send('k');
  EXPECT_EQ(initiator.wait(), 0);
}

}  // namespace
}  // namespace vhca::test
