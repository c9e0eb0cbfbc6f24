// SPDX-License-Identifier: Apache-2.0
// Two processes at one queue pair, completion queue or shared receive queue, one of them killed or held up
// between two steps: each at a stated point, not by luck.
#include "harness/vhca/testing/fabric_view.h"  // before objects.h, which undefines macros of verbs.h
#include "harness/vhca/testing/gpu_fixture.h"
#include "harness/vhca/testing/pause_at.h"

#include "../memory/memory_move.cc"
#include "../queues/completion.cc"
#include "../queues/runtime.cc"
#include "../responder/receive_signal.cc"
#include "../responder/responder.cc"
#include "../responder/responder_hold.cc"
#include "../responder/shared_request.cc"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <functional>
#include <new>
#include <optional>
#include <thread>

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

  // As the holder of the moment.
  Hold hold() { return {queue_pair().responder, queue_pair().responder.load()}; }
  bool take() { return take_shared_receive(*fabric_, queue_pair(), hold()); }
  // It is taking a request.
  void a_holder_is_killed_at(const char* point) {
    ASSERT_EQ(in_another_process([&] {
                test::at_next(point, [] { ::_exit(42); });
                take();
                return 1;
              }),
              42);
  }
  // The next holder of the queue pair.
  void hold_anew() { queue_pair().responder.store(((queue_pair().responder.load() >> 32) + 1) << 32 | 77); }
  // The owner takes the hold away, and ends what the holder began.
  void revoke_and_close() {
    QpSlot& qp = queue_pair();
    qp.revoked.words[0].store(qp.responder.load());
    qp.responder.store(qp.responder.load() & ~kHolderMask);
    close_taking(*fabric_, qp);
  }

  void post_shared(std::uint64_t index) {
    SrqEntry& entry = entry_of(*fabric_, shared_queue(), index);
    entry.wr_id = index;
    entry.sge_count = 0;
    entry.claim.store(index << kTakerBits);
    shared_queue().posted.store(index + 1);
  }
  // A process that holds the queue pair, and that is stopped. The caller kills it.
  pid_t stopped_holder() {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const std::uint64_t beacon = 1;
      queue_pair().responder.store(1ull << 32 | register_process(*fabric_, 0, kNoMemoryNode, &beacon));
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(pid, &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
    EXPECT_NE(holder_of(queue_pair().responder.load()), 0u);
    return pid;
  }
  // Until the hold of a stopped process is revoked: 20 ms, and more on a busy machine. Two seconds are for
  // one that runs.
  void is_revoked_in_time(const std::function<void()>& wait) {
    const pid_t holder = stopped_holder();
    const std::uint64_t word = queue_pair().responder.load();
    const std::uint64_t begin = now_ns();
    wait();
    const std::uint64_t took = now_ns() - begin;
    EXPECT_GE(took, 20'000'000u);
    EXPECT_LT(took, 1'000'000'000u);
    EXPECT_EQ(holder_of(queue_pair().responder.load()), 0u);
    EXPECT_EQ(queue_pair().revoked.words[0].load(), word);
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
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
  ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("claimed"));
  finish_taking(*fabric_, queue_pair());
  EXPECT_EQ(complete_next(), 0u);
  post_shared(kDepth);  // polled, and its place in the ring is used again
  ASSERT_EQ(in_another_process([&] { return take() ? 0 : 1; }), 0);
  EXPECT_EQ(complete_next(), 1u);
  for (std::uint64_t i = 2; i <= kDepth; ++i) {
    ASSERT_TRUE(take());
    EXPECT_EQ(complete_next(), i);
  }
  EXPECT_FALSE(take());
}

// It had ended everything but its step to the next request.
TEST_F(Races, a_shared_queue_goes_on_when_the_initiator_was_killed_before_it_moved_on) {
  for (std::uint64_t i = 0; i < kDepth; ++i) post_shared(i);
  ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("taken"));
  finish_taking(*fabric_, queue_pair());
  EXPECT_EQ(complete_next(), 0u);
  post_shared(kDepth);  // polled, and its place in the ring is used again
  ASSERT_EQ(in_another_process([&] { return take() ? 0 : 1; }), 0);
  EXPECT_EQ(complete_next(), 1u);
}

// The queue pair that it was taken for has nobody to end that yet.
TEST_F(Races, a_shared_queue_goes_on_for_others_when_a_killed_initiator_had_claimed_a_request) {
  QpSlot& other = fabric_->queue_pairs[1];
  other.srq = 1;
  other.recv_depth = kDepth;
  other.recv_stride = 64;
  other.max_recv_sge = 1;
  other.recv_ring = allocate_pages(*fabric_, 1, kDepth * 64);
  post_shared(0);
  post_shared(1);
  ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("claimed"));
  const Hold of_other{other.responder, 0};
  ASSERT_EQ(in_another_process([&] { return take_shared_receive(*fabric_, other, of_other) ? 0 : 1; }), 0);
  EXPECT_EQ(other.recv_posted.load(), 1u);
  EXPECT_EQ(recv_entry_of(*fabric_, other, 0).wr_id, 1u);
  finish_taking(*fabric_, queue_pair());
  EXPECT_EQ(complete_next(), 0u);
}

// Fewer requests are left than the queue is armed for: the owner is told, whoever is killed.
TEST_F(Races,
       the_limit_event_of_a_shared_queue_outlives_the_initiator_that_is_killed_right_after_it_found_it) {
  Context context;
  context.async_eventfd = ::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
  Srq srq;
  srq.owner = &context;
  srq.shared = &shared_queue();
  post_shared(0);
  shared_queue().limit.store(1);
  ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("limit_taken"));
  deliver_limit_event(srq);
  EXPECT_EQ(context.async_events.size(), 1u);
  deliver_limit_event(srq);
  EXPECT_EQ(context.async_events.size(), 1u);
  ::close(context.async_eventfd);
}

TEST_F(Races, whoever_ends_what_a_killed_initiator_began_looks_at_the_limit_for_it) {
  Context context;
  context.async_eventfd = ::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
  Srq srq;
  srq.owner = &context;
  srq.shared = &shared_queue();
  post_shared(0);
  shared_queue().limit.store(1);
  ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("claimed"));
  finish_taking(*fabric_, queue_pair());
  deliver_limit_event(srq);
  EXPECT_EQ(context.async_events.size(), 1u);
  ::close(context.async_eventfd);
}

TEST_F(Races, a_request_that_a_killed_initiator_had_only_meant_to_take_is_there_for_the_next) {
  post_shared(0);
  ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("request_named"));
  EXPECT_NE(queue_pair().srq_intent.load() & kTaking, 0u);
  finish_taking(*fabric_, queue_pair());
  EXPECT_EQ(queue_pair().recv_posted.load(), 0u);
  ASSERT_TRUE(take());
  EXPECT_EQ(complete_next(), 0u);
}

TEST_F(Races, an_owner_leaves_a_request_to_others_that_a_killed_initiator_had_only_meant_to_take) {
  post_shared(0);
  ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("request_named"));
  close_taking(*fabric_, queue_pair());
  EXPECT_EQ(queue_pair().recv_posted.load(), 0u);
  EXPECT_EQ(entry_of(*fabric_, shared_queue(), 0).claim.load(), 0u);
  hold_anew();
  ASSERT_TRUE(take());
  EXPECT_EQ(complete_next(), 0u);
}

// While nobody has ended that, others use up the whole ring once, and the place of that request is next.
TEST_F(Races, a_request_that_a_killed_initiator_had_claimed_survives_that_its_place_is_used_again) {
  for (const char* point : {"claimed", "request_named"}) {
    queue_pair().recv_posted.store(0);
    queue_pair().recv_completed.store(0);
    queue_pair().srq_intent.store(0);
    shared_queue().taken.store(0);
    post_shared(0);
    ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at(point));
    shared_queue().taken.store(kDepth);
    finish_taking_of(*fabric_, shared_queue(), entry_of(*fabric_, shared_queue(), kDepth));
    post_shared(kDepth);
    finish_taking(*fabric_, queue_pair());
    EXPECT_EQ(queue_pair().recv_posted.load(), point == std::string("claimed") ? 1u : 0u);
    EXPECT_EQ(queue_pair().srq_intent.load() & kTaking, 0u);
  }
}

// The holder lives, and has gone on and completed the request, between two looks of the owner.
TEST_F(Races, an_owner_that_comes_too_late_does_not_move_a_request_twice) {
  post_shared(0);
  test::at_next("claimed", [&] {
    test::at_next("claim_seen", [&] {  // what the holder does next
      queue_pair().recv_posted.store(1);
      queue_pair().srq_intent.store(0);
      queue_pair().recv_completed.store(1);
    });
    finish_taking_of(*fabric_, shared_queue(), entry_of(*fabric_, shared_queue(), 0));
  });
  ASSERT_TRUE(take());
  EXPECT_EQ(queue_pair().recv_posted.load(), 1u);
  EXPECT_EQ(queue_pair().recv_completed.load(), 1u);
}

// The owner takes it in its place, so that it cannot be taken later for a queue pair in another life.
TEST_F(Races, a_request_that_a_revoked_initiator_is_about_to_take_is_taken_by_the_owner) {
  post_shared(0);
  hold_anew();
  test::at_next("request_named", [&] {
    revoke_and_close();
    EXPECT_EQ(queue_pair().recv_posted.load(), 1u);
    EXPECT_NE(entry_of(*fabric_, shared_queue(), 0).claim.load() & kTakerMask, 0u);
  });
  EXPECT_FALSE(take());
  EXPECT_EQ(queue_pair().recv_posted.load(), 1u);
  EXPECT_EQ(queue_pair().srq_intent.load() & kTaking, 0u);
}

// It had read the request, and says and takes nothing any more, wherever it was stopped before.
TEST_F(Races, a_request_that_a_revoked_initiator_has_read_stays_for_others) {
  for (const bool read : {false, true}) {
    post_shared(shared_queue().posted.load());
    const std::uint64_t index = shared_queue().taken.load();
    hold_anew();
    const Hold lost = hold();
    if (read)
      test::at_next("request_copied", [&] { revoke_and_close(); });
    else
      revoke_and_close();
    recv_entry_of(*fabric_, queue_pair(), queue_pair().recv_completed.load()).wr_id = 99;
    EXPECT_FALSE(take_shared_receive(*fabric_, queue_pair(), lost)) << read;
    EXPECT_EQ(shared_queue().taken.load(), index);
    EXPECT_EQ(entry_of(*fabric_, shared_queue(), index).claim.load(), index << kTakerBits);
    EXPECT_EQ(queue_pair().recv_posted.load(), queue_pair().recv_completed.load());
    if (!read) {
      EXPECT_EQ(recv_entry_of(*fabric_, queue_pair(), queue_pair().recv_completed.load()).wr_id, 99u)
          << "it has written into the ring of another life";
    }
    hold_anew();
    ASSERT_TRUE(take());
    EXPECT_EQ(complete_next(), index);
    queue_pair().revoked.words[0].store(0);
  }
}

// Another queue pair takes the first request before it. By then it has said something under its hold already.
TEST_F(Races, a_revoked_initiator_takes_no_second_request_either) {
  post_shared(0);
  post_shared(1);
  hold_anew();
  test::at_next("request_named", [&] {
    entry_of(*fabric_, shared_queue(), 0).claim.store(2);
    test::at_next("request_copied", [&] { revoke_and_close(); });
  });
  EXPECT_FALSE(take());
  EXPECT_EQ(queue_pair().recv_posted.load(), 0u);
  EXPECT_EQ(entry_of(*fabric_, shared_queue(), 1).claim.load(), 1ull << kTakerBits);
  EXPECT_EQ(queue_pair().srq_intent.load() & kTaking, 0u);
}

TEST_F(Races, a_revoked_initiator_that_had_claimed_takes_back_nothing_that_the_next_one_took) {
  post_shared(0);
  post_shared(1);
  hold_anew();
  test::at_next("claimed", [&] {
    revoke_and_close();
    queue_pair().recv_completed.store(queue_pair().recv_posted.load());  // flushed
    hold_anew();
    ASSERT_TRUE(take());
    ASSERT_EQ(queue_pair().recv_posted.load(), 2u);
  });
  take();
  EXPECT_EQ(complete_next(), 1u);
}

// The word was closed to others before it.
TEST_F(Races, a_shared_queue_that_is_closed_again_is_closed_to_the_holder_in_between) {
  post_shared(0);
  hold_anew();
  revoke_and_close();
  hold_anew();
  test::at_next("request_copied", [&] { revoke_and_close(); });
  EXPECT_FALSE(take());
  EXPECT_EQ(queue_pair().recv_posted.load(), 0u);
  EXPECT_EQ(entry_of(*fabric_, shared_queue(), 0).claim.load(), 0u);
  EXPECT_EQ(queue_pair().srq_intent.load() & kTaking, 0u);
}

// The next life's holder is killed in the middle of taking. Whoever was revoked before must not wipe out what
// it had said: the next one after that would not find it.
class AfterTheNextHolder : public Races, public ::testing::WithParamInterface<const char*> {
 protected:
  void the_next_holder_is_killed() {
    revoke_and_close();
    queue_pair().recv_completed.store(queue_pair().recv_posted.load());  // flushed
    hold_anew();
    ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("claimed"));
  }
  void the_request_is_found(std::uint64_t index) {
    hold_anew();
    finish_taking(*fabric_, queue_pair());
    EXPECT_EQ(complete_next(), index);
  }
};

TEST_P(AfterTheNextHolder, a_revoked_initiator_that_takes_hides_nothing) {
  post_shared(0);
  post_shared(1);
  hold_anew();
  test::at_next(GetParam(), [&] { the_next_holder_is_killed(); });
  take();
  if (GetParam() == std::string("request_copied")) {
    the_request_is_found(0);
  } else {  // the owner had moved the first one
    the_request_is_found(1);
  }
}
INSTANTIATE_TEST_SUITE_P(Stopped, AfterTheNextHolder,
                         ::testing::Values("request_copied", "request_named", "claimed"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(AfterTheNextHolder, a_revoked_initiator_that_ends_what_a_killed_one_began_hides_nothing) {
  post_shared(0);
  post_shared(1);
  hold_anew();
  ASSERT_NO_FATAL_FAILURE(a_holder_is_killed_at("claimed"));
  hold_anew();
  test::at_next("claim_seen", [&] { the_next_holder_is_killed(); });
  finish_taking(*fabric_, queue_pair());
  the_request_is_found(1);
}

// Here no engine looks as well.
TEST_F(Races, a_step_of_the_owner_waits_20_ms_for_a_stopped_holder) {
  is_revoked_in_time([&] { wait_until_unused(*fabric_, queue_pair(), 0); });
}

TEST_F(Races, a_poll_flushes_20_ms_after_a_holder_was_stopped) {
  Qp qp;
  qp.shared = &queue_pair();
  is_revoked_in_time([&] {
    while (!is_at_rest(*fabric_, qp)) nap();
  });
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
void is_reset_while_it_breaks(ibv_qp_state next) {
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
      target.state.store(next);
    });
    a.post({.id = 1, .bytes = 8, .rkey = 0x7fffffff});
    VHCA_REQUIRE_EQ(a.wait().status, IBV_WC_REM_ACCESS_ERR);
    VHCA_REQUIRE(was_there);
    VHCA_REQUIRE_EQ(target.state.load(), std::uint32_t(next));
    VHCA_REQUIRE_EQ(QpState::life_of(target.state.word()), life + 1);
    VHCA_REQUIRE(!target.events.any());
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(RacesOfStates, a_reset_is_not_undone_by_an_initiator_that_breaks_the_queue_pair_at_the_same_time) {
  is_reset_while_it_breaks(IBV_QPS_RESET);
}
TEST(RacesOfStates, an_initiator_that_breaks_a_queue_pair_does_not_break_its_next_life) {
  is_reset_while_it_breaks(IBV_QPS_RTR);
}

bool has_event_within(const test::Endpoint& endpoint, int ms) {
  pollfd fd{endpoint.context()->async_fd, POLLIN, 0};
  return ::poll(&fd, 1, ms) == 1;
}

// An initiator is stopped when it has broken the queue pair, and has not raised the event of that; its owner
// goes on without it. The next life is not told of it.
TEST(RacesOfStates, an_initiator_that_broke_a_queue_pair_raises_no_event_in_its_next_life) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    const test::FabricView view(fabric);
    test::Endpoint a({.nic = 0, .timeout = 8, .retry = 1}), b({.nic = 1});
    test::connect(a, b);
    QpSlot& target = view.queue_pair(b.qp()->qp_num);
    bool was_there = false;
    test::at_next("broken", [&] {
      was_there = true;
      revoke_hold(*view, target, target.responder.load());
      b.to_init_again();
      b.connect(b.peer());
    });
    a.post({.id = 1, .bytes = 8, .rkey = 0x7fffffff});
    VHCA_REQUIRE_EQ(a.wait().status, IBV_WC_REM_ACCESS_ERR);
    VHCA_REQUIRE(was_there);
    VHCA_REQUIRE(!has_event_within(b, 200));
    VHCA_REQUIRE_EQ(b.state(), IBV_QPS_RTS);
  });
  EXPECT_EQ(process.wait(), 0);
}

// The same of the event that the first message raises; the next life has its own.
TEST(RacesOfStates, a_stopped_initiators_first_message_does_not_establish_the_next_life) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    const test::FabricView view(fabric);
    test::Endpoint a({.nic = 0, .timeout = 8, .retry = 1}), b({.nic = 1});
    a.connect(b.address());
    b.to_rtr(a.address());
    QpSlot& target = view.queue_pair(b.qp()->qp_num);
    bool was_there = false;
    test::at_next("establishing", [&] {
      was_there = true;
      revoke_hold(*view, target, target.responder.load());
      b.to_init_again();
      b.to_rtr(b.peer());
    });
    a.post({.id = 1, .bytes = 8});
    VHCA_REQUIRE_EQ(a.wait().status, IBV_WC_RETRY_EXC_ERR);
    VHCA_REQUIRE(was_there);
    VHCA_REQUIRE(!has_event_within(b, 200));
    a.to_init_again();
    a.connect(b.address());
    a.post({.id = 2, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 2);
    ibv_async_event event = test::wait_async(b);
    VHCA_REQUIRE_EQ(event.event_type, IBV_EVENT_COMM_EST);
    ibv_ack_async_event(&event);
    VHCA_REQUIRE(!has_event_within(b, 0));
  });
  EXPECT_EQ(process.wait(), 0);
}

// It has found that fewer requests are left than the queue is armed for; then the program posts more and arms
// the queue anew.
TEST(RacesOfStates, an_initiator_that_comes_late_does_not_fire_a_limit_that_was_armed_anew) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    test::Endpoint a({.nic = 0}), b({.nic = 1, .srq_wr = 16});
    test::connect(a, b);
    const auto arm = [&b] {
      ibv_srq_attr attr{0, 0, 2};
      VHCA_REQUIRE_EQ(ibv_modify_srq(b.srq(), &attr, IBV_SRQ_LIMIT), 0);
    };
    for (std::uint64_t i = 0; i < 2; ++i) b.post_recv(i, 0, 64);
    arm();
    bool was_there = false;
    test::at_next("limit_seen", [&] {
      was_there = true;
      for (std::uint64_t i = 2; i < 8; ++i) b.post_recv(i, 0, 64);
      arm();
    });
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 1);
    VHCA_REQUIRE(was_there);
    VHCA_REQUIRE(!has_event_within(b, 200));
    ibv_srq_attr attr{};
    VHCA_REQUIRE_EQ(ibv_query_srq(b.srq(), &attr), 0);
    VHCA_REQUIRE_EQ(attr.srq_limit, 2u);
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
    VHCA_REQUIRE(!target.revoked.any());         // it has found out
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

// Data may be there already, but the owner has gone on: the initiator is not told of a success.
void is_revoked_after_its_copy(const char* point, std::size_t writes, std::size_t bytes) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    const test::FabricView view(fabric);
    test::Endpoint a({.nic = 0, .timeout = 8, .retry = 1}), b({.nic = 1});
    test::connect(a, b);
    QpSlot& target = view.queue_pair(b.qp()->qp_num);
    bool was_there = false;
    test::at_next(point, [&] {
      was_there = true;
      revoke_hold(*view, target, target.responder.load());
      b.to_init_again();
      b.to_rtr(b.peer());
    });
    std::vector<ibv_sge> pieces(writes);
    std::vector<ibv_send_wr> list(writes);
    for (std::size_t i = 0; i < writes; ++i) {
      pieces[i] = {reinterpret_cast<std::uintptr_t>(a.memory()), static_cast<std::uint32_t>(bytes),
                   a.mr()->lkey};
      list[i].next = i + 1 < writes ? &list[i + 1] : nullptr;
      list[i].sg_list = &pieces[i];
      list[i].num_sge = 1;
      list[i].opcode = IBV_WR_RDMA_WRITE;
      list[i].send_flags = IBV_SEND_SIGNALED;
      list[i].wr.rdma = {a.peer().memory, a.peer().rkey};
    }
    ibv_send_wr* bad = nullptr;
    VHCA_REQUIRE_EQ(ibv_post_send(a.qp(), list.data(), &bad), 0);
    VHCA_REQUIRE_EQ(a.wait().status, IBV_WC_RETRY_EXC_ERR);
    VHCA_REQUIRE(was_there);
    for (std::size_t i = 1; i < writes; ++i) VHCA_REQUIRE_EQ(a.wait().status, IBV_WC_WR_FLUSH_ERR);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(RacesOfLives, an_initiator_that_is_revoked_after_its_write_has_not_written) {
  is_revoked_after_its_copy("copied", 1, 64);
}
TEST(RacesOfLives, an_initiator_that_is_revoked_after_writes_in_one_copy_has_written_none) {
  is_revoked_after_its_copy("copied_together", 3, 64 * 1024);
}

// It had read the request of the SRQ, and had not said yet that it means to take it: it is the next life's.
TEST(RacesOfLives, an_initiator_that_is_revoked_before_it_takes_a_shared_request_leaves_it_to_the_next_life) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    const test::FabricView view(fabric);
    test::Endpoint a({.nic = 0, .timeout = 8, .retry = 1, .rnr_retry = 0}), b({.nic = 1, .srq_wr = 4});
    test::connect(a, b);
    QpSlot& target = view.queue_pair(b.qp()->qp_num);
    b.post_recv(1, 0, 64);
    bool was_there = false;
    test::at_next("request_copied", [&] {
      was_there = true;
      revoke_hold(*view, target, target.responder.load());
      b.to_init_again();
      b.to_rtr(b.peer());
    });
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 64});
    VHCA_REQUIRE_EQ(a.wait().status, IBV_WC_RETRY_EXC_ERR);
    VHCA_REQUIRE(was_there);
    VHCA_REQUIRE_EQ(target.recv_posted.load(), target.recv_completed.load());
    VHCA_REQUIRE(b.nothing_to_poll());
    b.post_recv(2, 64, 64);
    a.to_init_again();
    a.connect(b.address());
    for (std::uint64_t i = 1; i <= 2; ++i) {
      std::memset(a.memory(), static_cast<int>('x' + i), 64);
      a.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 64});
      a.expect(IBV_WC_SUCCESS, i);
      const ibv_wc wc = b.expect(IBV_WC_SUCCESS, i);
      VHCA_REQUIRE_EQ(wc.byte_len, 64u);
      VHCA_REQUIRE_EQ(b.memory()[64 * (i - 1)], static_cast<char>('x' + i));
    }
  });
  EXPECT_EQ(process.wait(), 0);
}

// And nobody looks at its queue pair while others use up the whole ring.
TEST(RacesOfLives,
     a_request_that_a_killed_initiator_had_claimed_is_flushed_although_its_place_was_used_again) {
  constexpr std::uint64_t kRequests = 4;
  const FabricHost fabric = test::make_fabric(3, 1);
  test::Process server(fabric, "node0", [&](const test::Wire& wire) {
    test::Endpoint first({.srq_wr = kRequests}), second({.share = &first});
    for (std::uint64_t i = 0; i < kRequests; ++i) first.post_recv(i, 0, 64);
    first.connect_over(wire);
    wire.receive<char>();
    second.connect_over(wire);
    for (std::uint64_t i = 1; i < 3 * kRequests; ++i) {
      const ibv_wc wc = second.expect(IBV_WC_SUCCESS, i);
      VHCA_REQUIRE_EQ(wc.qp_num, second.qp()->qp_num);
      first.post_recv(kRequests - 1 + i, 0, 64);
    }
    first.to_error();
    VHCA_REQUIRE_EQ(first.expect(IBV_WC_WR_FLUSH_ERR, 0).qp_num, first.qp()->qp_num);
  });
  test::Process killed(fabric, "node1", [](const test::Wire& wire) {
    test::Endpoint a;
    a.connect_over(wire);
    test::at_next("claimed", [] { ::_exit(42); });
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 64});
    a.wait();
  });
  test::introduce(server, killed);
  ASSERT_EQ(killed.wait(), 42);
  server.wire().send('k');
  test::Process sender(fabric, "node2", [](const test::Wire& wire) {
    test::Endpoint a;
    a.connect_over(wire);
    for (std::uint64_t i = 1; i < 3 * kRequests; ++i) {
      a.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 64});
      a.expect(IBV_WC_SUCCESS, i);
    }
  });
  test::introduce(server, sender);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(server.wait(), 0);
}

// The initiator posts, and is stopped at that point. When it goes on, its target is not to be had any more.
void is_stopped_at(const char* point, test::Endpoint& initiator, const test::Endpoint::Work& work) {
  bool was_there = false;
  test::at_next(point, [&] {
    was_there = true;
    ::raise(SIGSTOP);
  });
  initiator.post(work);
  VHCA_REQUIRE_EQ(initiator.wait().status, IBV_WC_RETRY_EXC_ERR);
  VHCA_REQUIRE(was_there);
}

// Tells the target when the initiator is stopped; lets that go on when the target has done what it does then;
// and tells the target when it has ended.
void goes_on_too_late(test::Process& initiator, test::Process& target) {
  int status = 0;
  ASSERT_EQ(::waitpid(initiator.pid(), &status, WUNTRACED), initiator.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  target.wire().send('s');
  char word = 0;
  EXPECT_EQ(::recv(target.wire().fd(), &word, 1, MSG_WAITALL), 1) << "the target has failed";
  initiator.signal(SIGCONT);
  EXPECT_EQ(initiator.wait(), 0);
  target.wire().send('c');
  EXPECT_EQ(target.wait(), 0);
}

// Stopped, it may claim still, by a word of the ring: that memory must not be another's by then.
TEST(RacesOfLives, a_shared_queue_keeps_its_ring_while_a_revoked_initiator_may_still_claim_from_it) {
  const FabricHost fabric = test::make_fabric(2, 1);
  test::Process server(fabric, "node0", [&](const test::Wire& wire) {
    auto b = std::make_optional<test::Endpoint>(test::Options{.srq_wr = 4});
    b->connect_over(wire);
    b->post_recv(1, 0, 64);
    wire.receive<char>();
    b.reset();
    VHCA_REQUIRE_EQ(fabric.usage().shared_receive_queues, 1u);
    {
      const test::Endpoint c({.srq_wr = 4});
      VHCA_REQUIRE_EQ(fabric.usage().shared_receive_queues, 2u);
    }
    VHCA_REQUIRE_EQ(fabric.usage().shared_receive_queues, 1u);
    wire.send('d');
    wire.receive<char>();
  });
  test::Process client(fabric, "node1", [](const test::Wire& wire) {
    test::Endpoint a({.timeout = 8, .retry = 1});
    a.connect_over(wire);
    is_stopped_at("request_named", a, {.opcode = IBV_WR_SEND, .id = 1, .bytes = 64});
  });
  test::introduce(server, client);
  goes_on_too_late(client, server);
  EXPECT_EQ(fabric.usage().shared_receive_queues, 0u);
  EXPECT_EQ(fabric.usage().arena_bytes, 0u);
}

// Stopped after it has completed a receive, it has still to tell the completion queue: that must not be
// another's by then.
TEST(RacesOfLives, a_completion_queue_stays_while_a_revoked_initiator_may_still_tell_it_of_a_receive) {
  const FabricHost fabric = test::make_fabric(2, 1);
  test::Process server(fabric, "node0", [&](const test::Wire& wire) {
    auto b = std::make_optional<test::Endpoint>();
    b->connect_over(wire);
    b->post_recv(1, 0, 64);
    wire.receive<char>();
    b.reset();
    VHCA_REQUIRE_EQ(fabric.usage().completion_queues, 2u);  // the client has one, too
    wire.send('d');
    wire.receive<char>();
  });
  test::Process client(fabric, "node1", [](const test::Wire& wire) {
    test::Endpoint a({.timeout = 8, .retry = 1});
    a.connect_over(wire);
    is_stopped_at("receive_completed", a, {.opcode = IBV_WR_SEND, .id = 1, .bytes = 64});
  });
  test::introduce(server, client);
  goes_on_too_late(client, server);
  EXPECT_EQ(fabric.usage().completion_queues, 0u);
}

// A holder that was revoked completes what it had found, while the owner is about to flush it: one of the two
// happens.
TEST(RacesOfLives, a_receive_that_is_completed_just_before_its_flush_is_not_flushed) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    const test::FabricView view(fabric);
    test::Endpoint a({.nic = 0}), b({.nic = 1});
    test::connect(a, b);
    QpSlot& target = view.queue_pair(b.qp()->qp_num);
    b.post_recv(1, 0, 64);
    b.post_recv(2, 0, 64);
    b.to_error();
    bool was_there = false;
    test::at_next("flushing", [&] {
      was_there = true;
      const std::uint64_t index = target.recv_completed.load();
      recv_entry_of(*view, target, index).status = IBV_WC_SUCCESS;
      target.recv_completed.store(index + 1);
      announce_receive(*view, target, false, 1);
    });
    b.expect(IBV_WC_SUCCESS, 1);
    VHCA_REQUIRE(was_there);
    b.expect(IBV_WC_WR_FLUSH_ERR, 2);
    VHCA_REQUIRE(b.nothing_to_poll());
  });
  EXPECT_EQ(process.wait(), 0);
}

// A poll has taken the marks of a queue, and puts them back for what stays there. Whoever polls meanwhile
// does not take the queue for empty.
TEST(RacesOfPolls, a_completion_that_stays_is_not_missed_by_another_thread) {
  const FabricHost fabric = test::make_fabric(1, 2);
  test::Process process(fabric, "node0", [&](const test::Wire&) {
    test::Endpoint a({.nic = 0}), b({.nic = 1});
    test::connect(a, b);
    for (std::uint64_t i = 1; i <= 3; ++i) {
      b.post_recv(i);
      a.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = i, .bytes = 8});
      a.expect(IBV_WC_SUCCESS, i);
    }
    int found = -1;
    std::thread other;
    test::at_next("marks_taken", [&] {
      other = std::thread([&] {
        ibv_wc wc;
        found = ibv_poll_cq(b.cq(), 1, &wc);
      });
      ::usleep(100'000);
    });
    b.expect(IBV_WC_SUCCESS, 1);
    VHCA_REQUIRE(other.joinable());
    other.join();
    VHCA_REQUIRE_EQ(found, 1);
    b.expect(IBV_WC_SUCCESS, 3);
  });
  EXPECT_EQ(process.wait(), 0);
}

// Its own send has broken the queue pair already; the owner's step to ERR promises the same as from RTS.
TEST(RacesOfLives, a_step_to_err_of_a_queue_pair_that_has_failed_by_itself_waits_for_the_holder_too) {
  constexpr std::size_t kBytes = 8;
  const FabricHost fabric = test::make_fabric(2, 1);
  test::Process target(fabric, "node1", [&](const test::Wire& wire) {
    test::Endpoint me;
    me.connect_over(wire);
    wire.receive<char>();  // the initiator is stopped
    me.post({.id = 1, .bytes = kBytes, .lkey = 0x7fffffff});
    me.expect(IBV_WC_LOC_PROT_ERR, 1);
    VHCA_REQUIRE_EQ(me.state(), IBV_QPS_ERR);
    me.to_error();
    wire.send('n');
    wire.receive<char>();  // the initiator has gone on, and has ended
    for (std::size_t i = 0; i < kBytes; ++i) VHCA_REQUIRE_EQ(me.memory()[i], 0);
  });
  test::Process initiator(fabric, "node0", [&](const test::Wire& wire) {
    test::Endpoint me({.timeout = 8, .retry = 1});
    std::memset(me.memory(), 'x', kBytes);
    me.connect_over(wire);
    is_stopped_at("peer_found", me, {.id = 1, .bytes = kBytes});
  });
  test::introduce(target, initiator);
  goes_on_too_late(initiator, target);
}

struct StoppedBeforeItsCopy {
  const char* name;
  const char* way;  // VHCA_MOVE
  ibv_wr_opcode opcode;
  bool gpu = false;  // into GPU memory
};
void PrintTo(const StoppedBeforeItsCopy& how, std::ostream* out) { *out << how.name; }

// The initiator is stopped when it has found its peer, which takes a system call, and before it looks at its
// hold for the last time. The owner flushes its receives after the 20 ms for a stopped holder, resets the
// queue pair, and has the memory to itself: when the initiator goes on, it places nothing there.
class StoppedBeforeTheCopy : public ::testing::TestWithParam<StoppedBeforeItsCopy> {};

TEST_P(StoppedBeforeTheCopy, places_nothing_in_the_next_life) {
  const auto how = GetParam();
  constexpr std::size_t kBytes = 8;
  const FabricHost fabric = test::make_fabric(2, 1);
  test::Process target(fabric, "node1", [&](const test::Wire& wire) {
    std::optional<test::StandInGpu> gpu;
    if (how.gpu) gpu.emplace();
    test::Endpoint me;
    std::optional<test::GpuBuffer> buffer;
    if (gpu) buffer.emplace(*gpu, me);
    auto* const memory = gpu ? reinterpret_cast<char*>(buffer->view) : me.memory();
    std::memset(memory, 0, kBytes);
    me.post_recv(1, 0, kBytes);
    me.connect_over(wire);
    wire.send(gpu ? test::Remote{buffer->at, buffer->mr->rkey}
                  : test::Remote{reinterpret_cast<std::uintptr_t>(me.memory()), me.mr()->rkey});
    wire.receive<char>();  // the initiator is stopped
    me.to_error();
    me.expect(IBV_WC_WR_FLUSH_ERR, 1);
    me.to_init_again();
    me.to_rtr(me.peer());
    wire.send('n');
    wire.receive<char>();  // the initiator has gone on, and has ended
    for (std::size_t i = 0; i < kBytes; ++i) VHCA_REQUIRE_EQ(memory[i], 0);
    VHCA_REQUIRE(me.nothing_to_poll());
  });
  test::Process initiator(fabric, "node0", [&](const test::Wire& wire) {
    ::setenv("VHCA_MOVE", how.way, 1);
    std::optional<test::StandInGpu> gpu;
    if (how.gpu) gpu.emplace();
    test::Endpoint me({.timeout = 8, .retry = 1});
    std::memset(me.memory(), 'x', kBytes);
    me.connect_over(wire);
    const auto remote = wire.receive<test::Remote>();
    is_stopped_at("peer_found", me,
                  {.opcode = how.opcode,
                   .id = 1,
                   .bytes = kBytes,
                   .remote_offset = remote.at - me.peer().memory,
                   .rkey = remote.rkey,
                   .compare_add = 1});
  });
  test::introduce(target, initiator);
  initiator.wire().send(target.wire().receive<test::Remote>());
  goes_on_too_late(initiator, target);
}

INSTANTIATE_TEST_SUITE_P(
    RacesOfLives, StoppedBeforeTheCopy,
    ::testing::Values(StoppedBeforeItsCopy{"send", "attach", IBV_WR_SEND},
                      StoppedBeforeItsCopy{"write", "attach", IBV_WR_RDMA_WRITE},
                      StoppedBeforeItsCopy{"atomic", "attach", IBV_WR_ATOMIC_FETCH_AND_ADD},
                      StoppedBeforeItsCopy{"write_by_proc", "proc", IBV_WR_RDMA_WRITE},
                      StoppedBeforeItsCopy{"write_by_the_targets_engine", "staging", IBV_WR_RDMA_WRITE},
                      StoppedBeforeItsCopy{"write_to_a_gpu", "attach", IBV_WR_RDMA_WRITE, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace vhca
