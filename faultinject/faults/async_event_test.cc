// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <chrono>
#include <thread>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class AsyncEventTest : public Nodes {};

TEST_F(AsyncEventTest, a_port_event_comes_and_nothing_else_happens) {
  start();
  for (const auto& [name, type] : {std::pair{"PORT_ERR", kEventPortErr},
                                   {"SM_CHANGE", kEventSmChange},
                                   {"DEVICE_FATAL", kEventDeviceFatal},
                                   {"GID_CHANGE", kEventGidChange}}) {
    const uint32_t id =
        arm("{target: node0/nic0, kind: async_event, event: " + std::string(name) + ", at: now}");
    EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(type));
    EXPECT_EQ(count(id, Effect::kEventDelivered), 1u) << name;
  }
  EXPECT_EQ(a->port_state(), kPortActive) << "the event lies";
  EXPECT_EQ(b->ask("event 0"), "none");
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
}

TEST_F(AsyncEventTest, a_queue_pair_event_goes_to_the_selected_queue_pair) {
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  arm("{target: node0/nic0/qp:1, kind: async_event, event: QP_FATAL, at: now}");
  EXPECT_EQ(a->ask("event 5000"),
            "event " + std::to_string(kEventQpFatal) + " " + std::to_string(a->numbers[1]));
  EXPECT_EQ(a->qp_state(1), kRts);
  arm("{target: node0/nic0, kind: async_event, event: COMM_EST, at: now}");
  EXPECT_EQ(a->ask("create_cq"), "ok") << "its process knows of the fault from here on";
  EXPECT_EQ(a->ask("event 50"), "none") << "none has posted yet";
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventCommEst));
  arm("{target: node0/nic0, kind: async_event, event: CQ_ERR, at: now}");
  EXPECT_EQ(a->ask("create_cq"), "ok");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventCqErr));
  a->must("close");
}

TEST_F(AsyncEventTest, a_queue_pair_without_a_shared_receive_queue_uses_up_no_round_of_its_events) {
  const uint32_t id =
      arm("{target: node0/nic0, kind: async_event, event: SRQ_LIMIT_REACHED, at: {wr: 2}, repeat: 2}");
  start();
  a->make_qp(14, 1, 16, "shared", "srq"), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  for (int i = 1; i <= 4; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    a->poll(0, 1, 5000);
  }
  EXPECT_EQ(count(id, Effect::kEventDelivered), 0u);
  for (int i = 1; i <= 2; i++) {
    a->must("post 1 write " + std::to_string(i) + " 8 0");
    a->poll(1, 1, 5000);
  }
  EXPECT_EQ(count(id, Effect::kEventDelivered), 2u);
  EXPECT_EQ(board.state(id).rounds, 2u);
}

// As long as it is less than a second late: on a busy machine many are some 20 ms.
TEST_F(AsyncEventTest, a_process_that_is_late_misses_no_event_of_its_port) {
  start();
  Agent& late = agent("node0", "2");
  ASSERT_NO_FATAL_FAILURE(late.open(0));
  const uint32_t id = arm("{target: node0/nic0, kind: async_event, event: SM_CHANGE, on: go, repeat: 3}");
  const std::string told = "event " + std::to_string(kEventSmChange);
  for (int i = 0; i < 3; i++) {
    kill(late.pid(), SIGSTOP);
    a->must("raise go 0");
    EXPECT_EQ(a->ask("event 10000"), told) << i;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(late.pid(), SIGCONT);
    EXPECT_EQ(late.ask("event 500"), told) << i;
    ASSERT_TRUE(eventually([&] { return board.state(id).phase != FaultState::Phase::kFired || i == 2; }))
        << i;
  }
  EXPECT_EQ(count(id, Effect::kEventDelivered), 6u);
  EXPECT_EQ(board.state(id).rounds, 3u);
}

TEST_F(AsyncEventTest, it_comes_as_often_as_the_plan_says) {
  start();
  const uint32_t id =
      arm("{target: node0/nic0, kind: async_event, event: SM_CHANGE, at: now, repeat: 3, every: 60 ms}");
  for (int i = 0; i < 3; i++)
    EXPECT_EQ(a->ask("event 10000"), "event " + std::to_string(kEventSmChange)) << i;
  EXPECT_EQ(a->ask("event 200"), "none");
  EXPECT_EQ(board.state(id).rounds, 3u);
}

TEST_F(AsyncEventTest, an_event_of_a_shared_receive_queue_that_is_gone_does_not_come) {
  start(14, 1, 16, "shared", "srq");
  const uint32_t id =
      arm("{target: node0/nic0, kind: async_event, event: SRQ_LIMIT_REACHED, qp: all, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  a->must("destroy 0");
  a->must("destroy_srq 0");
  EXPECT_EQ(a->ask("event 50"), "none");
}

}  // namespace
}  // namespace faultinject::testing
