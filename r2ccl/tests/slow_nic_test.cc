// SPDX-License-Identifier: Apache-2.0
// A NIC that plans know to be slow, and that has much to carry: probes wait behind that, and no path over it is taken
// for dead.
#include <gtest/gtest.h>

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
  for (size_t i = 0; i < kChannels; ++i) registrations.push_back(n->reg(channels[i], &memory[i * kBytes], kBytes).value());
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

}  // namespace
}  // namespace r2ccl
