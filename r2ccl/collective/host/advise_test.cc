// SPDX-License-Identifier: Apache-2.0
// When the engine is worth it.
#include "r2ccl/collective/host/advise.h"

#include <gtest/gtest.h>

namespace r2ccl::collective {
namespace {

constexpr Speeds kSlowNet{1.25e9, 10e9}, kFastNet{50e9, 10e9};

// Predictions are the engine's at its best: what it really needs decides.
TEST(Advise, takes_the_engine_to_need_more_than_is_predicted) {
  const std::vector<double> degraded{1, 1, 0.5, 1};
  Speeds speeds = kSlowNet;
  const EngineAdvice best = advise(degraded, 1 << 30, speeds);
  ASSERT_TRUE(best.engine) << best.why;
  speeds.margin = 1.1 * best.ring_seconds / best.engine_seconds;
  const EngineAdvice real = advise(degraded, 1 << 30, speeds);
  EXPECT_FALSE(real.engine);
  EXPECT_NE(real.why.find("R2CC_COLLNET_MARGIN"), std::string::npos) << real.why;
}

TEST(Advise, healthy_nodes_stay_with_nccls_ring) {
  const EngineAdvice advice = advise(std::vector<double>(4, 1.0), 1 << 30, kSlowNet);
  EXPECT_FALSE(advice.engine);
  EXPECT_NE(advice.why.find("NCCL's ring"), std::string::npos) << advice.why;
}

TEST(Advise, a_degraded_node_takes_the_engine_for_large_operations_only) {
  const std::vector<double> degraded{1, 1, 0.5, 1};
  const EngineAdvice large = advise(degraded, 1 << 30, kSlowNet);
  EXPECT_TRUE(large.engine) << large.why;
  EXPECT_LT(large.engine_seconds, 0.75 * large.ring_seconds);
  EXPECT_FALSE(advise(degraded, 1024, kSlowNet).engine);
  EXPECT_FALSE(advise(degraded, 0, kSlowNet).engine);
}

TEST(Advise, slow_additions_stay_with_balance_and_the_reason_is_said) {
  const EngineAdvice advice = advise(std::vector<double>{1, 1, 0.75, 1}, 1 << 30, kFastNet);
  EXPECT_FALSE(advice.engine);
  EXPECT_NE(advice.why.find("the CPU adds"), std::string::npos) << advice.why;
}

TEST(Advise, two_nodes_gain_nothing) {
  EXPECT_FALSE(advise(std::vector<double>{1, 0.5}, 1 << 30, kSlowNet).engine);
}

TEST(Advise, a_node_that_carries_nothing_is_planned_for_all_the_same) {
  const EngineAdvice advice = advise(std::vector<double>{1, 0, 1, 1}, 64 << 20, kSlowNet);
  EXPECT_GT(advice.ring_seconds, 0);
  EXPECT_GT(advice.engine_seconds, 0);
}

}  // namespace
}  // namespace r2ccl::collective
