// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/slow_motion.h"

#include <gtest/gtest.h>

#include "harness/scenario/load.h"
#include "r2ccl/base/config.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

const char* const kText = R"(
version: 1
name: t
fabric: {kind: vhca, nodes: 2, nics_per_node: 4, nic_rate: 1 Gbit/s, latency: 5 us}
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 1 MiB, iters: 10}
modes: [baseline, migrate]
env: {NCCL_IB_TIMEOUT: 14, R2CC_STUCK_MS: 700}
faults:
  - {at: {time: 20 ms}, target: node1/nic0, kind: throttle, rate: 160 Mbit/s, for: 30 ms}
  - {at: {iter: 6}, target: node1/nic1, kind: delay, delay: 1 ms, for: 10 ms}
expect:
  migrate:
    recover_ms.max: "<= 2 * floor + wakeup + 50 ms"
    retained_bw: ">= 0.95 * limit"
    wrong_elements: 0
)";

Scenario slowed(int factor) { return in_slow_motion(parse_scenarios("t.yaml", kText).front(), factor); }

const Expectation& about(const Scenario& scenario, const std::string& metric) {
  for (const Expectation& expectation : scenario.expectations)
    if (expectation.metric == metric) return expectation;
  throw std::runtime_error("no expectation about " + metric);
}

double bound(const Expectation& expectation) {
  const auto values = [](Quantity q) -> std::optional<double> {
    return q == Quantity::kFloor ? 3.0 : q == Quantity::kWakeup ? 7.0 : 0.5;
  };
  return evaluate(std::get<Numeric>(expectation.condition).bound, values).value();
}

TEST(SlowMotion, is_the_least_power_of_two_that_fits) {
  Fabric fabric;
  fabric.nodes = 2, fabric.nics_per_node = 4, fabric.nic_rate_bits_per_s = 1'000'000'000;
  EXPECT_EQ(slow_motion_factor(fabric, 8'000'000'000, 99), 1);
  EXPECT_EQ(slow_motion_factor(fabric, 7'999'999'999, 99), 2);
  EXPECT_EQ(slow_motion_factor(fabric, 500'000'000, 99), 16);
  fabric.nic_rate_bits_per_s = 0;
  EXPECT_EQ(slow_motion_factor(fabric, 1, 8), 8);
}

TEST(SlowMotion, divides_rates_and_multiplies_times) {
  const Scenario slow = slowed(16);
  EXPECT_EQ(slow.fabric.nic_rate_bits_per_s, 62'500'000u);
  EXPECT_EQ(slow.fabric.latency, 80us);
  EXPECT_EQ(slow.faults[0].trigger.after, 320ms);
  EXPECT_EQ(slow.faults[0].duration, std::chrono::nanoseconds(480ms));
  EXPECT_EQ(slow.faults[0].rate_bits_per_s, 10'000'000u);
  EXPECT_EQ(slow.faults[1].delay, 16ms);
  EXPECT_EQ(slow.timeouts.stall, slowed(1).timeouts.stall * 16);
}

/// Every time and rate that a fault can be given in YAML; the structured bindings of slow_motion.cc see to
/// the fields that will be added.
TEST(SlowMotion, slows_every_time_and_rate_of_every_fault) {
  const std::string text = std::string(kText).replace(std::string(kText).find("faults:"), 7, R"(faults:
  - {name: flap, at: {time: 1 ms}, target: node1/nic0, kind: port_flap, down: 3 ms, up: 5 ms, repeat: 2, every: 70 ms, for: 30 ms}
  - {after: {fault: flap, until: effect, wait: 11 ms}, phase: {up_to: 13 ms}, target: node1/nic0, kind: reorder, window: 17 ms, depth: 4}
  - {at: now, target: node1/nic0, kind: throttle, rates: [{rate: 160 Mbit/s, for: 19 ms}, {rate: 80 Mbit/s}]}
  - {at: {wr: 9}, target: node1/nic0, kind: delay, delay: 23 ms, jitter: 7 ms}
  - {at: {bytes: 64 KiB}, target: node1/nic0, kind: ack_lost, min_bytes: 2 KiB}
  - {at: now, target: node1/nic0, kind: device_removed, notice: 2 ms, window: 6 ms, settle: 9 ms})");
  const auto at = [&](int factor) {
    return in_slow_motion(parse_scenarios("t.yaml", text).front(), factor).faults;
  };
  const auto faults = at(16), plain = at(1);
  EXPECT_EQ(faults[0].time("down"), 48ms);
  EXPECT_EQ(faults[0].time("up"), 80ms);
  EXPECT_EQ(faults[0].every, 1120ms);
  EXPECT_EQ(faults[0].duration, std::chrono::nanoseconds(480ms));
  EXPECT_EQ(faults[0].count, plain[0].count);
  EXPECT_EQ(faults[0].repeat, 2u);
  EXPECT_EQ(faults[1].trigger.after, 176ms);
  EXPECT_EQ(faults[1].trigger.phase_up_to, 208ms);
  EXPECT_EQ(faults[1].time("window"), 272ms);
  EXPECT_EQ(faults[1].value("depth"), 4u);
  ASSERT_EQ(faults[2].rates.size(), 2u);
  EXPECT_EQ(faults[2].rates[0].bits_per_s, 10'000'000u);
  EXPECT_EQ(faults[2].rates[0].lasts, 304ms);
  EXPECT_EQ(faults[2].rates[1].bits_per_s, 5'000'000u);
  EXPECT_EQ(faults[2].rate_bits_per_s, 5'000'000u);
  EXPECT_EQ(faults[3].delay, 368ms);
  EXPECT_EQ(faults[3].time("jitter"), 112ms);
  EXPECT_EQ(faults[3].trigger.count, 9u);
  EXPECT_EQ(faults[4].trigger.count, 64u << 10);
  EXPECT_EQ(faults[4].value("min_bytes"), 2u << 10);
  EXPECT_EQ(faults[5].time("notice"), 32ms);
  EXPECT_EQ(faults[5].time("window"), 96ms);
  EXPECT_EQ(faults[5].time("settle"), 144ms);
}

TEST(SlowMotion, slows_what_the_harness_does_to_ranks) {
  const std::string text = std::string(kText).replace(std::string(kText).find("faults:"), 7, R"(faults:
  - {at: {time: 30 ms}, target: node1/rank0, kind: sigstop, for: 40 ms})");
  const Scenario slow = in_slow_motion(parse_scenarios("t.yaml", text).front(), 16);
  ASSERT_EQ(slow.rank_faults.size(), 1u);
  EXPECT_EQ(slow.rank_faults[0].at_time, std::chrono::nanoseconds(480ms));
  EXPECT_EQ(slow.rank_faults[0].duration, 640ms);
  EXPECT_EQ(slow.timeouts.job, slowed(1).timeouts.job * 16);
  EXPECT_EQ(slow.timeouts.setup, slowed(1).timeouts.setup * 16);
  EXPECT_EQ(slow.timeouts.close, slowed(1).timeouts.close * 16);
}

TEST(SlowMotion, leaves_amounts_and_counts) {
  const Scenario slow = slowed(16);
  EXPECT_EQ(slow.workload.bytes, 1u << 20);
  EXPECT_EQ(slow.workload.iters, 10);
  EXPECT_EQ(slow.faults[1].trigger.value, 6u);
}

TEST(SlowMotion, slows_the_transports_own_timers_defaults_included) {
  const Scenario slow = slowed(16);
  EXPECT_EQ(slow.env.at("NCCL_IB_TIMEOUT"), "18");
  EXPECT_EQ(slow.env.at("R2CC_STUCK_MS"), "11200");
  EXPECT_EQ(slow.env.at("R2CC_SUSPECT_MS"), "64");  // the core's 4 ms
  EXPECT_FALSE(slow.env.contains("NCCL_IB_RETRY_CNT"));
  EXPECT_FALSE(slowed(1).env.contains("R2CC_SUSPECT_MS"));
}

TEST(SlowMotion, stays_within_what_the_core_takes) {
  const auto taken = [](const Scenario& scenario) {
    return r2ccl::Config::from([&](const char* name) -> const char* {
      const auto found = scenario.env.find(name);
      return found == scenario.env.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(slowed(64).env.at("R2CC_FENCE_MS"), "32000");
  EXPECT_EQ(slowed(256).env.at("R2CC_FENCE_MS"),
            "32000");  // no more than 60 s, and still a power of two of its own
  EXPECT_EQ(slowed(256).env.at("R2CC_SUSPECT_MS"), "1024");
  for (int factor = 1; factor <= 4096; factor *= 2) EXPECT_TRUE(bool(taken(slowed(factor)))) << factor;
}

TEST(SlowMotion, multiplies_only_the_milliseconds_of_an_expectation) {
  const Scenario slow = slowed(16);
  EXPECT_DOUBLE_EQ(bound(about(slowed(1), "recover_ms.max")), 2 * 3 + 7 + 50);
  EXPECT_DOUBLE_EQ(bound(about(slow, "recover_ms.max")), 2 * 3 + 7 + 16 * 50);
  EXPECT_DOUBLE_EQ(bound(about(slow, "retained_bw")), 0.95 * 0.5);
  EXPECT_NE(about(slow, "recover_ms.max").wanted.find("× 16"), std::string::npos);
  EXPECT_EQ(about(slow, "retained_bw").wanted, about(slowed(1), "retained_bw").wanted);
}

TEST(SlowMotion, says_that_it_is_and_refuses_what_is_no_power_of_two) {
  EXPECT_EQ(slowed(16).overrides.at("slow_motion"), "16");
  EXPECT_THROW(slowed(3), std::invalid_argument);
  EXPECT_THROW(slowed(0), std::invalid_argument);
}

}  // namespace
}  // namespace r2bench
