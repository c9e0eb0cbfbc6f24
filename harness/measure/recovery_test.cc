// SPDX-License-Identifier: Apache-2.0
// When a job has recovered from a fault, and what of it is a sample: synthetic jobs with exact numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "harness/measure/testing/synthetic_record.h"

namespace r2bench {
namespace {

TEST(Recovery, every_mark_of_a_migration_is_exact) {
  Synthetic job;
  job.steady(10, 500);
  // NIC 0 dies at 505 ms, is fenced at 507, and from 520 on NIC 1 carries both: one segment per 10 ms in all.
  job.fence(507, 0, "completion");
  for (uint64_t t = 510; t <= 2000; t += 10) {
    if ((t / 10) % 2 == 0)
      job.deliver(t, 0, 1, 3);
    else
      job.deliver(t, 1, 1, 2);
  }
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
  EXPECT_DOUBLE_EQ(*sample.detect_ms, 2);
  EXPECT_EQ(sample.detected_by, "completion");
  EXPECT_DOUBLE_EQ(*sample.migrate_ms, 13);  // 507 -> 520
  EXPECT_EQ(*sample.migrated_ns, 520 * kMs);
  EXPECT_DOUBLE_EQ(sample.floor_ms, 20);
  EXPECT_DOUBLE_EQ(sample.window_ms, 40);
  // From 520 on each 40 ms carry 4 segments = the full limit; not earlier, as stream 0 had not moved.
  EXPECT_DOUBLE_EQ(*sample.recover_ms, 15);
  EXPECT_DOUBLE_EQ(*sample.blackout_ms, 20);  // stream 0: 500 -> 520
  EXPECT_NEAR(sample.before_gbps, 2 * 0.8 * 500 / 505, 1e-9);
  EXPECT_NEAR(sample.after_gbps, 0.8, 1e-9);
}

// Under live migration an operation ends with one NIC busy: here three quarters of the bytes are there when
// half of each 160 ms has passed.
TEST(Recovery, an_interval_is_no_shorter_than_an_operation_at_the_limit) {
  Synthetic job;
  job.steady(10, 500);
  job.fence(507, 0, "completion");
  for (uint64_t round = 520; round < 2000; round += 160)
    for (uint64_t t = 10; t <= 160; t += 10) {
      if (t % 20 == 0 && round + t >= 620) job.deliver(round + t, 0, 1, 3);
      if (t <= 80) job.deliver(round + t, 1, 1, 2);
    }
  FaultWindow window = nic0_down(505);
  FaultSample sample;
  analyse_fault(job.record, window, sample);
  EXPECT_DOUBLE_EQ(sample.window_ms, 40);
  EXPECT_DOUBLE_EQ(sample.recover_ms.value_or(0), 155) << "it waited for the next operation";
  window.operation_ms = 80;
  analyse_fault(job.record, window, sample);
  EXPECT_DOUBLE_EQ(sample.window_ms, 160);
  EXPECT_DOUBLE_EQ(sample.recover_ms.value_or(0), 115) << "when stream 0 had moved";
}

// The same, where operations take less than at the limit: an interval of one and a part has the slow half of
// an operation twice, or its fast one, by where it begins.
TEST(Recovery, an_interval_is_no_longer_than_operations_take_afterwards) {
  Synthetic job;
  job.steady(10, 500);
  job.fence(507, 0, "completion");
  for (uint64_t round = 520; round + 120 <= 2000; round += 120) {
    for (uint64_t t = 10; t <= 120; t += 10) {
      if (t % 20 == 0 && round + t >= 620) job.deliver(round + t, 0, 1, 3);
      if (t <= 60) job.deliver(round + t, 1, 1, 2);
    }
    job.record.operations.push_back({round, {round * kMs, (round + 120) * kMs}, true});
  }
  FaultWindow window = nic0_down(505);
  window.operation_ms = 80;
  FaultSample sample;
  analyse_fault(job.record, window, sample);
  EXPECT_DOUBLE_EQ(sample.window_ms, 120);
  EXPECT_DOUBLE_EQ(sample.recover_ms.value_or(0), 115) << "when stream 0 had moved";
}

TEST(Recovery, a_job_that_limps_recovers_only_when_the_rate_is_back) {
  Synthetic job;
  job.steady(10, 500);
  job.fence(507, 0, "watchdog");
  for (uint64_t t = 520; t < 700; t += 40) job.deliver(t, 0, 1, 3);  // a quarter of what it should be
  for (uint64_t t = 700; t <= 2000; t += 10) job.deliver(t, t % 20 ? 1 : 0, 1, t % 20 ? 2 : 3);
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  ASSERT_TRUE(sample.recovered_ns);
  // (680, 720] carries 700, 710, 720: three of the 3.56 that are needed. (700, 740] carries four.
  EXPECT_EQ(*sample.recovered_ns, 700 * kMs);
  EXPECT_DOUBLE_EQ(*sample.recover_ms, 195);
}

TEST(Recovery, verification_between_operations_costs_no_recovery_time) {
  Synthetic job;
  job.open({{0, 510 * kMs}, {1510 * kMs, 2500 * kMs}});  // a second of verification right after the fault
  job.record.end_ns = 2500 * kMs;
  job.steady(10, 500);
  job.fence(507, 0, "event");
  job.deliver(508, 0, 1, 3);  // the last segment of the operation, on the new path
  for (uint64_t t = 1520; t <= 2500; t += 10) job.deliver(t, t % 20 ? 1 : 0, 1, t % 20 ? 2 : 3);
  FaultWindow window = nic0_down(505);
  window.until_ns = window.end_ns = 2500 * kMs;
  FaultSample sample;
  analyse_fault(job.record, window, sample);
  ASSERT_TRUE(sample.recover_ms);
  // Open time runs 505 … 510, then 1510 …: the 40 ms after 508 hold three segments, those after 1520 four.
  EXPECT_EQ(*sample.recovered_ns, 1520 * kMs);
  EXPECT_DOUBLE_EQ(*sample.recover_ms, 5 + 10);
  EXPECT_DOUBLE_EQ(*sample.blackout_ms, 2 + 10);  // stream 0: 508 -> 1520
}

TEST(Recovery, never_recovers_while_the_affected_stream_is_silent) {
  Synthetic job;
  job.steady(10, 500);
  job.fence(507, 0, "completion");
  for (uint64_t t = 510; t <= 2000; t += 5) job.deliver(t, 1, 1, 2);  // the other stream doubles its rate
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  EXPECT_TRUE(sample.detect_ms);
  EXPECT_FALSE(sample.migrate_ms);
  EXPECT_FALSE(sample.recover_ms);
  EXPECT_DOUBLE_EQ(*sample.blackout_ms, 1500);
  EXPECT_EQ(sample.after_gbps, 0);
}

// From 600 ms on another algorithm runs, over channels of its own.
TEST(Recovery, a_stream_that_operations_do_without_is_not_silent) {
  Synthetic job;
  job.open({{0, 300 * kMs}, {300 * kMs, 600 * kMs}, {600 * kMs, 1200 * kMs}, {1200 * kMs, 2000 * kMs}});
  job.record.streams.push_back({1, 0, 1, 0});
  job.steady(10, 500);
  job.fence(507, 0, "completion");
  for (uint64_t t = 510; t <= 600; t += 10) {
    job.deliver(t, 0, 1, 3);
    job.deliver(t, 1, 1, 2);
  }
  for (uint64_t t = 610; t <= 2000; t += 10) job.deliver(t, 2, 1, 4);
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  ASSERT_TRUE(sample.recover_ms);
  EXPECT_LT(*sample.recover_ms, 20);
  EXPECT_LT(*sample.blackout_ms, 20);
  EXPECT_EQ(used_until_ns(job.record, 500 * kMs, 2000 * kMs), 600 * kMs);
  // … unless the operations without it never end.
  for (auto& operation : job.record.operations)
    if (operation.span.begin_ns >= 600 * kMs) operation.complete = false;
  EXPECT_EQ(used_until_ns(job.record, 500 * kMs, 2000 * kMs), 2000 * kMs);
}

// A walk of small messages has this many. A search through all operations for each delivery takes minutes.
TEST(Recovery, a_job_of_many_small_operations_is_told_in_seconds) {
  constexpr uint64_t kOperations = 300'000, kEvery = 6'000;  // ns
  Synthetic job;
  std::vector<Interval> spans;
  for (uint64_t i = 0; i < kOperations; ++i) spans.push_back({i * kEvery, (i + 1) * kEvery});
  job.open(std::move(spans));
  for (uint64_t i = 0; i < kOperations; ++i)
    for (uint16_t nic = 0; nic < 2; ++nic) {
      const bool well = i * kEvery < 20 * kMs;
      job.record.deliveries.push_back({i * kEvery + kEvery / 2, 800, nic, well ? nic : uint16_t(1),
                                       well ? nic : uint16_t(1), well ? nic + 1u : 2u});
    }
  job.fence(21, 0, "completion");
  const auto begin = std::chrono::steady_clock::now();
  FaultSample sample;
  analyse_fault(job.record, nic0_down(20), sample);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(sample.recover_ms) << sample.why_not_sampled;
  EXPECT_DOUBLE_EQ(*sample.detect_ms, 1);
  EXPECT_LT(took.count(), 10);
}

TEST(Recovery, a_slow_nic_without_a_fence_recovers_in_place) {
  Synthetic job;
  job.steady(10, 500);
  for (uint64_t t = 510; t <= 2000; t += 10) job.deliver(t, 1, 1, 2);
  for (uint64_t t = 520; t <= 2000; t += 20) job.deliver(t, 0, 0, 1);
  std::sort(job.record.deliveries.begin(), job.record.deliveries.end(),
            [](const Delivery& a, const Delivery& b) { return a.time_ns < b.time_ns; });
  FaultSample sample;
  analyse_fault(job.record, nic0_down(505), sample);
  EXPECT_FALSE(sample.detect_ms);
  EXPECT_FALSE(sample.migrate_ms);
  EXPECT_DOUBLE_EQ(*sample.recover_ms, 0);
  EXPECT_EQ(sample.detected_by, "");
}

TEST(Recovery, a_fault_that_meets_nothing_in_flight_is_no_sample) {
  FaultSample sample;
  Synthetic closed;
  closed.open({{0, 500 * kMs}, {600 * kMs, 2000 * kMs}});
  closed.steady(10, 500);
  closed.steady(610, 2000);
  analyse_fault(closed.record, nic0_down(550), sample);
  EXPECT_EQ(sample.why_not_sampled, "no operation was open");

  Synthetic idle;
  for (uint64_t t = 10; t <= 2000; t += 10) idle.deliver(t, 1, 1, 2);
  analyse_fault(idle.record, nic0_down(505), sample);
  EXPECT_EQ(sample.why_not_sampled, "no channel used the target");

  Synthetic done;  // stream 0 had received its share of the open operation
  done.open({{0, 520 * kMs}, {520 * kMs, 2000 * kMs}});
  done.steady(10, 500);
  done.deliver(510, 1, 1, 2);
  for (uint64_t t = 530; t <= 2000; t += 10) done.deliver(t, 0, 1, 3);
  analyse_fault(done.record, nic0_down(505), sample);
  EXPECT_EQ(sample.why_not_sampled, "no segment was in flight on the target");
  EXPECT_FALSE(sample.sampled);
}

// The job ended in an error 4 ms behind the fault: too soon for a stall to show.
TEST(Recovery, what_an_operation_that_never_ended_had_under_way_was_in_flight) {
  Synthetic job;
  job.steady(10, 500);
  job.record.operations[0].complete = false;
  job.record.end_ns = 509 * kMs;
  FaultWindow window = nic0_down(505);
  window.until_ns = window.end_ns = 509 * kMs;
  FaultSample sample;
  analyse_fault(job.record, window, sample);
  EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
  EXPECT_FALSE(sample.recover_ms);
}

/// CPU seconds of the analysis of a job in which the struck stream is silent for 90 of each 100 ms, and the
/// other one delivers each millisecond.
double analysis_s(uint64_t last_ms) {
  Synthetic job;
  job.record.end_ns = last_ms * kMs;
  job.open({{0, last_ms * kMs}});
  for (uint64_t t = 1; t <= last_ms; ++t) {
    if (t % 100 == 0 || t % 100 == 10) job.deliver(t, 0, 0, 1);
    job.deliver(t, 1, 1, 2);
  }
  FaultWindow window = nic0_down(505);
  window.until_ns = window.end_ns = last_ms * kMs;
  double least = 1e9;
  for (int turn = 0; turn < 3; ++turn) {
    FaultSample sample;
    const std::clock_t begin = std::clock();
    analyse_fault(job.record, window, sample);
    least = std::min(least, double(std::clock() - begin) / CLOCKS_PER_SEC);
    EXPECT_FALSE(sample.recovered_ns);
  }
  return least;
}

// A job of a hundred thousand small operations has as many silences as deliveries, and a walk has forty
// faults.
TEST(Recovery, takes_time_in_proportion_to_the_length_of_the_job) {
  const double once = analysis_s(50'000);
  EXPECT_LT(analysis_s(8 * 50'000), 24 * std::max(once, 1e-3)) << once;
}

}  // namespace
}  // namespace r2bench
