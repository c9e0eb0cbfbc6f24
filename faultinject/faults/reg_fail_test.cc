// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class RegFailTest : public Nodes {};

TEST_F(RegFailTest, every_way_to_register_fails_and_heal_ends_it) {
  start();
  EXPECT_EQ(a->ask("register"), "ok");
  const std::string dmabuf = a->ask("register_dmabuf");  // this device may not serve it
  const uint32_t id = arm("{target: node0/nic0, kind: reg_fail, errno: EFAULT, count: all, at: now}");
  const std::string refused = "errno " + std::to_string(EFAULT);
  ASSERT_TRUE(eventually([&] { return a->ask("register") == refused; }));
  for (const char* how : {"register", "register_iova", "register_iova2", "register_dmabuf"})
    EXPECT_EQ(a->ask(how), refused) << how;
  EXPECT_EQ(b->ask("register"), "ok");
  EXPECT_EQ(value(id, Effect::kRegistrationRefused), uint64_t(EFAULT));
  EXPECT_NE(board.state(id).t0_ns, 0u);
  board.heal(id);
  EXPECT_TRUE(eventually([&] { return a->ask("register") == "ok"; }));
  EXPECT_EQ(a->ask("register_iova2"), "ok");
  EXPECT_EQ(a->ask("register_dmabuf"), dmabuf);
}

TEST_F(RegFailTest, a_device_opened_while_it_lasts_fails_its_first_registration_only) {
  const uint32_t id = arm("{target: node0/nic0, kind: reg_fail, at: now}");
  a = &agent("node0", "0");
  EXPECT_EQ(a->ask("open 0").substr(0, 5), "error");
  EXPECT_EQ(count(id, Effect::kRegistrationRefused), 1u);
  EXPECT_EQ(a->ask("register"), "ok");
}

}  // namespace
}  // namespace faultinject::testing
