// SPDX-License-Identifier: Apache-2.0
// How programs are reached: bound by the linker or at run time, forked, without verbs at all; what their
// descriptors and their exit look like; and what is left when they are killed.
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class ReachTest : public Nodes {};

TEST_F(ReachTest, a_program_that_binds_verbs_with_dlvsym_is_reached) {
  program += "_dlvsym";
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, at: {wr: 2}}");
  start();
  for (int i = 1; i <= 2; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    const auto wcs = a->poll(0, 1, 5000);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, i == 1 ? kSuccess : kFlushed);
  }
  EXPECT_EQ(a->ask("event 5000").substr(0, 7), "event 1");
  EXPECT_TRUE(witnessed(id, Effect::kQpToErr, "node0"));
}

// They have no newer version than IBVERBS_1.0, unlike all others that are intercepted.
TEST_F(ReachTest, completion_channels_bound_with_dlvsym_are_reached) {
  program += "_dlvsym";
  start(14, 1, 16, "shared", "channel");
  a->tell("cq_event 0");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 10 ms, at: now}");
  EXPECT_EQ(a->hear(), "errno " + std::to_string(EIO));
  EXPECT_EQ(a->ask("channel"), "errno " + std::to_string(EIO));
  EXPECT_EQ(a->ask("destroy_channel 0"), "errno " + std::to_string(EBUSY));
  EXPECT_TRUE(witnessed(id, Effect::kChannelEnded, "node0"));
}

TEST_F(ReachTest, the_symbol_of_an_old_version_is_that_librarys_own_and_nobody_elses) {
  a = &agent("node0", "0");
  ASSERT_EQ(a->ask("old_version " + build_folder() + "/lib/tests/libfaultinject_old_verbs.so"), "ok");
  ASSERT_NO_FATAL_FAILURE(a->open());
  const uint32_t id = arm("{target: node0/nic0, kind: port_down, at: now}");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  EXPECT_EQ(a->port_state(), kPortDown);
  EXPECT_TRUE(witnessed(id, Effect::kPortErrDelivered, "node0"));
}

TEST_F(ReachTest, a_completion_queue_that_shows_only_wr_id_and_status_is_reached) {
  setenv("AGENT_EXTENDED", "1", 1);
  setenv("AGENT_ASKS_FOR_NOTHING", "1", 1);
  start(14, 1);
  unsetenv("AGENT_EXTENDED");
  unsetenv("AGENT_ASKS_FOR_NOTHING");
  const uint32_t id = arm("{target: node0/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  for (int i = 1; i <= 2; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  const auto wcs = a->poll(0, 2, 5000);
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  EXPECT_EQ(wcs[1].status, kFlushed);
  EXPECT_GE(wcs[0].at_ns, board.state(id).t0_ns + retry_window_ns(14, 1));
}

TEST_F(ReachTest, nothing_is_kept_of_a_device_that_was_closed) {
  constexpr int kTimes = 1000;
  const auto bytes_each = [&](bool injected) {
    Agent& one = agent("node0", "0", injected);
    one.must("cycle 0 8");  // what is made once
    const std::string answer = one.ask("cycle 0 " + std::to_string(kTimes));
    EXPECT_EQ(answer.substr(0, 3), "ok ") << answer;
    return std::stod(answer.substr(3)) / kTimes;
  };
  arm("{target: node0/nic0, kind: port_down, at: now}");
  arm("{target: node0/nic0, kind: throttle, rate: 1 Gbit/s, at: now}");
  EXPECT_LT(bytes_each(true), bytes_each(false) + 64);
}

TEST_F(ReachTest, a_program_without_a_board_runs_as_before) {
  a = &agent("node0", "0", false);
  b = &agent("node1", "1", false);
  ASSERT_NO_FATAL_FAILURE(a->open());
  ASSERT_NO_FATAL_FAILURE(b->open());
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 0, *b, 0));
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 5000).size(), 1u);
  EXPECT_EQ(board.processes(), 0u);
}

TEST_F(ReachTest, a_program_that_opens_no_device_never_appears_on_the_board) {
  Agent& idle = agent("node0", "0");
  EXPECT_EQ(idle.ask("now").substr(0, 2), "ok");
  EXPECT_EQ(board.processes(), 0u);
  EXPECT_EQ(idle.wait_for_exit(), 0);
}

TEST_F(ReachTest, a_forked_child_is_injected_on_its_own) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_EQ(a->ask("fork"), "ok " + std::to_string(10 + kPortDown)) << "the child's own device is down too";
  EXPECT_EQ(a->ask("fork close"), "ok " + std::to_string(10 + kPortDown)) << "at the inherited one's address";
  EXPECT_EQ(a->port_state(), kPortDown) << "and the parent is as it was";
}

TEST_F(ReachTest, a_program_that_polls_its_async_descriptor_without_blocking_sees_real_and_synthetic_events) {
  start();
  a->must("nonblock");
  EXPECT_EQ(a->ask("try_event"), "errno " + std::to_string(EAGAIN));
  const uint32_t id = arm("{target: node0/nic0, kind: port_down, at: now}");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  EXPECT_EQ(a->ask("try_event"), "errno " + std::to_string(EAGAIN));
  board.heal(id);
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventPortActive));
}

// Events that the device itself raises: `b` is asked for a write under a key that it never gave, which breaks
// the queue pair at both ends.
class RealEvents : public ReachTest {
 protected:
  static constexpr int kEventQpAccessErr = 3;

  // A queue pair that breaks with its first write; its index.
  int make_breaking() {
    const int next = int(a->numbers.size());
    a->make_qp(), b->make_qp();
    const std::string right = std::exchange(b->key, "1431655765");
    connect(*a, next, *b, next);
    b->key = right;
    return next;
  }
  void break_one() {
    const int qp = make_breaking();
    a->must("post " + std::to_string(qp) + " write 1 8 0");
    const auto wcs = a->poll(qp, 1, 5000);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, kRemoteAccess);
  }
};

TEST_F(RealEvents, reach_a_program_that_polls) {
  start();
  EXPECT_EQ(b->ask("event 0"), "none");
  ASSERT_NO_FATAL_FAILURE(break_one());
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventQpAccessErr));
  EXPECT_EQ(b->ask("event 50"), "none") << "once";
}

TEST_F(RealEvents, wake_an_epoll_set_that_has_the_descriptor) {
  start();
  b->must("watch");
  EXPECT_EQ(b->ask("watched 0"), "ok 0 0");
  ASSERT_NO_FATAL_FAILURE(break_one());
  EXPECT_EQ(b->ask("watched 5000"), "ok 1 1");
  EXPECT_EQ(b->ask("event 0"), "event " + std::to_string(kEventQpAccessErr));
  EXPECT_EQ(b->ask("watched 50"), "ok 0 0");
}

TEST_F(RealEvents, reach_a_program_that_does_not_block_beside_injected_ones) {
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, query: false}");
  start();
  b->must("nonblock");
  EXPECT_EQ(b->ask("try_event"), "errno " + std::to_string(EAGAIN));
  ASSERT_NO_FATAL_FAILURE(break_one());
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventQpAccessErr));
  EXPECT_EQ(b->ask("try_event"), "errno " + std::to_string(EAGAIN));
  ASSERT_NO_FATAL_FAILURE(break_one());
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kPortErrDelivered, "node1"); }));
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventQpAccessErr));
  EXPECT_EQ(b->ask("try_event"), "errno " + std::to_string(EAGAIN));
}

TEST_F(RealEvents, wake_a_program_that_sleeps_in_ibv_get_async_event) {
  start();
  const int qp = make_breaking();
  b->tell("try_event");
  EXPECT_TRUE(b->is_silent(100));
  a->must("post " + std::to_string(qp) + " write 1 8 0");
  EXPECT_EQ(b->hear(), "event");
}

TEST_F(RealEvents, of_a_queue_pair_that_is_gone_do_not_come) {
  start();
  ASSERT_NO_FATAL_FAILURE(break_one());
  b->must("watch");
  EXPECT_EQ(b->ask("watched 5000"), "ok 1 1");
  b->must("destroy 1");
  EXPECT_EQ(b->ask("event 50"), "none");
}

TEST_F(ReachTest, a_program_ends_in_good_order_in_the_middle_of_a_fault) {
  arm("{target: node0/nic0, kind: delay, delay: 10 s, at: now}");
  start();
  for (int i = 0; i < 4; i++) a->must("post 0 write 1 8 0");
  arm("{target: node0/nic0, kind: port_down, at: now}");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  a->must("close");
  EXPECT_EQ(a->wait_for_exit(), 0);
  EXPECT_EQ(b->wait_for_exit(), 0) << "without closing anything";
}

TEST_F(ReachTest, a_killed_process_holds_up_nobody_and_leaves_nothing) {
  start();
  const uint32_t id = arm("{target: node1/nic0, kind: blackhole}");
  kill(a->pid(), SIGSTOP);
  board.fire(id);
  EXPECT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node1"); }))
      << "a stopped peer is not waited for";
  a->kill_it();
  EXPECT_TRUE(eventually([&] { return board.processes() == 1; }));
  board.heal(id);
  EXPECT_EQ(b->wait_for_exit(), 0);
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_EQ(file.path().filename().string().find("faultinject"), std::string::npos);
}

TEST_F(ReachTest, one_t0_for_all_processes_and_a_witness_from_each) {
  start();
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return count(id, Effect::kQpToErr) == 2; }));
  const uint64_t t0 = board.state(id).t0_ns;
  for (const Witness& witness : board.witnesses(id)) EXPECT_GE(witness.time_ns, t0);
  EXPECT_TRUE(witnessed(id, Effect::kQpToErr, "node0"));
  EXPECT_TRUE(witnessed(id, Effect::kQpToErr, "node1"));
}

TEST_F(ReachTest, threads_of_the_program_and_the_injector_get_along) {
  start(18, 7, 64);
  uint32_t slow = arm("{target: 'node0/nic0', kind: throttle, rate: 400 Mbit/s, at: now}");
  a->tell("hammer 1500 0");
  for (int i = 0; i < 10; i++) {
    const uint32_t noop = arm("{target: 'node*/nic0', kind: noop, at: now}");
    const uint32_t late =
        arm("{target: node0/nic0, kind: delay, delay: 1 ms, jitter: 1 ms, at: now, for: 20 ms}");
    eventually([&] { return board.state(late).phase == FaultState::Phase::kHealed; }, 500);
    board.heal(noop);
    if (i == 5) board.heal(slow);
  }
  std::istringstream answer(a->hear());
  std::string ok;
  uint64_t posted = 0, completed = 0, failed = 0;
  answer >> ok >> posted >> completed >> failed;
  EXPECT_EQ(ok, "ok");
  EXPECT_GT(posted, 0u);
  EXPECT_EQ(posted, completed);
  EXPECT_EQ(failed, 0u);
}

}  // namespace
}  // namespace faultinject::testing
