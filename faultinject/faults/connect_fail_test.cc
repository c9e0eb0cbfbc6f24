// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class ConnectFailTest : public Nodes {
 protected:
  std::string try_to_connect(int qp) {
    return a->ask("connect " + std::to_string(qp) + " " + std::to_string(b->numbers.at(0)) + " " + b->gid +
                  " " + b->address + " " + b->key);
  }
};

TEST_F(ConnectFailTest, rtr_is_refused_so_often_and_the_queue_pair_stays_where_it_was) {
  start();
  a->make_qp();
  const uint32_t id = arm("{target: node0/nic0, kind: connect_fail, state: rtr, count: 2, at: now}");
  ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kFired; }));
  const std::string refused = "error rtr " + std::to_string(ETIMEDOUT);
  std::string answer;
  for (int refusals = 0; refusals < 2;) {
    answer = try_to_connect(1);
    if (answer == "ok") {  // it had not reached that process yet
      a->must("reset 1");
      continue;
    }
    EXPECT_EQ(answer, refused);
    EXPECT_EQ(a->qp_state(1), 1) << "INIT";
    a->must("reset 1");
    refusals++;
  }
  EXPECT_EQ(try_to_connect(1), "ok");
  EXPECT_EQ(count(id, Effect::kModifyRefused), 2u);
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess) << "what is connected is not touched";
}

TEST_F(ConnectFailTest, rts_alone_and_only_towards_that_peer) {
  const uint32_t other =
      arm("{target: node0/nic0, kind: connect_fail, peer: node1/nic1, count: all, at: now}");
  const uint32_t id =
      arm("{target: node0/nic0, kind: connect_fail, state: rts, errno: EINVAL, peer: node1/nic0, at: now}");
  a = &agent("node0", "0");
  b = &agent("node1", "1");
  ASSERT_NO_FATAL_FAILURE(a->open());
  ASSERT_NO_FATAL_FAILURE(b->open());
  a->make_qp(), b->make_qp();
  EXPECT_EQ(try_to_connect(0), "error rts " + std::to_string(EINVAL));
  EXPECT_EQ(board.state(other).t0_ns, 0u);
  EXPECT_EQ(value(id, Effect::kModifyRefused), uint64_t(EINVAL));
}

}  // namespace
}  // namespace faultinject::testing
