// SPDX-License-Identifier: Apache-2.0
// A send queue that fills up because its completions do not come while everything arrives: the program has
// nothing open, so that only its refused posts can find out when there is room again, or that there will be
// none.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/traffic.h"
#include "r2ccl/tests/testing/withheld.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 64;         // small enough to be copied: the sender waits for no word
constexpr uint64_t kMessages = 3000;  // several times what a send queue holds
constexpr uint64_t kWindow = 8;
constexpr auto kRefusedFor = 20ms;
constexpr auto kBound = 60s;

enum class End { kReceiver, kSender };

/// Sends or receives all messages, as NCCL's progress thread does. Where posts have been refused for a while
/// with nothing open, `refused` is called once.
void carry_all(Channel* channel, End end, const std::function<void()>& refused) {
  Net& n = *net();
  std::vector<std::array<uint64_t, kBytes / 8>> slots(kWindow);
  auto reg = n.reg(channel, slots.data(), kWindow * kBytes);
  ASSERT_TRUE(reg.ok());
  std::array<Request*, kWindow> open{};
  const auto until = Clock::now() + kBound;
  auto took = Clock::now();
  bool told = false;
  for (uint64_t posted = 0, done = 0; done < kMessages;) {
    ASSERT_LT(Clock::now(), until) << "after " << posted << " posts, of which " << done << " are done";
    if (posted < kMessages && posted < done + kWindow) {
      auto& slot = slots[posted % kWindow];
      slot.fill(end == End::kSender ? posted : ~uint64_t{0});
      auto request = end == End::kSender ? n.isend(channel, slot.data(), kBytes, *reg)
                                         : n.irecv(channel, slot.data(), kBytes, *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      if (*request) {
        open[posted++ % kWindow] = *request;
        took = Clock::now();
      }
    }
    if (done < posted) {
      auto outcome = n.test(open[done % kWindow]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      if (!outcome->done) continue;
      for (uint64_t word : slots[done % kWindow]) ASSERT_EQ(word, done);
      ++done;
    } else if (!told && Clock::now() - took > kRefusedFor && Withheld::count() > 0) {
      told = true;
      refused();
    }
  }
}

/// The receiver's NIC keeps its completions to itself; when posts are refused for it, they come or do not.
void fill_the_queue(bool released) {
  const auto fabric = make_fabric(2, 2);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}, {"R2CC_STUCK_MS", released ? "60000" : "200"}};
  const auto run = [&](Channel* channel, End end) {
    ASSERT_NE(channel, nullptr);
    std::optional<Withheld> withheld;
    if (end == End::kReceiver) withheld.emplace(channel->context());
    bool refused = false;
    carry_all(channel, end, [&] {
      refused = true;
      if (released) Withheld::release();
    });
    if (end == End::kReceiver) {
      EXPECT_TRUE(refused) << "the queue was never full: " << Withheld::count() << " withheld";
      EXPECT_GT(Withheld::count(), 0u);
    }
    EXPECT_TRUE(net()->close(channel).ok());
  };
  const Child receiver = start(fabric, 1, impatient, [&](const Link& link) {
    Listener* listener = nullptr;
    run(accept_one(*net(), 0, link, listener), End::kReceiver);
    EXPECT_TRUE(net()->close(listener).ok());
  });
  const Child sender =
      start(fabric, 0, impatient, [&](const Link& link) { run(connect_one(*net(), 0, link), End::kSender); });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
}

TEST(FullQueue, a_receiver_goes_on_when_its_completions_come) { fill_the_queue(true); }
TEST(FullQueue, a_receiver_leaves_a_queue_pair_whose_completions_never_come) { fill_the_queue(false); }

}  // namespace
}  // namespace r2ccl
