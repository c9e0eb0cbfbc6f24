// Channels between two processes on the virtual fabric: every byte arrives, ends are clean, and what cannot work
// is refused with a sentence. Faults are the business of the scenarios (harness/tests).
#include <cstring>
#include <vector>

#include "r2ccl/tests/two_processes.h"

namespace r2ccl {
namespace {

using namespace testing_support;

Net* net() {
  auto result = Net::acquire(nullptr);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : nullptr;
}

uint8_t pattern(uint64_t message, size_t i) { return uint8_t(message * 131 + i * 7 + (i >> 8)); }

size_t size_of_message(uint64_t message, size_t largest) {
  static constexpr size_t kSizes[] = {0, 1, 8, 127, 128, 4096, 65537, 524288, 1048576};
  return std::min(kSizes[message % std::size(kSizes)], largest);
}

Channel* accept_one(Net& net, int device, const Link& link, Listener*& listener) {
  std::array<std::byte, kHandleBytes> handle{};
  auto listening = net.listen(device, handle.data());
  EXPECT_TRUE(listening.ok());
  listener = *listening;
  link.send(handle.data(), handle.size());
  return until_ready([&] { return net.accept(listener); });
}

Channel* connect_one(Net& net, int device, const Link& link) {
  std::array<std::byte, kHandleBytes> handle{};
  EXPECT_TRUE(link.receive(handle.data(), handle.size()));
  return until_ready([&] { return net.connect(device, handle.data()); });
}

constexpr size_t kLargest = 1 << 20;
constexpr int kOpen = 8;  // messages in flight

void receive_all(const Link& link, uint64_t messages) {
  Net* n = net();
  Listener* listener = nullptr;
  Channel* channel = accept_one(*n, 0, link, listener);
  ASSERT_NE(channel, nullptr);
  std::vector<uint8_t> buffer(kOpen * kLargest);
  auto reg = n->reg(channel, buffer.data(), buffer.size());
  ASSERT_TRUE(reg.ok());
  std::vector<Request*> open(kOpen, nullptr);
  uint64_t posted = 0, done = 0;
  while (done < messages) {
    if (posted < messages && posted < done + kOpen) {
      uint8_t* slot = buffer.data() + posted % kOpen * kLargest;
      std::memset(slot, 0xee, kLargest);
      auto request = n->irecv(channel, slot, kLargest, *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      if (*request) open[posted++ % kOpen] = *request;
    }
    if (done < posted) {
      auto outcome = n->test(open[done % kOpen]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      if (outcome->done) {
        const size_t wanted = size_of_message(done, kLargest);
        ASSERT_EQ(outcome->bytes, wanted) << "message " << done;
        const uint8_t* slot = buffer.data() + done % kOpen * kLargest;
        for (size_t i = 0; i < wanted; ++i) ASSERT_EQ(slot[i], pattern(done, i)) << "message " << done << " byte " << i;
        if (wanted < kLargest) {
          ASSERT_EQ(slot[wanted], 0xee) << "written beyond message " << done;
        }
        ++done;
      }
    }
  }
  ASSERT_TRUE(n->dereg(channel, *reg).ok());
  EXPECT_TRUE(n->close(channel).ok());
  EXPECT_TRUE(n->close(listener).ok());
}

void send_all(const Link& link, uint64_t messages) {
  Net* n = net();
  Channel* channel = connect_one(*n, 0, link);
  ASSERT_NE(channel, nullptr);
  std::vector<uint8_t> buffer(kOpen * kLargest);
  auto reg = n->reg(channel, buffer.data(), buffer.size());
  ASSERT_TRUE(reg.ok());
  std::vector<Request*> open(kOpen, nullptr);
  uint64_t posted = 0, done = 0;
  bool filled = false;
  while (done < messages) {
    if (posted < messages && posted < done + kOpen) {
      const size_t bytes = size_of_message(posted, kLargest);
      uint8_t* slot = buffer.data() + posted % kOpen * kLargest;
      if (!filled)
        for (size_t i = 0; i < bytes; ++i) slot[i] = pattern(posted, i);
      filled = true;
      auto request = n->isend(channel, slot, bytes, *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      if (*request) {
        open[posted++ % kOpen] = *request;
        filled = false;
      }
    }
    if (done < posted) {
      auto outcome = n->test(open[done % kOpen]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      if (outcome->done) ++done;
    }
  }
  ASSERT_TRUE(n->dereg(channel, *reg).ok());
  EXPECT_TRUE(n->close(channel).ok());
}

/// Hands handles on between the children: what the receiver says, the sender hears.
void relay_handle(const Child& receiver, const Child& sender) {
  std::array<std::byte, kHandleBytes> handle{};
  if (receiver.link.receive(handle.data(), handle.size())) sender.link.send(handle.data(), handle.size());
}

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

INSTANTIATE_TEST_SUITE_P(Modes, Channels, testing::Values(std::tuple("0", "1"), std::tuple("1", "1"), std::tuple("1", "0")));

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
