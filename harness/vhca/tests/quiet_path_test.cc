// SPDX-License-Identifier: Apache-2.0
// The data path asks the kernel for no memory: whoever maps or unmaps holds up every initiator that copies
// into this process meanwhile, and waits for them. A filter ends the process at the first such call.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstddef>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr int kForbidden[] = {SYS_mmap, SYS_munmap,  SYS_mremap, SYS_mprotect,
                              SYS_brk,  SYS_madvise, SYS_clone3, SYS_fallocate};

// From now on, for all threads of this process.
void forbid_mapping() {
  std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int number : kForbidden) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  VHCA_REQUIRE_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  VHCA_REQUIRE_EQ(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}

void take_channel_event(Endpoint& e) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  VHCA_REQUIRE_EQ(ibv_get_cq_event(e.channel(), &cq, &context), 0);
  ibv_ack_cq_events(cq, 1);
}

void all_kinds_of_work(Endpoint& rc, Endpoint& srq, Endpoint& ud, std::uint64_t round) {
  for (int i = 0; i < 8; ++i)
    rc.post({.id = round,
             .offset = 65536u * unsigned(i),
             .bytes = 60'000,
             .remote_offset = 65536u * unsigned(i)});
  rc.post({.opcode = IBV_WR_RDMA_READ, .id = round, .bytes = 500'000});
  rc.post(
      {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = round, .bytes = 8, .remote_offset = 8, .compare_add = 1});
  for (int i = 0; i < 10; ++i) rc.expect(IBV_WC_SUCCESS, round);
  VHCA_REQUIRE_EQ(ibv_req_notify_cq(rc.cq(), 0), 0);
  rc.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = round, .bytes = 300'000});
  take_channel_event(rc);
  rc.expect(IBV_WC_SUCCESS, round);
  srq.post({.opcode = IBV_WR_SEND, .id = round, .bytes = 1000});
  srq.expect(IBV_WC_SUCCESS, round);
  ud.post({.opcode = IBV_WR_SEND, .id = round, .bytes = 1000});
  ud.expect(IBV_WC_SUCCESS, round);
}

void maps_nothing(std::uint64_t rate) {
  constexpr std::uint64_t kRounds = 200;
  const auto fabric = make_fabric(2, 3, rate);
  const Options shared = {.nic = 1, .srq_wr = 16}, datagram = {.nic = 2, .type = IBV_QPT_UD};
  Process target(fabric, "node1", [&](const Wire& wire) {
    Endpoint rc({.channel = true}), srq(shared), ud(datagram);
    for (Endpoint* e : {&rc, &srq, &ud}) e->connect_over(wire);
    forbid_mapping();
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      rc.post_recv(round);
      srq.post_recv(round, 0, 2000);
      ud.post_recv(round, 4096, 2000);
      wire.send('p');
      for (Endpoint* e : {&rc, &srq, &ud}) e->expect(IBV_WC_SUCCESS, round);
    }
    wire.receive<char>();
    for (std::uint64_t i = 0; i < 64; ++i) rc.post_recv(i);
    rc.to_error();
    for (std::uint64_t i = 0; i < 64; ++i) rc.expect(IBV_WC_WR_FLUSH_ERR, i);
    wire.send('f');
    wire.receive<char>();
    std::fflush(nullptr);
    ::_exit(0);  // with the queues: taking them down does unmap
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    Endpoint rc({.channel = true}), srq(shared), ud(datagram);
    for (Endpoint* e : {&rc, &srq, &ud}) e->connect_over(wire);
    forbid_mapping();
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      wire.receive<char>();
      all_kinds_of_work(rc, srq, ud, round);
    }
    wire.send('d');
    wire.receive<char>();
    for (int i = 0; i < 20; ++i) rc.post({.id = 1, .bytes = 100'000});  // the peer does not answer
    rc.to_error();
    for (int i = 0; i < 20; ++i) rc.expect(IBV_WC_WR_FLUSH_ERR, 1);
    std::fflush(nullptr);
    ::_exit(0);
  });
  for (int i = 0; i < 3; ++i) introduce(target, initiator);
  for (std::uint64_t round = 0; round < kRounds; ++round)
    initiator.wire().send(target.wire().receive<char>());
  target.wire().send(initiator.wire().receive<char>());
  initiator.wire().send(target.wire().receive<char>());
  EXPECT_EQ(initiator.wait(), 0);
  target.wire().send('e');
  EXPECT_EQ(target.wait(), 0);
}

TEST(QuietPath, posting_polling_and_flushing_map_nothing_at_an_unlimited_rate) { maps_nothing(0); }
TEST(QuietPath, nor_on_a_port_with_a_rate) { maps_nothing(5'000'000'000); }

TEST(QuietPath, the_filter_sees_what_it_looks_for) {
  const auto fabric = make_fabric(1, 1);
  Process process(fabric, "node0", [](const Wire&) {
    forbid_mapping();
    Endpoint me;
  });
  EXPECT_EQ(process.wait(), 128 + SIGSYS);
}

}  // namespace
}  // namespace vhca::test
