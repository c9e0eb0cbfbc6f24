// SPDX-License-Identifier: Apache-2.0
// Two processes at one queue pair, completion queue or shared receive queue, one of them killed or held up
// between two steps: each at a stated point, not by luck.
#include "harness/vhca/testing/fabric_view.h"  // before objects.h, which undefines macros of verbs.h
#include "harness/vhca/testing/pause_at.h"

#include "../queues/completion.cc"
#include "../queues/runtime.cc"
#include "../responder/receive_signal.cc"
#include "../responder/responder.cc"
#include "../responder/responder_hold.cc"
#include "../responder/shared_request.cc"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <new>

namespace vhca {
namespace {

class Races : public ::testing::Test {
 protected:
  Races() {
    void* memory = ::mmap(nullptr, kFabricBytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    fabric_ = static_cast<Fabric*>(memory);
    QpSlot& qp = queue_pair();
    qp.srq = 1;
    qp.recv_depth = kDepth;
    qp.recv_stride = 64;
    qp.max_recv_sge = 1;
    qp.recv_ring = allocate_pages(*fabric_, 1, kDepth * 64);
    SrqSlot& srq = shared_queue();
    srq.depth = kDepth;
    srq.stride = 64;
    srq.max_sge = 1;
    srq.ring = allocate_pages(*fabric_, 1, kDepth * 64);
  }
  ~Races() override { ::munmap(fabric_, kFabricBytes); }

  // In a process of its own, which has ten seconds. Its exit code, or 128 + signal.
  template <typename F>
  int in_another_process(F&& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(10);
      ::_exit(body());
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  QpSlot& queue_pair() { return fabric_->queue_pairs[0]; }
  SrqSlot& shared_queue() { return fabric_->shared_receive_queues[0]; }
  CqSlot& completion_queue() { return fabric_->completion_queues[0]; }

  void post_shared(std::uint64_t index) {
    SrqEntry& entry = entry_of(*fabric_, shared_queue(), index);
    entry.wr_id = index;
    entry.sge_count = 0;
    entry.claim.store(index << kTakerBits);
    shared_queue().posted.store(index + 1);
  }
  // The holder's next request is completed; its wr_id.
  std::uint64_t complete_next() {
    QpSlot& qp = queue_pair();
    const std::uint64_t index = qp.recv_completed.load();
    EXPECT_EQ(qp.recv_posted.load(), index + 1);
    qp.recv_completed.store(index + 1);
    return recv_entry_of(*fabric_, qp, index).wr_id;
  }

  static constexpr std::uint32_t kDepth = 4;
  Fabric* fabric_;
};

TEST_F(Races, a_shared_queue_goes_on_when_a_killed_initiator_had_claimed_a_request_and_it_was_posted_anew) {
  for (std::uint64_t i = 0; i < kDepth; ++i) post_shared(i);
  ASSERT_EQ(in_another_process([&] {
              test::at_next("claimed", [] { ::_exit(42); });
              take_shared_receive(*fabric_, queue_pair());
              return 1;
            }),
            42);
  finish_taking(*fabric_, queue_pair());
  EXPECT_EQ(complete_next(), 0u);
  post_shared(kDepth);  // polled, and its place in the ring is used again
  ASSERT_EQ(in_another_process([&] { return take_shared_receive(*fabric_, queue_pair()) ? 0 : 1; }), 0);
  EXPECT_EQ(complete_next(), 1u);
  for (std::uint64_t i = 2; i <= kDepth; ++i) {
    ASSERT_TRUE(take_shared_receive(*fabric_, queue_pair()));
    EXPECT_EQ(complete_next(), i);
  }
  EXPECT_FALSE(take_shared_receive(*fabric_, queue_pair()));
}

// It had ended everything but its step to the next request.
TEST_F(Races, a_shared_queue_goes_on_when_the_initiator_was_killed_before_it_moved_on) {
  for (std::uint64_t i = 0; i < kDepth; ++i) post_shared(i);
  ASSERT_EQ(in_another_process([&] {
              test::at_next("taken", [] { ::_exit(42); });
              take_shared_receive(*fabric_, queue_pair());
              return 1;
            }),
            42);
  finish_taking(*fabric_, queue_pair());
  EXPECT_EQ(complete_next(), 0u);
  post_shared(kDepth);  // polled, and its place in the ring is used again
  ASSERT_EQ(in_another_process([&] { return take_shared_receive(*fabric_, queue_pair()) ? 0 : 1; }), 0);
  EXPECT_EQ(complete_next(), 1u);
}

TEST_F(Races, a_request_that_a_killed_initiator_had_only_meant_to_take_is_there_for_the_next) {
  post_shared(0);
  queue_pair().srq_intent.store(1);
  finish_taking(*fabric_, queue_pair());
  EXPECT_EQ(queue_pair().recv_posted.load(), 0u);
  ASSERT_TRUE(take_shared_receive(*fabric_, queue_pair()));
  EXPECT_EQ(complete_next(), 0u);
}

// The owner takes it in its place, so that it cannot be taken later for a queue pair in another life.
TEST_F(Races, a_request_that_a_revoked_initiator_is_about_to_take_is_taken_by_the_owner) {
  post_shared(0);
  recv_entry_of(*fabric_, queue_pair(), 0).wr_id = 0;
  queue_pair().srq_intent.store(1);
  queue_pair().revoked.words[0].store(1ull << 32 | 77);
  finish_taking(*fabric_, queue_pair(), true);
  EXPECT_EQ(queue_pair().recv_posted.load(), 1u);
  EXPECT_NE(entry_of(*fabric_, shared_queue(), 0).claim.load() & kTakerMask, 0u);
  EXPECT_FALSE(take_shared_receive(*fabric_, queue_pair()));
}

TEST_F(Races,
       a_completion_event_outlives_the_initiator_that_is_killed_right_after_it_has_disarmed_the_queue) {
  Channel channel;
  channel.fd = ::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
  Cq cq;
  cq.channel = &channel;
  cq.shared = &completion_queue();
  completion_queue().capacity.store(8);
  completion_queue().notify.store(kArmedForAny);
  ASSERT_EQ(in_another_process([&] {
              test::at_next("disarmed", [] { ::_exit(42); });
              announce_receive(*fabric_, queue_pair(), false, 1);
              return 1;
            }),
            42);
  EXPECT_EQ(completion_queue().notify.load() & kArmedMask, 0u);
  deliver_pending_cq_event(cq);
  EXPECT_EQ(cq.unread_events, 1u);
  deliver_pending_cq_event(cq);
  EXPECT_EQ(cq.unread_events, 1u);
  // Armed again while an event is pending: both count.
  completion_queue().notify.store(kEventPending);
  std::uint32_t seen = completion_queue().notify.load();
  completion_queue().notify.store(seen | kArmedForAny);
  announce_receive(*fabric_, queue_pair(), false, 1);
  deliver_pending_cq_event(cq);
  EXPECT_EQ(cq.unread_events, 2u);
  ::close(channel.fd);
}

// The owner's RESET comes between the initiator's look at the state and its verdict.
TEST(RacesOfStates, a_reset_is_not_undone_by_an_initiator_that_breaks_the_queue_pair_at_the_same_time) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    const test::FabricView view(fabric);
    test::Endpoint a({.nic = 0, .timeout = 8, .retry = 1}), b({.nic = 1});
    test::connect(a, b);
    QpSlot& target = view.queue_pair(b.qp()->qp_num);
    const std::uint32_t life = QpState::life_of(target.state.word());
    bool was_there = false;
    test::at_next("breaking", [&] {
      was_there = true;
      target.state.begin_life();  // what ibv_modify_qp to RESET does first
    });
    a.post({.id = 1, .bytes = 8, .rkey = 0x7fffffff});
    VHCA_REQUIRE_EQ(a.wait().status, IBV_WC_REM_ACCESS_ERR);
    VHCA_REQUIRE(was_there);
    VHCA_REQUIRE_EQ(target.state.load(), IBV_QPS_RESET);
    VHCA_REQUIRE_EQ(QpState::life_of(target.state.word()), life + 1);
    VHCA_REQUIRE_EQ(target.async_flags.load(), 0u);
  });
  EXPECT_EQ(process.wait(), 0);
}

// The same between the engine's look at the state and its verdict that the CQ has overrun.
TEST(RacesOfStates, a_reset_is_not_undone_by_the_engine_that_finds_an_overrun_at_the_same_time) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    const test::FabricView view(fabric);
    test::Endpoint a({.nic = 0, .cq_depth = 4}), b({.nic = 1});
    test::connect(a, b);
    QpState& state = view.queue_pair(a.qp()->qp_num).state;
    const std::uint32_t life = QpState::life_of(state.word());
    std::atomic<bool> posted = false, was_there = false;
    test::at_next("overrun_seen", [&] {
      while (!posted) nap();
      state.begin_life();  // what ibv_modify_qp to RESET does first
      was_there = true;
    });
    for (std::uint64_t i = 0; i < 16; ++i) a.post({.id = i, .bytes = 8});  // and nobody polls
    posted = true;
    const std::uint64_t end = now_ns() + 10'000'000'000;
    while (!was_there) {
      VHCA_REQUIRE(now_ns() < end);
      nap();
    }
    const test::Endpoint behind_the_engine;  // which has a lock while it looks at the flags
    VHCA_REQUIRE_EQ(QpState::life_of(state.word()), life + 1);
    VHCA_REQUIRE_EQ(state.load(), IBV_QPS_RESET);
  });
  EXPECT_EQ(process.wait(), 0);
}

// The initiator is stopped in the middle of a SEND; the owner takes its hold away, resets the queue pair and
// posts a receive in the new life. When the initiator goes on, it places and completes nothing there.
void is_revoked_at(const char* point) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    constexpr std::size_t kBytes = 64;
    const test::FabricView view(fabric);
    test::Endpoint a({.nic = 0, .timeout = 8, .retry = 1}), b({.nic = 1});
    test::connect(a, b);
    QpSlot& target = view.queue_pair(b.qp()->qp_num);
    std::memset(a.memory(), 'x', kBytes);
    std::memset(b.memory(), 0, 2 * kBytes);
    b.post_recv(1, 0, kBytes);
    const std::uint64_t old_ring = target.recv_ring;
    std::uint64_t completed = 0;
    bool was_there = false;
    test::at_next(point, [&] {
      was_there = true;
      revoke_hold(*view, target, target.responder.load());
      b.to_init_again();
      b.to_rtr(b.peer());
      b.post_recv(2, kBytes, kBytes);
      completed = target.recv_completed.load();
    });
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = kBytes});
    VHCA_REQUIRE_EQ(a.wait().status, IBV_WC_RETRY_EXC_ERR);
    VHCA_REQUIRE(was_there);
    VHCA_REQUIRE(target.recv_ring != old_ring);  // into which it may have written what had come
    VHCA_REQUIRE_EQ(target.recv_completed.load(), completed);
    VHCA_REQUIRE(b.nothing_to_poll());
    for (std::size_t i = 0; i < kBytes; ++i) VHCA_REQUIRE_EQ(b.memory()[kBytes + i], 0);
    if (point == std::string("receive_found"))
      for (std::size_t i = 0; i < kBytes; ++i) VHCA_REQUIRE_EQ(b.memory()[i], 0);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(RacesOfLives, an_initiator_that_is_revoked_before_its_copy_places_nothing) {
  is_revoked_at("receive_found");
}
TEST(RacesOfLives, an_initiator_that_is_revoked_after_its_copy_completes_nothing) { is_revoked_at("copied"); }

}  // namespace
}  // namespace vhca
