// SPDX-License-Identifier: Apache-2.0
// Who is told of links, and when: of slow ones, once for each change, and not while all are well.
#include "r2ccl/service/link_watches.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kBytes = 64 << 10;

NicAddress address(uint8_t node, uint8_t nic) { return {node, nic}; }

/// A process with two devices, and its links to two peers.
struct Process {
  LinkMeters meters;
  LinkWatches watches{meters};
  std::vector<std::vector<double>> told;
  uint64_t now = 1000 * kMs;

  std::unique_ptr<LinkWatch> watch() {
    LinksWanted wanted;
    wanted.devices = {1, 0};  // the group begins with the second one
    for (const uint8_t node : {1, 2})
      for (const uint8_t nic : {1, 0}) wanted.peers.push_back(address(node, nic));
    wanted.changed = [this](std::span<const double> rates) { told.emplace_back(rates.begin(), rates.end()); };
    return watches.add(std::move(wanted), std::vector<double>{1, 1});
  }
  /// So many writes of each link to the first peer are done in 10 ms: on device 0, on device 1.
  void step(int first, int second) {
    for (int nic = 0; nic < 2; ++nic) {
      balance::NicMeter& meter = *meters.of(nic, address(1, uint8_t(nic)));
      const int done = nic == 0 ? first : second;
      for (int i = 0; i < 4; ++i) meter.posted(kBytes, [&] { return now; });
      for (int i = 0; i < done; ++i) meter.done(kBytes, kBytes, [&] { return now + 10 * kMs * uint64_t(i + 1) / uint64_t(done); });
      meter.abandoned(4 - done, now + 10 * kMs);
    }
    now += 10 * kMs;
    watches.look(now, std::vector<double>{1, 1}, 0, true);
  }
};

TEST(LinkWatches, tell_of_slow_links_and_of_their_recovery) {
  Process process;
  auto watch = process.watch();
  for (int i = 0; i < 200; ++i) process.step(4, 4);
  EXPECT_TRUE(process.told.empty()) << "all is well";
  for (int i = 0; i < 200; ++i) process.step(2, 4);
  ASSERT_FALSE(process.told.empty());
  EXPECT_LE(process.told.size(), 3u);
  const auto& slow = process.told.back();
  EXPECT_EQ(slow[0], 1);
  EXPECT_NEAR(slow[1], 0.5, 0.05);
  EXPECT_EQ(slow[2], 0) << "nothing is sent to the second peer";
  EXPECT_EQ(slow[3], 0);
  for (int i = 0; i < 600; ++i) process.step(4, 4);
  EXPECT_EQ(process.told.back()[1], 1);
  EXPECT_LE(process.told.size(), 8u);
  watch.reset();
  const size_t before = process.told.size();
  for (int i = 0; i < 200; ++i) process.step(2, 4);
  EXPECT_EQ(process.told.size(), before) << "nobody wants to know any more";
}

TEST(LinkWatches, paths_and_watches_share_the_meter_of_a_link) {
  LinkMeters meters;
  EXPECT_EQ(meters.of(1, address(3, 4)), meters.of(1, address(3, 4)));
  EXPECT_NE(meters.of(1, address(3, 4)), meters.of(0, address(3, 4)));
  EXPECT_NE(meters.of(1, address(3, 4)), meters.of(1, address(3, 5)));
}

TEST(LinkMeters, a_write_counts_on_its_nic_and_on_its_link_and_a_small_one_on_neither) {
  balance::NicMeter nic, link;
  uint64_t clock = 1000;
  const auto now = [&] { return clock; };
  EXPECT_EQ(meter_post(nic, &link, balance::NicMeter::kLeastBytes - 1, now), 0);
  EXPECT_EQ(meter_post(nic, &link, kBytes, now), 1);
  EXPECT_EQ(meter_post(nic, nullptr, kBytes, now), 1);
  clock = 2000;
  EXPECT_EQ(meter_done(nic, &link, balance::NicMeter::kLeastBytes - 1, 1, now), 0);
  EXPECT_EQ(meter_done(nic, &link, kBytes, kBytes, now), 1);
  EXPECT_EQ(link.read().bytes, kBytes);
  EXPECT_FALSE(link.read().open);
  EXPECT_TRUE(nic.read().open);
  meter_abandon(nic, nullptr, 1, clock);
  EXPECT_FALSE(nic.read().open);
}

}  // namespace
}  // namespace r2ccl
