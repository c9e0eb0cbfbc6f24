// SPDX-License-Identifier: Apache-2.0
// Channels between two processes on the virtual fabric: every byte arrives, ends are clean, and what cannot
// work is refused with a sentence. Faults are the business of the scenarios (harness/tests).
#include <vector>

#include "r2ccl/protocol/wire.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;

class Channels : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Channels, carry_every_byte_of_every_size) {
  const auto [mode, strict] = GetParam();
  const Environment environment{{"R2CC_MODE", mode}, {"R2CC_STRICT_ACK", strict}};
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, environment, [](const Link& link) { receive_all(link, 300); });
  const Child sender = start(fabric, 0, environment, [](const Link& link) { send_all(link, 300); });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, Channels,
                         testing::Values(std::tuple("0", "1"), std::tuple("1", "1"), std::tuple("1", "0")));

TEST(Channel, ranks_of_different_modes_refuse_each_other_with_a_sentence) {
  const auto fabric = make_fabric(2, 2);
  const auto expect_refusal = [](Net& n, auto attempt) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (;;) {
      Result<Channel*> result = attempt(n);
      if (!result) {
        EXPECT_EQ(result.error().code, ErrorCode::kModeMismatch) << result.error().message;
        EXPECT_NE(result.error().message.find("R2CC_MODE=0"), std::string::npos) << result.error().message;
        EXPECT_NE(result.error().message.find("R2CC_MODE=1"), std::string::npos) << result.error().message;
        return;
      }
      ASSERT_EQ(*result, nullptr) << "connected";
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "neither refused nor connected";
      std::this_thread::yield();
    }
  };
  const Child receiver = start(fabric, 1, {{"R2CC_MODE", "0"}}, [&](const Link& link) {
    std::array<std::byte, kHandleBytes> handle{};
    auto listener = net()->listen(0, handle.data());
    ASSERT_TRUE(listener.ok());
    link.send(handle.data(), handle.size());
    expect_refusal(*net(), [&](Net& n) { return n.accept(*listener); });
  });
  const Child sender = start(fabric, 0, {{"R2CC_MODE", "1"}}, [&](const Link& link) {
    std::array<std::byte, kHandleBytes> handle{};
    ASSERT_TRUE(link.receive(handle.data(), handle.size()));
    expect_refusal(*net(), [&](Net& n) { return n.connect(0, handle.data()); });
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

TEST(Channel, a_killed_peer_is_an_error_that_says_so) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Listener* listener = nullptr;
    ASSERT_NE(accept_one(*net(), 0, link, listener), nullptr);
    for (;;) pause();
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Channel* channel = connect_one(*net(), 0, link);
    ASSERT_NE(channel, nullptr);
    char ready = 1;
    link.send(&ready, 1);
    std::vector<uint8_t> buffer(64);
    auto reg = net()->reg(channel, buffer.data(), buffer.size());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (;;) {
      auto request = net()->isend(channel, buffer.data(), buffer.size(), *reg);
      if (!request) {
        EXPECT_EQ(request.error().code, ErrorCode::kPeerGone) << request.error().message;
        return;
      }
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  });
  relay_handle(receiver, sender);
  char ready = 0;
  ASSERT_TRUE(sender.link.receive(&ready, 1));
  kill(receiver.pid, SIGKILL);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 128 + SIGKILL);
}

TEST(Channel, a_handle_that_is_not_ours_is_refused) {
  const auto fabric = make_fabric(1, 1);
  const Child child = start(fabric, 0, {}, [](const Link&) {
    std::array<std::byte, kHandleBytes> handle{};
    auto result = net()->connect(0, handle.data());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kBadHandle);
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Channel, a_peer_of_another_wire_version_is_refused_with_a_sentence) {
  const auto fabric = make_fabric(1, 1);
  const Child child = start(fabric, 0, {}, [](const Link&) {
    std::array<std::byte, kHandleBytes> handle{};
    ASSERT_TRUE(net()->listen(0, handle.data()).ok());
    handle[offsetof(wire::Handle, version)] ^= std::byte{0x40};
    auto result = net()->connect(0, handle.data());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kVersionMismatch);
    EXPECT_NE(result.error().message.find("speaks wire version"), std::string::npos)
        << result.error().message;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Channel, a_forked_child_gets_an_error_and_does_no_harm) {
  const auto fabric = make_fabric(1, 2);
  const Child child = start(fabric, 0, {}, [](const Link&) {
    Net* parent = net();
    ASSERT_NE(parent, nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      std::array<std::byte, kHandleBytes> handle{};
      auto result = parent->listen(0, handle.data());
      _exit(!result.ok() && result.error().code == ErrorCode::kAfterFork ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    std::array<std::byte, kHandleBytes> handle{};
    EXPECT_TRUE(parent->listen(0, handle.data()).ok());
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Channel, a_bad_setting_is_refused_by_name) {
  const auto fabric = make_fabric(1, 1);
  const Child child = start(fabric, 0, {{"R2CC_MODE", "fast"}}, [](const Link&) {
    auto result = Net::acquire(nullptr);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("R2CC_MODE='fast'"), std::string::npos) << result.error().message;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace r2ccl
