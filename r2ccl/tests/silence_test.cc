// SPDX-License-Identifier: Apache-2.0
// What is lost without any error, on a NIC that works.
#include <gtest/gtest.h>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/deaf.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

// The data is there, the sender's NIC has reported it, and the receiver never hears of it: nobody's queue
// pair stands still. Each time the traffic has to move.
TEST(Silence, a_message_that_the_nic_reported_and_the_receiver_never_saw_is_sent_again) {
  const auto fabric = make_fabric(2, 2);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}, {"R2CC_FAILBACK_MS", "5"}};
  const Child receiver = start(fabric, 1, impatient, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    const Deaf deaf(channel->context(), 200);
    receive_messages(*n, channel, 0, 1000);
    EXPECT_GE(deaf.missed(), 4u);
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, impatient, [](const Link& link) { send_all(link, 1000); });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes, 1'000'000u) << "no migration";
}

}  // namespace
}  // namespace r2ccl
