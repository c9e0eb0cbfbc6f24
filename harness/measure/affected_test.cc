// SPDX-License-Identifier: Apache-2.0
// Which streams a fault affects: at either end of a rail, on one queue pair, idle or just moved.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/measure/testing/synthetic_record.h"

namespace r2bench {
namespace {

TEST(Affected, a_stream_that_had_been_idle_is_not_affected) {
  Synthetic job;
  job.open({{0, 200 * kMs}, {200 * kMs, 400 * kMs}, {400 * kMs, 600 * kMs}, {600 * kMs, 2000 * kMs}});
  job.record.streams.push_back({1, 0, 1, 0});
  job.deliver(5, 2, 0, 9);  // a greeting on the NIC that dies, and much later its first use
  job.steady(10, 500);
  job.fence(507, 0, "completion");
  for (uint64_t t = 510; t <= 2000; t += 10) {
    job.deliver(t, 0, 1, 3);
    job.deliver(t, 1, 1, 2);
    if (t == 1500) job.deliver(t, 2, 1, 10);
  }
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  ASSERT_TRUE(sample.migrate_ms);
  EXPECT_LT(*sample.migrate_ms, 10);
}

// Mode balance: the link flaps, and the second outage strikes a NIC to which nothing has come back yet.
TEST(Affected, a_stream_of_several_nics_does_not_use_one_whose_path_it_has_fenced) {
  Synthetic job;
  job.steady(10, 500);
  job.fence(507, 0, "event");
  job.record.fences[0].stream = 0;
  job.record.fences[0].path = 1;
  for (uint64_t t = 510; t <= 2000; t += 10) job.deliver(t, t % 20 ? 1 : 0, 1, t % 20 ? 2 : 3);
  for (const auto& [t0_ms, why] : {std::pair(505, ""), {600, "no channel used the target"}}) {
    FaultWindow window = nic0_down(uint64_t(t0_ms));
    window.spread = true;
    FaultSample sample;
    analyse_fault(job.record, window, sample);
    EXPECT_EQ(sample.why_not_sampled, why) << t0_ms;
  }
  job.deliver(590, 0, 0, 4);  // it has come back, over a new path
  std::stable_sort(job.record.deliveries.begin(), job.record.deliveries.end(),
                   [](const Delivery& a, const Delivery& b) { return a.time_ns < b.time_ns; });
  FaultWindow window = nic0_down(600);
  window.spread = true;
  FaultSample sample;
  analyse_fault(job.record, window, sample);
  EXPECT_EQ(sample.why_not_sampled, "");
}

TEST(Affected, the_sender_s_end_of_the_rail_counts_as_well) {
  Synthetic job;
  job.steady(10, 500);
  job.fence(506, 0, "peer");
  job.record.fences[0].peer_node = job.record.fences[0].peer_nic = 0;
  for (uint64_t t = 510; t <= 2000; t += 10) job.deliver(t, t % 20 ? 1 : 0, 1, t % 20 ? 2 : 3);
  FaultWindow window = nic0_down(505);
  window.targets = {{0, 0}};  // node 0 only sends
  FaultSample sample;
  analyse_fault(job.record, window, sample);
  EXPECT_TRUE(sample.sampled);
  EXPECT_DOUBLE_EQ(*sample.detect_ms, 1);
}

/// Both streams arrive on NIC 1 of node 1, stream 0 on the cross rail from NIC 0, which node 0 loses at 505
/// ms. Stream 0 goes on at 520 ms, on the straight rail.
struct CrossRail : Synthetic {
  explicit CrossRail(uint16_t tx_nic) {
    for (uint64_t t = 10; t <= 500; t += 10) {
      deliver(t, 0, 1, 3);
      record.deliveries.back().tx_nic = tx_nic;
      deliver(t, 1, 1, 2);
    }
    fence(507, 1, "peer");
    record.fences[0].stream = 0;
    record.fences[0].peer_node = 0;
    record.fences[0].peer_nic = tx_nic;
    for (uint64_t t = 510; t <= 2000; t += 10) deliver(t, t % 20 ? 1 : 0, 1, t % 20 ? 2 : 4);
    window.targets = {{0, 0}};
  }
  FaultWindow window = nic0_down(505);
};

TEST(Affected, of_a_cross_rail_each_end_has_its_own_nic) {
  CrossRail job(0);
  for (const bool single_qp : {false, true}) {
    job.window.single_qp = single_qp;
    FaultSample sample;
    analyse_fault(job.record, job.window, sample);
    EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
    EXPECT_DOUBLE_EQ(sample.detect_ms.value_or(0), 2);
    EXPECT_DOUBLE_EQ(sample.migrate_ms.value_or(0), 13);
    EXPECT_DOUBLE_EQ(sample.blackout_ms.value_or(0), 20);
  }
}

TEST(Affected, where_no_event_names_the_sender_s_nic_what_was_struck_is_unknown) {
  CrossRail job(kNoNic);
  for (const NicId target : {NicId{0, 0}, NicId{0, 1}})
    for (const bool spread : {false, true}) {
      job.window.targets = {target};
      job.window.spread = spread;
      FaultSample sample;
      analyse_fault(job.record, job.window, sample);
      EXPECT_EQ(sample.why_not_sampled, "the sender's NIC of a channel is not known");
      EXPECT_FALSE(sample.sampled);
      EXPECT_FALSE(sample.detect_ms) << "nor whose fence it is";
      EXPECT_FALSE(sample.migrate_ms);
      EXPECT_FALSE(sample.blackout_ms);
    }
  job.window.targets = {{1, 1}};  // the receiver's NIC is known
  FaultSample sample;
  analyse_fault(job.record, job.window, sample);
  EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
}

TEST(Affected, of_a_single_qp_only_the_fenced_stream_is_affected) {
  Synthetic job;
  job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
  // Both streams share NIC 0; only stream 1's queue pair fails.
  for (uint64_t t = 10; t <= 500; t += 10) {
    job.deliver(t, 0, 0, 1);
    job.deliver(t, 1, 0, 2);
  }
  job.record.fences.push_back({506 * kMs, 1, 0, 1, "completion"});
  for (uint64_t t = 510; t <= 2000; t += 10) {
    job.deliver(t, 0, 0, 1);
    job.deliver(t, 1, 1, 3);
  }
  FaultWindow window = nic0_down(505);
  window.limits[0].limit = 1;
  window.single_qp = true;
  FaultSample sample;
  analyse_fault(job.record, window, sample);
  EXPECT_DOUBLE_EQ(*sample.migrate_ms, 4);
  ASSERT_TRUE(sample.recover_ms);
  EXPECT_DOUBLE_EQ(*sample.recover_ms, 5);
}

TEST(Affected, of_a_single_qp_that_has_delivered_nothing_since_its_failback_is_measured) {
  Synthetic job;
  job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
  // Stream 1 was away on NIC 1 and has just come back to NIC 0, on path 4, where its queue pair fails at
  // once.
  for (uint64_t t = 10; t <= 500; t += 10) {
    job.deliver(t, 0, 0, 1);
    job.deliver(t, 1, 1, 2);
  }
  job.record.fences.push_back({506 * kMs, 1, 0, 1, "completion", 4});
  job.deliver(507, 1, 0, 4);  // what was under way when it was fenced
  for (uint64_t t = 510; t <= 2000; t += 10) {
    job.deliver(t, 0, 0, 1);
    job.deliver(t, 1, 1, 5);
  }
  FaultWindow window = nic0_down(505);
  window.limits[0].limit = 1;
  window.single_qp = true;
  FaultSample sample;
  analyse_fault(job.record, window, sample);
  ASSERT_TRUE(sample.migrate_ms);
  EXPECT_DOUBLE_EQ(*sample.migrate_ms, 4);
  EXPECT_TRUE(sample.recover_ms);
}

// Stream 0 is on NIC 1 until it fails back at 502 ms; NIC 0 dies at 505 ms and stream 0 stalls until 1000 ms.
TEST(Affected, a_stream_that_has_delivered_nothing_since_its_failback_is_affected) {
  Synthetic job;
  for (uint64_t t = 10; t <= 500; t += 10) {
    job.deliver(t, 0, 1, 3);
    job.deliver(t, 1, 1, 2);
  }
  job.use(502, 0, 0, 4);
  for (uint64_t t = 510; t <= 2000; t += 10) job.deliver(t, 1, 1, 2);
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
  EXPECT_FALSE(sample.recovered_ns) << "stream 0 delivers nothing any more";
  EXPECT_DOUBLE_EQ(sample.blackout_ms.value_or(0), 1500);

  job.fence(800, 0, "watchdog");
  for (uint64_t t = 1000; t <= 2000; t += 10) job.deliver(t, 0, 1, 5);
  std::stable_sort(job.record.deliveries.begin(), job.record.deliveries.end(),
                   [](const Delivery& a, const Delivery& b) { return a.time_ns < b.time_ns; });
  FaultSample late;
  analyse_fault(job.record, nic0_down(505), late);
  EXPECT_TRUE(late.sampled) << late.why_not_sampled;
  EXPECT_DOUBLE_EQ(late.migrate_ms.value_or(0), 200);
  EXPECT_DOUBLE_EQ(late.blackout_ms.value_or(0), 500);
  EXPECT_EQ(late.recovered_ns.value_or(0), 1000 * kMs);
}

TEST(Affected, a_stream_that_has_left_the_target_is_not_affected) {
  Synthetic job;
  job.steady(10, 500);
  job.use(502, 0, 1, 3);
  job.use(506, 0, 0, 4);  // later than the strike
  for (uint64_t t = 510; t <= 2000; t += 10) job.deliver(t, 1, 1, 2);
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  EXPECT_EQ(sample.why_not_sampled, "no channel used the target");
}

// A channel that comes up does not name its path.
TEST(Affected, a_stream_that_has_delivered_nothing_yet_is_affected) {
  Synthetic job;
  job.use(1, 0, 0, 0);
  for (uint64_t t = 10; t <= 2000; t += 10) job.deliver(t, 1, 1, 2);
  FaultSample silent;
  analyse_fault(job.record, nic0_down(505), silent);
  EXPECT_TRUE(silent.sampled) << silent.why_not_sampled;
  EXPECT_FALSE(silent.recovered_ns);

  job.deliver(1000, 0, 0, 1);  // what the port had taken before it died
  job.deliver(1010, 0, 1, 3);
  std::stable_sort(job.record.deliveries.begin(), job.record.deliveries.end(),
                   [](const Delivery& a, const Delivery& b) { return a.time_ns < b.time_ns; });
  job.fence(800, 0, "watchdog");
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  EXPECT_DOUBLE_EQ(sample.migrate_ms.value_or(0), 210) << "only another NIC is another path";
  EXPECT_DOUBLE_EQ(sample.floor_ms, 20);
}

// Its algorithm has other channels: two operations went by without it.
TEST(Affected, a_stream_that_is_not_used_is_not_affected_on_any_path) {
  Synthetic job;
  job.open({{0, 100 * kMs}, {100 * kMs, 300 * kMs}, {300 * kMs, 400 * kMs}, {400 * kMs, 2000 * kMs}});
  job.steady(10, 90);
  for (uint64_t t = 100; t <= 2000; t += 10) job.deliver(t, 1, 1, 2);
  job.use(502, 0, 0, 4);
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  EXPECT_EQ(sample.why_not_sampled, "no channel used the target");
}

}  // namespace
}  // namespace r2bench
