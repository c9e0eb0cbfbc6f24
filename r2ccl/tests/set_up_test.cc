// SPDX-License-Identifier: Apache-2.0
// Connections that NCCL stops asking for, and what the log says of a start on another rail than home.
#include <gtest/gtest.h>

#include <mutex>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/sanitizer.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(SetUp, a_connection_that_nobody_asks_for_any_more_is_closed) {
  const auto fabric = make_fabric(2, 2);
  const Environment environment{{"R2CC_CONNECT_MS", std::to_string(500 * kSanitizerFactor)}};
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->close(listener).ok());
    say(link);
    wait_for_word(link);
  });
  const Child sender = start(fabric, 0, environment, [](const Link& link) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    std::array<std::byte, kHandleBytes> handle{};
    ASSERT_TRUE(link.receive(handle.data(), handle.size()));
    auto first = n->connect(0, handle.data());
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(*first, nullptr) << "not at once";
    say(link);
    wait_for_word(link);
    auto late = n->connect(0, handle.data());
    ASSERT_FALSE(late.ok());
    EXPECT_NE(late.error().message.find("R2CC_CONNECT_MS"), std::string::npos) << late.error().message;
    say(link);
  });
  relay_handle(receiver, sender);
  wait_for_word(sender.link);
  wait_for_word(receiver.link);  // it was set up, so there was something to close
  for (const auto until = Clock::now() + 30s; fabric.usage().queue_pairs != 0 && Clock::now() < until;)
    std::this_thread::sleep_for(10ms);
  EXPECT_EQ(fabric.usage().queue_pairs, 0u) << "while both processes live";
  EXPECT_EQ(fabric.usage().processes, 2u);
  say(sender.link);
  say(receiver.link);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

std::mutex g_mutex;
std::string g_log;

void keep(LogLevel, const char*, int, const char* text) {
  const std::lock_guard lock(g_mutex);
  g_log.append(text).append("\n");
}

std::string log_so_far() {
  const std::lock_guard lock(g_mutex);
  return g_log;
}

TEST(SetUp, only_the_end_that_knows_it_says_why_a_channel_does_not_start_at_home) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  faulting_net.make_narrow(0, 0, 1);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    set_log_sink(&keep);
    receive_all(link, 20);
    EXPECT_EQ(log_so_far().find("(nothing)"), std::string::npos) << log_so_far();
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    set_log_sink(&keep);
    send_all(link, 20);
    EXPECT_NE(log_so_far().find("its home rail does not work (NIC vhca0"), std::string::npos) << log_so_far();
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

}  // namespace
}  // namespace r2ccl
