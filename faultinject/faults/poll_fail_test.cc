// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class PollFailTest : public Nodes {};

TEST_F(PollFailTest, polls_fail_so_often_and_no_completion_is_lost) {
  const uint32_t id = arm("{target: node0/nic0, kind: poll_fail, errno: EIO, count: 3, at: {wr: 1}}");
  start();
  a->must("post 0 write 1 8 0");
  for (int i = 0; i < 3; i++) EXPECT_EQ(a->ask("poll_once 0"), "ok " + std::to_string(-EIO));
  const auto wcs = a->poll(0, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wr_id, 1u);
  EXPECT_EQ(wcs[0].status, kSuccess);
  EXPECT_EQ(count(id, Effect::kPollRefused), 3u);
}

TEST_F(PollFailTest, until_it_is_healed) {
  const uint32_t id = arm("{target: node0/nic0, kind: poll_fail, count: all, at: {wr: 1}}");
  start();
  a->must("post 0 write 1 8 0");
  for (int i = 0; i < 300; i++) EXPECT_EQ(a->ask("poll_once 0"), "ok " + std::to_string(-EIO));
  EXPECT_LE(count(id, Effect::kPollRefused), 256u) << "a busy loop must not fill the log";
  board.heal(id);
  EXPECT_TRUE(eventually([&] { return a->ask("poll_once 0") == "ok 1"; }));
}

}  // namespace
}  // namespace faultinject::testing
