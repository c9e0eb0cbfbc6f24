// SPDX-License-Identifier: Apache-2.0
// Large messages that share a copy: no program can tell but by speed. Each is right, in order, and has its
// own outcome; none waits for a program that has nothing more to post.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "harness/vhca/testing/shared_page.h"

namespace vhca::test {
namespace {

constexpr std::size_t kBytes = 40'000;  // of a message: large, and no multiple of a page
constexpr std::size_t kRoom = 16 * kBytes;

void pattern(char* at, std::size_t bytes, unsigned seed) {
  auto* const words = reinterpret_cast<std::uint64_t*>(at);
  for (std::size_t i = 0; i < bytes / 8; ++i) words[i] = (i + seed) * 0x9e3779b97f4a7c15;
}
bool has_pattern(const char* at, std::size_t bytes, unsigned seed) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(at);
  for (std::size_t i = 0; i < bytes / 8; ++i)
    if (words[i] != (i + seed) * 0x9e3779b97f4a7c15) return false;
  return true;
}

std::uint64_t messages_of(const FabricHost& fabric) { return fabric.counters("node0", 0).tx_messages; }

// Two devices of one process.
struct Both {
  explicit Both(Options a_options = {}, Options b_options = {})
      : a(with(a_options, 0)), b(with(b_options, 1)) {
    connect(a, b);
  }
  static Options with(Options options, int nic) {
    options.nic = nic;
    options.bytes = 2 * kRoom;
    return options;
  }
  Endpoint a, b;
};

// Posted ahead of what was polled for, so that they wait for each other.
void post_ahead(Endpoint& a, int count, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
  for (int i = 0; i < count; ++i)
    a.post({.opcode = opcode,
            .id = static_cast<std::uint64_t>(i),
            .offset = kBytes * static_cast<std::size_t>(i),
            .bytes = kBytes,
            .remote_offset = kBytes * static_cast<std::size_t>(i)});
}

TEST(Together, several_wait_for_a_poll_and_arrive_with_it) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    Both both;
    bool waited = false;
    for (unsigned round = 0; round < 50; ++round) {
      pattern(both.a.memory(), kRoom, round);
      const std::uint64_t before = messages_of(fabric);
      post_ahead(both.a, 8);
      waited |= messages_of(fabric) < before + 8;  // the engine may have been faster in this round
      for (std::uint64_t i = 0; i < 8; ++i) both.a.expect(IBV_WC_SUCCESS, i);
      VHCA_REQUIRE_EQ(messages_of(fabric), before + 8);
      VHCA_REQUIRE(has_pattern(both.b.memory(), 8 * kBytes, round));
    }
    VHCA_REQUIRE(waited);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Together, they_arrive_though_nobody_polls) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [](const Wire& wire) {
    Endpoint me({.bytes = 2 * kRoom});
    me.connect_over(wire);
    for (unsigned round = 1; round < 20; ++round) {
      wire.send('p');
      auto& last = reinterpret_cast<std::atomic<std::uint64_t>&>(me.word(6 * kBytes - 8));
      VHCA_REQUIRE(eventually([&] { return last.load() == round; }));
    }
    wire.send('p');
  });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me({.bytes = 2 * kRoom});
    me.connect_over(wire);
    for (unsigned round = 1; round < 20; ++round) {
      wire.receive<char>();
      me.word(6 * kBytes - 8) = round;
      post_ahead(me, 6);
    }
    wire.receive<char>();
    for (unsigned i = 0; i < 19 * 6; ++i) me.expect(IBV_WC_SUCCESS, i % 6);
  });
  introduce(target, initiator);
  for (int i = 0; i < 20; ++i) initiator.wire().send(target.wire().receive<char>());
  EXPECT_EQ(initiator.wait(), 0);
  EXPECT_EQ(target.wait(), 0);
}

TEST(Together, a_sleeper_on_the_channel_is_not_kept_waiting) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    Both both({.channel = true});
    for (int round = 0; round < 50; ++round) {
      both.a.post({.id = 0, .bytes = 8});
      VHCA_REQUIRE_EQ(ibv_req_notify_cq(both.a.cq(), 0), 0);
      const std::uint64_t before = messages_of(fabric);
      both.a.post({.id = 1, .bytes = kBytes});  // while it is armed
      VHCA_REQUIRE_EQ(messages_of(fabric), before + 1);
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      VHCA_REQUIRE_EQ(ibv_get_cq_event(both.a.channel(), &cq, &context), 0);
      ibv_ack_cq_events(cq, 1);
      post_ahead(both.a, 3);
      VHCA_REQUIRE_EQ(ibv_req_notify_cq(both.a.cq(), 0), 0);  // behind what waits
      VHCA_REQUIRE_EQ(messages_of(fabric), before + 4);
      both.a.expect(IBV_WC_SUCCESS, 0);
      both.a.expect(IBV_WC_SUCCESS, 1);
      for (std::uint64_t i = 0; i < 3; ++i) both.a.expect(IBV_WC_SUCCESS, i);
      both.a.post({.id = 9, .bytes = 8});  // fires if the engine was faster than the arming
      VHCA_REQUIRE_EQ(ibv_get_cq_event(both.a.channel(), &cq, &context), 0);
      ibv_ack_cq_events(cq, 1);
      both.a.expect(IBV_WC_SUCCESS, 9);
    }
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Together, what_gives_no_completion_waits_for_nothing) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    Both both({.all_signaled = false});
    for (int round = 0; round < 50; ++round) {
      both.a.post({.id = 0, .bytes = 8});
      const std::uint64_t before = messages_of(fabric);
      both.a.post({.id = 1, .bytes = kBytes, .flags = 0});
      VHCA_REQUIRE_EQ(messages_of(fabric), before + 1);
      both.a.expect(IBV_WC_SUCCESS, 0);
    }
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Together, reads_and_writes_keep_their_order) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [](const Wire& wire) {
    Endpoint me({.bytes = 2 * kRoom});
    me.connect_over(wire);
    wire.receive<char>();
  });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me({.bytes = 2 * kRoom, .send_depth = 256});
    me.connect_over(wire);
    for (unsigned round = 0; round < 50; ++round) {
      pattern(me.memory(), kRoom, round);
      post_ahead(me, 8);
      // Over what has just been written, the later one wins; then all of it comes back.
      me.post({.id = 8, .offset = kBytes, .bytes = kBytes, .remote_offset = 0});
      for (std::uint64_t i = 0; i < 8; ++i)
        me.post({.opcode = IBV_WR_RDMA_READ,
                 .id = 9 + i,
                 .offset = kRoom + kBytes * i,
                 .bytes = kBytes,
                 .remote_offset = kBytes * i});
      for (std::uint64_t i = 0; i < 17; ++i) me.expect(IBV_WC_SUCCESS, i);
      VHCA_REQUIRE(std::memcmp(me.memory() + kRoom, me.memory() + kBytes, kBytes) == 0);
      VHCA_REQUIRE(std::memcmp(me.memory() + kRoom + kBytes, me.memory() + kBytes, 7 * kBytes) == 0);
    }
    wire.send('d');
    wire.receive<char>();
  });
  introduce(target, initiator);
  initiator.wire().receive<char>();
  target.wire().send('e');
  EXPECT_EQ(target.wait(), 0);
  initiator.wire().send('e');
  EXPECT_EQ(initiator.wait(), 0);
}

// One of them is wrong: those before it are there, it has its status, those behind it are flushed and nothing
// of them is there.
void only_one_fails(const Endpoint::Work& wrong, ibv_wc_status status) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    Both both;
    pattern(both.a.memory(), kRoom, 3);
    post_ahead(both.a, 3);
    Endpoint::Work work = wrong;
    work.id = 3;
    work.bytes = kBytes;
    both.a.post(work);
    for (std::uint64_t i = 4; i < 7; ++i)
      both.a.post({.id = i, .offset = kBytes * i, .bytes = kBytes, .remote_offset = kBytes * i});
    for (std::uint64_t i = 0; i < 3; ++i) both.a.expect(IBV_WC_SUCCESS, i);
    both.a.expect(status, 3);
    for (std::uint64_t i = 4; i < 7; ++i) both.a.expect(IBV_WC_WR_FLUSH_ERR, i);
    VHCA_REQUIRE(has_pattern(both.b.memory(), 3 * kBytes, 3));
    for (std::size_t i = 3 * kBytes; i < 7 * kBytes; ++i) VHCA_REQUIRE(both.b.memory()[i] == 0);
  });
  EXPECT_EQ(process.wait(), 0);
}
TEST(Together, a_bad_remote_key_is_that_ones_own) {
  only_one_fails({.rkey = 0x55555555}, IBV_WC_REM_ACCESS_ERR);
}
TEST(Together, a_bad_local_key_is_that_ones_own) {
  only_one_fails({.lkey = 0x55555555}, IBV_WC_LOC_PROT_ERR);
}

// The memory of one message's destination is gone in the other process, in the middle of a shared copy.
TEST(Together, memory_that_is_gone_fails_the_message_that_needs_it) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [](const Wire& wire) {
    Endpoint me({.bytes = 2 * kRoom});
    me.connect_over(wire);
    char* const page = reinterpret_cast<char*>(
        (reinterpret_cast<std::uintptr_t>(me.memory()) + 4 * kBytes + 8192) & ~4095ul);
    VHCA_REQUIRE_EQ(::mprotect(page, 4096, PROT_NONE), 0);
    wire.send('p');
    wire.receive<char>();
    VHCA_REQUIRE(has_pattern(me.memory(), 4 * kBytes, 9));
    VHCA_REQUIRE_EQ(::mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
    VHCA_REQUIRE(me.state() == IBV_QPS_ERR);
  });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me({.bytes = 2 * kRoom});
    me.connect_over(wire);
    wire.receive<char>();
    pattern(me.memory(), kRoom, 9);
    post_ahead(me, 8);
    for (std::uint64_t i = 0; i < 4; ++i) me.expect(IBV_WC_SUCCESS, i);
    me.expect(IBV_WC_REM_ACCESS_ERR, 4);
    for (std::uint64_t i = 5; i < 8; ++i) me.expect(IBV_WC_WR_FLUSH_ERR, i);
    wire.send('d');
    wire.receive<char>();
  });
  introduce(target, initiator);
  initiator.wire().send(target.wire().receive<char>());
  target.wire().send(initiator.wire().receive<char>());
  EXPECT_EQ(target.wait(), 0);
  initiator.wire().send('e');
  EXPECT_EQ(initiator.wait(), 0);
}

TEST(Together, unreliable_writes_share_a_copy_too) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    Both both({.type = IBV_QPT_UC}, {.type = IBV_QPT_UC});
    pattern(both.a.memory(), kRoom, 5);
    post_ahead(both.a, 8);
    for (std::uint64_t i = 0; i < 8; ++i) both.a.expect(IBV_WC_SUCCESS, i);
    VHCA_REQUIRE(has_pattern(both.b.memory(), 8 * kBytes, 5));
    // Nobody there: sent, and dropped, each of them.
    both.b.to_error();
    post_ahead(both.a, 8);
    for (std::uint64_t i = 0; i < 8; ++i) both.a.expect(IBV_WC_SUCCESS, i);
    VHCA_REQUIRE_EQ(fabric.counters("node0", 0).dropped, 8u);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Together, what_waits_is_flushed_with_its_queue) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    for (int round = 0; round < 50; ++round) {
      Both both;
      post_ahead(both.a, 8);
      both.a.to_error();
      bool flushing = false;
      for (std::uint64_t i = 0; i < 8; ++i) {
        const ibv_wc wc = both.a.wait();
        VHCA_REQUIRE_EQ(wc.wr_id, i);
        VHCA_REQUIRE(wc.status == IBV_WC_WR_FLUSH_ERR || (!flushing && wc.status == IBV_WC_SUCCESS));
        flushing |= wc.status == IBV_WC_WR_FLUSH_ERR;
      }
      post_ahead(both.b, 8);
      both.b.destroy_qp();  // and nothing of it is touched afterwards
    }
  });
  EXPECT_EQ(process.wait(), 0);
}

}  // namespace
}  // namespace vhca::test
