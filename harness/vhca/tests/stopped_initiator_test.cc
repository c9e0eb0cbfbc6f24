// SPDX-License-Identifier: Apache-2.0
// An initiator that a signal stops between its copy and the completion at the target (a stop takes effect
// when the system call returns). The target goes on without it; when it continues, it must not find anything
// to complete.
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <string>

#include "harness/vhca/testing/fabric_view.h"

namespace vhca::test {
namespace {

constexpr std::size_t kMessage = 1 << 20;
constexpr std::size_t kReceives = 16;
// The hold of a stopped initiator is revoked after 20 ms; the rest is for a busy machine.
constexpr std::uint64_t kFlushBoundNs = 300'000'000;

// The system call from which a stopped process is about to return; -1: it was stopped outside of any.
long system_call_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/syscall");
  EXPECT_TRUE(file.is_open());
  long number = -1;  // also where the file says "running"
  file >> number;
  return file ? number : -1;
}

// Stops the process at a moment at which it holds that QP, in a system call: in its copy, or before its last
// look at the hold. Outside of system calls it may be between that look and its copy, which it then still makes.
void stop_in_the_middle(const Process& process, const FabricView& fabric, std::uint32_t number) {
  const std::uint64_t end = now_ns() + 60'000'000'000;
  for (;;) {
    process.signal(SIGSTOP);
    int status;
    ASSERT_EQ(::waitpid(process.pid(), &status, WUNTRACED), process.pid());
    ASSERT_TRUE(WIFSTOPPED(status));
    if (fabric.is_held(number) && system_call_of(process.pid()) >= 0) return;
    process.signal(SIGCONT);
    const timespec while_it_sends{0, 1'000'000};
    ::nanosleep(&while_it_sends, nullptr);
    ASSERT_LT(now_ns(), end);
  }
}

void send_until_an_error(const Wire& wire) {
  Endpoint me({.bytes = kMessage, .timeout = 8, .retry = 1});
  std::memset(me.memory(), 'x', kMessage);
  me.connect_over(wire);
  for (;;) {
    me.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = kMessage});
    const ibv_wc wc = me.wait();
    if (wc.status == IBV_WC_SUCCESS) continue;
    VHCA_REQUIRE_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    return;
  }
}

// Connects, and receives until its initiator is stopped; then breaks the QP, and tells how many receives were
// flushed.
void receive_and_break(const Wire& wire, Endpoint& me) {
  for (std::uint64_t i = 0; i < kReceives; ++i) me.post_recv(i, 0, kMessage);
  me.connect_over(wire);
  wire.send(me.qp()->qp_num);
  std::uint64_t posted = kReceives, done = 0, flushed = 0;
  char word;
  ibv_wc wc;
  while (::recv(wire.fd(), &word, 1, MSG_DONTWAIT) != 1) {
    if (ibv_poll_cq(me.cq(), 1, &wc) != 1) continue;
    VHCA_REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
    ++done;
    me.post_recv(posted++, 0, kMessage);
  }
  const std::uint64_t all_flushed_by = now_ns() + kFlushBoundNs;
  me.to_error();
  while (done != posted) {
    wc = me.wait(1'000);
    VHCA_REQUIRE(wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == IBV_WC_SUCCESS);
    flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
    ++done;
  }
  VHCA_REQUIRE(now_ns() < all_flushed_by);
  wire.send(flushed);
}

// The queue pair works, in another life.
void expect_to_work(Endpoint& me) {
  Endpoint other;
  me.to_init_again();
  connect(me, other);
  me.post_recv(7, 0, 64);
  other.post({.opcode = IBV_WR_SEND, .id = 8, .bytes = 64});
  other.expect(IBV_WC_SUCCESS, 8);
  me.expect(IBV_WC_SUCCESS, 7);
}

// Breaks and resets its QP while its initiator is stopped. `receives_again`: with receive requests in its new
// life.
void receive_and_reset(const Wire& wire, bool receives_again) {
  Endpoint me({.bytes = 2 * kMessage});
  receive_and_break(wire, me);
  me.to_init_again();
  me.to_rtr(me.peer());
  std::memset(me.memory(), 0, 2 * kMessage);
  if (receives_again)
    for (std::uint64_t i = 0; i < kReceives; ++i) me.post_recv(1000 + i, kMessage, kMessage);
  wire.send('n');
  wire.receive<char>();  // the initiator has continued, and has ended
  VHCA_REQUIRE(me.nothing_to_poll());
  std::uint64_t late = 0;
  for (std::size_t i = 0; i < 2 * kMessage; ++i) late += me.memory()[i] != 0;
  wire.send(late);
  expect_to_work(me);
}

void stop_and_reset(bool receives_again) {
  const auto fabric = make_fabric(2, 1);
  const FabricView view(fabric);
  std::uint64_t flushed = 0;
  constexpr int kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    Process target(fabric, "node1", [&](const Wire& wire) { receive_and_reset(wire, receives_again); });
    Process initiator(fabric, "node0", send_until_an_error);
    introduce(target, initiator);
    stop_in_the_middle(initiator, view, target.wire().receive<std::uint32_t>());
    target.wire().send('s');
    std::uint64_t flushed_now = 0;
    ASSERT_EQ(::recv(target.wire().fd(), &flushed_now, sizeof flushed_now, MSG_WAITALL), 8)
        << "the target has failed";
    flushed += flushed_now;
    target.wire().receive<char>();
    initiator.signal(SIGCONT);
    EXPECT_EQ(initiator.wait(), 0);
    target.wire().send('c');
    std::uint64_t late = 0;
    ASSERT_EQ(::recv(target.wire().fd(), &late, sizeof late, MSG_WAITALL), 8) << "the target has failed";
    EXPECT_EQ(late, 0u) << "bytes that were written in the next life, in round " << round;
    EXPECT_EQ(target.wait(), 0);
  }
  EXPECT_GT(flushed, 0u);
  const auto usage = fabric.usage();
  EXPECT_EQ(usage.processes + usage.queue_pairs, 0u);
  EXPECT_EQ(usage.arena_bytes, 0u);
}

TEST(StoppedInitiator, completes_nothing_in_the_next_life_of_a_queue_pair_without_receives) {
  stop_and_reset(false);
}
TEST(StoppedInitiator, completes_nothing_in_the_next_life_of_a_queue_pair_with_receives) {
  stop_and_reset(true);
}

// Each life of the queue pair has its own initiator, and all of them are stopped in the middle of a message.
TEST(StoppedInitiator, several_of_them_do_not_keep_receives_from_being_flushed) {
  constexpr int kInitiators = 3;
  const auto fabric = make_fabric(2, 1);
  const FabricView view(fabric);
  Process target(fabric, "node1", [&](const Wire& wire) {
    Endpoint me({.bytes = 2 * kMessage});
    for (int life = 0; life < kInitiators; ++life) {
      receive_and_break(wire, me);
      me.to_init_again();
    }
    wire.receive<char>();  // all initiators have continued, and have ended
    VHCA_REQUIRE(me.nothing_to_poll());
    expect_to_work(me);
  });
  std::deque<Process> initiators;
  for (int life = 0; life < kInitiators; ++life) {
    Process& initiator = initiators.emplace_back(fabric, "node0", send_until_an_error);
    introduce(target, initiator);
    stop_in_the_middle(initiator, view, target.wire().receive<std::uint32_t>());
    target.wire().send('s');
    std::uint64_t flushed = 0;
    ASSERT_EQ(::recv(target.wire().fd(), &flushed, sizeof flushed, MSG_WAITALL), 8)
        << "the target has failed with " << life + 1 << " stopped initiators";
    EXPECT_GT(flushed, 0u);
  }
  for (Process& initiator : initiators) initiator.signal(SIGCONT);
  for (Process& initiator : initiators) EXPECT_EQ(initiator.wait(), 0);
  target.wire().send('c');
  EXPECT_EQ(target.wait(), 0);
  const auto usage = fabric.usage();
  EXPECT_EQ(usage.processes + usage.queue_pairs, 0u);
  EXPECT_EQ(usage.arena_bytes, 0u);
}

// What a stopped initiator may still write to is not given to others while it lives, and is when it is dead.
TEST(StoppedInitiator, keeps_what_it_may_write_to_from_being_given_away) {
  const auto fabric = make_fabric(2, 1);
  const FabricView view(fabric);
  Process target(fabric, "node1", [&](const Wire& wire) {
    Endpoint me({.bytes = kMessage});
    for (std::uint64_t i = 0; i < 128; ++i) me.post_recv(i, 0, kMessage);
    me.connect_over(wire);
    wire.send(me.qp()->qp_num);
    ibv_wc wc;
    char word;
    for (std::uint64_t i = 0; ::recv(wire.fd(), &word, 1, MSG_DONTWAIT) != 1;)
      if (ibv_poll_cq(me.cq(), 1, &wc) == 1) me.post_recv(i++, 0, kMessage);
  });
  Process initiator(fabric, "node0", send_until_an_error);
  introduce(target, initiator);
  stop_in_the_middle(initiator, view, target.wire().receive<std::uint32_t>());
  target.wire().send('e');
  EXPECT_EQ(target.wait(), 0);  // destroys its queue pair and ends
  EXPECT_EQ(fabric.usage().queue_pairs, 2u);
  EXPECT_NE(fabric.usage().arena_bytes, 0u);
  initiator.signal(SIGKILL);
  initiator.wait();
  EXPECT_EQ(fabric.usage().queue_pairs, 0u);
  EXPECT_EQ(fabric.usage().arena_bytes, 0u);
}

}  // namespace
}  // namespace vhca::test
