// SPDX-License-Identifier: Apache-2.0
// NICs that have much to carry for their rates: no path over them is taken for dead. Of one that plans know
// to be slow, because probes wait behind that; of any, because one message takes longer than a queue pair may
// stand still.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "r2ccl/tests/testing/traffic.h"
#include "r2ccl/trace/ring.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr size_t kChannels = 32, kBytes = 16 << 10;
constexpr int kMessages = 3;
constexpr uint64_t kRate = 20'000'000;  // bit/s: they wait for 0.2 s, less than the longest deadline

/// What this process did for want of an answer.
uint64_t paths_left(trace::Reader& ring) {
  std::vector<trace::Event> events;
  ring.drain(events);
  uint64_t left = 0;
  for (const auto& event : events) left += event.type == trace::EventType::kFenceStarted;
  return left;
}

/// Opens all channels, and sends or receives on all of them at once.
void carry(const Link& link, bool sends, trace::Reader& ring) {
  Net* const n = net();
  ASSERT_NE(n, nullptr);
  const auto plan = n->plan();
  plan->knows(0, 0.5, 16 << 20);
  std::vector<Channel*> channels;
  std::vector<Listener*> listeners(kChannels);
  for (size_t i = 0; i < kChannels; ++i)
    channels.push_back(sends ? connect_one(*n, 0, link) : accept_one(*n, 0, link, listeners[i]));
  std::vector<uint8_t> memory(kChannels * kBytes, 7);
  std::vector<Registration*> registrations;
  for (size_t i = 0; i < kChannels; ++i)
    registrations.push_back(n->reg(channels[i], &memory[i * kBytes], kBytes).value());
  std::vector<Request*> open(kChannels, nullptr);
  std::vector<int> done(kChannels, 0);
  for (size_t over = 0; over < kChannels && !testing::Test::HasFailure();) {
    for (size_t i = 0; i < kChannels; ++i) {
      if (done[i] == kMessages) continue;
      if (!open[i]) {
        auto posted = sends ? n->isend(channels[i], &memory[i * kBytes], kBytes, registrations[i])
                            : n->irecv(channels[i], &memory[i * kBytes], kBytes, registrations[i]);
        ASSERT_TRUE(posted.ok()) << posted.error().message;
        open[i] = *posted;
        continue;
      }
      auto outcome = n->test(open[i]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      if (!outcome->done) continue;
      open[i] = nullptr;
      over += ++done[i] == kMessages;
    }
    std::this_thread::yield();
  }
  EXPECT_EQ(paths_left(ring), 0u);
  for (size_t i = 0; i < kChannels; ++i) {
    EXPECT_TRUE(n->dereg(channels[i], registrations[i]).ok());
    EXPECT_TRUE(n->close(channels[i]).ok());
    if (!sends) {
      EXPECT_TRUE(n->close(listeners[i]).ok());
    }
  }
}

TEST(SlowNic, no_path_over_it_is_left_because_probes_wait_in_its_queue) {
  const auto fabric = make_fabric(2, 1, kRate);
  const auto run = [&](int node, bool sends) {
    return start(fabric, node, {{"R2CC_MODE", "3"}}, [sends](const Link& link) {
      trace::Reader ring = trace::Reader::create();
      setenv("R2CC_TRACE", ring.path().c_str(), 1);
      carry(link, sends, ring);
    });
  };
  const Child receiver = run(1, false), sender = run(0, true);
  for (size_t i = 0; i < kChannels; ++i) relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
}

// As NCCL sends user buffers that were registered with it: up to 1 GiB in one message.
TEST(SlowNic, no_path_is_left_because_a_message_takes_longer_than_a_queue_pair_may_stand_still) {
  constexpr size_t kLong = 64 << 20;
  const auto fabric = make_fabric(2, 2, 2'500'000'000);  // 0.2 s for a message
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}, {"R2CC_STUCK_MS", "20"}};
  const auto run = [&](int node, bool sends) {
    return start(fabric, node, impatient, [sends](const Link& link) {
      trace::Reader ring = trace::Reader::create();
      setenv("R2CC_TRACE", ring.path().c_str(), 1);
      Net* const n = net();
      ASSERT_NE(n, nullptr);
      Listener* listener = nullptr;
      Channel* const channel = sends ? connect_one(*n, 0, link) : accept_one(*n, 0, link, listener);
      ASSERT_NE(channel, nullptr);
      std::vector<uint8_t> memory(kLong);
      Registration* const registration = n->reg(channel, memory.data(), kLong).value();
      for (int message = 0; message < 3; ++message) {
        std::fill(memory.begin(), memory.end(), uint8_t(sends ? message + 1 : 0));
        Request* request = nullptr;
        while (!request) {
          auto posted = sends ? n->isend(channel, memory.data(), kLong, registration)
                              : n->irecv(channel, memory.data(), kLong, registration);
          ASSERT_TRUE(posted.ok()) << posted.error().message;
          request = *posted;
        }
        for (bool done = false; !done; std::this_thread::yield()) {
          auto outcome = n->test(request);
          ASSERT_TRUE(outcome.ok()) << outcome.error().message;
          done = outcome->done;
        }
        EXPECT_EQ(std::count(memory.begin(), memory.end(), uint8_t(message + 1)), ptrdiff_t(kLong));
      }
      EXPECT_EQ(paths_left(ring), 0u);
      EXPECT_TRUE(n->dereg(channel, registration).ok());
      EXPECT_TRUE(n->close(channel).ok());
      if (!sends) {
        EXPECT_TRUE(n->close(listener).ok());
      }
    });
  };
  const Child receiver = run(1, false), sender = run(0, true);
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

}  // namespace
}  // namespace r2ccl
