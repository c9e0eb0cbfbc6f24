// SPDX-License-Identifier: Apache-2.0
// Drivers that answer each call late, and many channels that wait for them at once: waiting in the queue of
// one's own NIC is neither silence of the NIC nor the lack of a path.
#include <gtest/gtest.h>

#include <cstdio>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/faulty_driver.h"
#include "r2ccl/tests/testing/sanitizer.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kChannels = kSanitizerFactor > 1 ? 60 : 200;
constexpr size_t kBytes = 4096;

/// One message on every channel, all at once; every byte is compared. Returns how many channels failed.
int one_message_each(Net& net, const std::vector<Channel*>& channels, bool send) {
  Slots buffer(Slots::Kind::kHost, channels.size() * kBytes);
  std::vector<Registration*> registrations;
  for (size_t i = 0; i < channels.size(); ++i) {
    auto registration = net.reg(channels[i], buffer.address(0), channels.size() * kBytes);
    EXPECT_TRUE(registration.ok());
    registrations.push_back(*registration);
    if (send) fill_message(i, buffer.view(i * kBytes), kBytes);
  }
  enum class State { kIdle, kOpen, kDone, kFailed };
  std::vector<State> states(channels.size(), State::kIdle);
  std::vector<Request*> requests(channels.size(), nullptr);
  int failed = 0;
  const auto fails = [&](size_t i, const Error& error) {
    states[i] = State::kFailed;
    if (failed++ == 0) std::printf("channel %zu: %s\n", i, error.message.c_str());
  };
  const auto until = Clock::now() + 120s;
  for (size_t over = 0; over < channels.size() && Clock::now() < until;)
    for (size_t i = 0; i < channels.size(); ++i) {
      uint8_t* const at = buffer.address(i * kBytes);
      if (states[i] == State::kIdle) {
        auto request = send ? net.isend(channels[i], at, kBytes, registrations[i])
                            : net.irecv(channels[i], at, kBytes, registrations[i]);
        if (!request)
          fails(i, request.error()), ++over;
        else if ((requests[i] = *request) != nullptr)
          states[i] = State::kOpen;
      }
      if (states[i] != State::kOpen) continue;
      auto outcome = net.test(requests[i]);
      if (!outcome)
        fails(i, outcome.error()), ++over;
      else if (outcome->done)
        states[i] = State::kDone, ++over;
    }
  std::vector<uint8_t> wanted(kBytes);
  for (size_t i = 0; i < channels.size(); ++i) {
    EXPECT_TRUE(states[i] == State::kDone || states[i] == State::kFailed) << "channel " << i << " hangs";
    if (send || states[i] != State::kDone) continue;
    fill_message(i, wanted.data(), kBytes);
    EXPECT_EQ(std::memcmp(buffer.view(i * kBytes), wanted.data(), kBytes), 0) << "channel " << i;
  }
  for (size_t i = 0; i < channels.size(); ++i) EXPECT_TRUE(net.dereg(channels[i], registrations[i]).ok());
  return failed;
}

/// All channels on NIC 0 of both nodes; its queue pairs break. `slow`: what is wrong with the drivers then.
void all_channels_move(const std::function<void()>& slow) {
  const auto fabric = make_fabric(2, 2);
  const Environment environment{{"R2CC_FAILBACK_MS", "100000"}};
  const auto body = [&](const Link& link, bool send) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    std::vector<Channel*> channels;
    std::vector<Listener*> listeners;
    for (int i = 0; i < kChannels; ++i) {
      Listener* listener = nullptr;
      channels.push_back(send ? connect_one(*n, 0, link) : accept_one(*n, 0, link, listener));
      ASSERT_NE(channels.back(), nullptr);
      if (listener) listeners.push_back(listener);
    }
    EXPECT_EQ(one_message_each(*n, channels, send), 0);
    slow();
    say(link);
    wait_for_word(link);
    EXPECT_EQ(one_message_each(*n, channels, send), 0) << "of " << kChannels << " channels failed";
    EXPECT_EQ(one_message_each(*n, channels, send), 0) << "of " << kChannels << " channels failed";
    for (size_t nic = 0; nic < 2; ++nic)
      FaultyDriver::nic(nic).late_error_us = FaultyDriver::nic(nic).late_create_us = 0;
    for (Channel* channel : channels) EXPECT_TRUE(n->close(channel).ok());
    for (Listener* listener : listeners) EXPECT_TRUE(n->close(listener).ok());
  };
  const Child receiver = start(fabric, 1, environment, [&](const Link& link) { body(link, false); });
  const Child sender = start(fabric, 0, environment, [&](const Link& link) { body(link, true); });
  for (int i = 0; i < kChannels; ++i) relay_handle(receiver, sender);
  wait_for_word(receiver.link);
  wait_for_word(sender.link);
  const uint64_t before = fabric.counters(0, 1).tx_bytes;
  FaultingNet faulting_net(fabric);
  EXPECT_GE(faulting_net.strike(0, 0, 16), kChannels);
  say(receiver.link);
  say(sender.link);
  EXPECT_EQ(sender.wait(180s), 0);
  EXPECT_EQ(receiver.wait(180s), 0);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes, before + kChannels * kBytes) << "they have moved";
}

TEST(Backlog, a_fence_that_waits_for_other_fences_of_its_nic_is_no_silence_of_the_nic) {
  all_channels_move([] { FaultyDriver::nic(0).late_error_us = 2000; });
}

TEST(Backlog, a_path_that_waits_for_other_paths_of_its_nic_to_be_made_is_no_lack_of_a_path) {
  all_channels_move([] { FaultyDriver::nic(1).late_create_us = 6000; });
}

}  // namespace
}  // namespace r2ccl
