// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class GidChangeTest : public Nodes {};

TEST_F(GidChangeTest, the_row_is_empty_the_node_is_told_and_heal_brings_it_back) {
  start();
  const std::string before = a->ask("gid 1"), other = a->ask("gid 0");
  const uint32_t id = arm("{target: node0/nic0, kind: gid_change, gid_index: 1, at: now}");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventGidChange));
  EXPECT_EQ(a->ask("gid 1"), "ok " + std::string(32, '0'));
  EXPECT_EQ(a->ask("gid 0"), other);
  EXPECT_EQ(b->ask("event 0"), "none");
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess) << "what is connected goes on";
  a->make_qp();
  EXPECT_EQ(
      a->ask("connect 1 " + std::to_string(b->numbers[0]) + " " + b->gid + " " + b->address + " " + b->key),
      "error rtr " + std::to_string(EINVAL));
  EXPECT_TRUE(witnessed(id, Effect::kGidHidden, "node0"));
  EXPECT_TRUE(witnessed(id, Effect::kModifyRefused, "node0"));
  board.heal(id);
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventGidChange));
  EXPECT_EQ(a->ask("gid 1"), before);
  EXPECT_EQ(
      a->ask("connect 1 " + std::to_string(b->numbers[0]) + " " + b->gid + " " + b->address + " " + b->key),
      "ok");
}

TEST_F(GidChangeTest, all_rows_and_without_an_event) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: gid_change, events: false, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  for (int row : {0, 1}) EXPECT_EQ(a->ask("gid " + std::to_string(row)), "ok " + std::string(32, '0'));
  EXPECT_EQ(a->ask("event 50"), "none");
}

TEST_F(GidChangeTest, a_row_that_is_not_there_is_not_lost) {
  start();
  const uint32_t row = arm("{target: node0/nic0, kind: gid_change, gid_index: 200, at: now}"),
                 port = arm("{target: node0/nic0/port:2, kind: gid_change, at: now}");
  EXPECT_EQ(a->ask("create_cq"), "ok") << "its process knows of the faults from here on";
  EXPECT_EQ(a->ask("event 50"), "none");
  board.heal_all();
  EXPECT_EQ(a->ask("create_cq"), "ok");
  EXPECT_EQ(a->ask("event 50"), "none");
  for (const uint32_t id : {row, port}) {
    EXPECT_NE(board.state(id).triggered_ns, 0u);
    EXPECT_EQ(board.state(id).t0_ns, 0u);
    EXPECT_TRUE(board.witnesses(id).empty());
  }
}

}  // namespace
}  // namespace faultinject::testing
