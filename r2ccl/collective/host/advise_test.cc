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

// Its ranks have been seen to lack CPUs.
TEST(Advise, an_engine_that_is_slower_than_predicted_stays_with_balance_and_the_reason_is_said) {
  const std::vector<double> degraded{1, 1, 0.5, 1};
  const EngineAdvice best = advise(degraded, 1 << 30, kSlowNet);
  ASSERT_TRUE(best.engine);
  const double even = best.engine_seconds / best.ring_seconds;
  const EngineAdvice slow = advise(degraded, 1 << 30, kSlowNet, {}, even);
  EXPECT_FALSE(slow.engine);
  EXPECT_NEAR(slow.engine_seconds, slow.ring_seconds, 1e-6 * slow.ring_seconds);
  EXPECT_EQ(slow.predicted_seconds, best.predicted_seconds);
  EXPECT_NE(slow.why.find("for lack of CPUs"), std::string::npos) << slow.why;
  EXPECT_TRUE(advise(degraded, 1 << 30, kSlowNet, {}, 1.1 * even).engine) << "still faster";
}

// NCCL's rule for CollNet: chunks of 8 channels are one call.
TEST(Advise, pieces_are_those_that_nccl_makes) {
  const auto piece = [](uint64_t bytes) { return piece_of_operation(bytes) >> 10; };
  EXPECT_EQ(piece(8), 32u);
  EXPECT_EQ(piece(256 << 10), 4 * 64u);
  EXPECT_EQ(piece(1 << 20), 8 * 64u);
  EXPECT_EQ(piece(16 << 20), 8 * 128u);
  EXPECT_EQ(piece(64 << 20), 8 * 128u);
  EXPECT_EQ(piece(128 << 20), 8 * 256u);
  EXPECT_EQ(piece(256 << 20), 8 * 512u);
  EXPECT_EQ(piece(uint64_t{1} << 30), 8 * 512u);
  for (uint64_t bytes = 512 << 10; bytes <= uint64_t{4} << 30; bytes *= 2) {
    EXPECT_LE(piece_of_operation(bytes), kLargestPiece) << bytes;
    EXPECT_EQ(outstanding_for(planned_bytes(piece_of_operation(bytes))), kPiecesInFlight) << bytes;
  }
}

// The same plan per piece as a group makes: small pieces have short pipelines, so 64 MiB gain
// less than 1 GiB.
TEST(Advise, predicts_with_the_pieces_that_are_run) {
  const std::vector<double> degraded{1, 1, 0.75, 1};
  const auto per_byte = [&](uint64_t bytes) {
    return advise(degraded, bytes, kSlowNet).engine_seconds / double(bytes);
  };
  EXPECT_GT(per_byte(64 << 20), 1.01 * per_byte(1 << 30));
  // Both in pieces of 4 MiB, in a mix: 64 of them or 256, and the fill of each that is not hidden.
  const Job large = job_of(degraded, kLargestPiece, kPiecesInFlight, kSlowNet);
  const Candidate mix = plan(large).value().choice();
  ASSERT_EQ(mix.algorithm, Algorithm::kMix);
  const double shown = mix.fill_s / std::max(mix.transfer_s, mix.reduction_s),
               hidden = large.outstanding * mix.beside;
  const auto per_piece = [&](double pieces) { return 1 + shown * (1 + (pieces - 1) / hidden) / pieces; };
  EXPECT_NEAR(per_byte(256 << 20) / per_byte(1 << 30), per_piece(64) / per_piece(256), 1e-6);
  const uint64_t piece = piece_of_operation(64 << 20);
  const Job job = job_of(degraded, planned_bytes(piece), outstanding_for(planned_bytes(piece)), kSlowNet);
  const Candidate best = plan(job).value().choice();
  // A mix. The first piece fills the pipeline in sight of everybody.
  const double fill = best.fill_s * (1 - 1.0 / (job.outstanding * job.beside));
  EXPECT_NEAR(advise(degraded, 64 << 20, kSlowNet).engine_seconds, 64 * best.seconds + fill, 1e-9);
}

// One fill and one piece are all that an AllReduce takes besides the bytes of its pieces.
TEST(Advise, an_unequal_ring_counts_one_fill) {
  const Speeds speeds{.bytes_per_second = 2.5e9, .rails = 8};
  std::vector<double> degraded(10, 1);
  degraded[1] = 0.875;
  const Candidate best = plan(job_of(degraded, kLargestPiece, kPiecesInFlight, speeds)).value().choice();
  ASSERT_EQ(best.algorithm, Algorithm::kUnequalRing);
  const double each = std::max(best.transfer_s, best.steps_s);
  for (const uint64_t pieces : {64, 256}) {
    const EngineAdvice advice = advise(degraded, pieces * kLargestPiece, speeds);
    EXPECT_TRUE(advice.engine) << advice.why;
    EXPECT_NEAR(advice.engine_seconds, double(pieces + 1) * each + best.fill_s, 1e-9);
  }
}

TEST(Advise, an_operation_in_one_piece_counts_it_once) {
  const Speeds speeds{.bytes_per_second = 1.25e9, .rails = 4};
  const std::vector<double> degraded{1, 0.5, 1, 1};
  const uint64_t bytes = 512 << 10, piece = piece_of_operation(bytes);
  ASSERT_EQ((bytes + piece - 1) / piece, 1u);
  const Candidate best =
      plan(job_of(degraded, planned_bytes(piece), outstanding_for(planned_bytes(piece)), speeds))
          .value()
          .choice();
  EXPECT_NEAR(advise(degraded, bytes, speeds).engine_seconds,
              std::max({best.transfer_s, best.reduction_s, best.steps_s * best.beside}) + best.fill_s, 1e-9);
}

// By default, with NICs of 2.5 Gbit/s, four of each of four nodes (results/README.md, mode 3).
TEST(Advise, the_engine_begins_where_it_gains_more_than_the_margin) {
  const Speeds speeds{.bytes_per_second = 1.25e9, .margin = 0, .rails = 4};
  const auto least_mib = [&](double lost) {
    uint64_t mib = 1;
    while (mib < 1024 && !advise(std::vector<double>{1, 1 - lost, 1, 1}, mib << 20, speeds).engine) mib *= 2;
    return mib;
  };
  EXPECT_EQ(least_mib(0.25), 8u);
  EXPECT_EQ(least_mib(0.5), 4u);
}

TEST(Advise, large_operations_of_two_degraded_nodes_of_four_gain_more_than_the_margin) {
  const std::vector<double> degraded{1, 0.75, 1, 0.75};
  const auto taken = [&](double margin, uint64_t bytes) {
    return advise(degraded, bytes, {.bytes_per_second = 1.25e9, .margin = margin, .rails = 4}).engine;
  };
  for (uint64_t mib = 1; mib <= 4096; mib *= 2) {
    EXPECT_EQ(taken(1.08, mib << 20), mib >= 64) << mib;
    EXPECT_EQ(taken(1, mib << 20), mib >= 16) << mib;
  }
}

// For four nodes the lower bound itself, 0.90 of NCCL's ring, is within a margin of 108.
TEST(Advise, one_nic_of_eight_is_taken_where_predictions_are_exact) {
  for (const size_t nodes : {4, 6, 8}) {
    std::vector<double> degraded(nodes, 1.0);
    degraded[1] = 0.875;
    if (nodes == 4) {
      EXPECT_GT(allreduce_bound(degraded), 0.97 / 1.08 * ring_volume(nodes) / 0.875);
    }
    const auto taken = [&](double bytes_per_second, double margin, uint64_t bytes) {
      return advise(degraded, bytes,
                    {.bytes_per_second = bytes_per_second, .margin = margin, .rails = 8})
          .engine;
    };
    for (uint64_t mib = 1; mib <= 4096; mib *= 4) {
      EXPECT_FALSE(taken(2.5e9, 1.08, mib << 20)) << mib;
      EXPECT_EQ(taken(2.5e9, 0, mib << 20), mib >= 256) << nodes << " nodes, " << mib;
      EXPECT_FALSE(taken(10e9, 0, mib << 20)) << nodes << " nodes, NICs of 10 Gbit/s, " << mib;
    }
  }
}

TEST(Advise, one_degraded_node_needs_no_margin_where_latencies_are_short) {
  const auto margin = [](const std::vector<double>& capacities, uint64_t piece, double bytes_per_second) {
    return margin_of(capacities, piece, {.bytes_per_second = bytes_per_second});
  };
  const std::vector<double> one{1, 0.75, 1}, two{1, 0.75, 0.75};
  // 80 us carry 400 KB at 5 GB/s.
  EXPECT_EQ(margin(one, 4'000'100, 5e9), 1);
  EXPECT_EQ(margin(one, 3'999'900, 5e9), 1.08);
  EXPECT_EQ(margin(one, 4'000'100, 5.01e9), 1.08);
  EXPECT_EQ(margin(two, 4'000'100, 5e9), 1.08);
}

// What predictions for several leaves leave out counts where the plan has them.
TEST(Advise, several_degraded_nodes_are_taken_to_need_more_where_they_are_leaves) {
  const auto ask = [](const std::vector<double>& capacities, uint32_t rails) {
    return advise(capacities, 64 << 20, {.bytes_per_second = 1.25e9, .margin = 1, .rails = rails});
  };
  const EngineAdvice one_owner = ask({1, 0.5, 0.5}, 4);  // of lost NICs that are not known
  EXPECT_NEAR(one_owner.engine_seconds, 1.45 * one_owner.predicted_seconds, 1e-9);
  EXPECT_FALSE(one_owner.engine);
  EXPECT_NE(one_owner.why.find("45 % for several degraded nodes"), std::string::npos) << one_owner.why;
  const EngineAdvice one_leaf = ask({1, 0.875, 0.875, 0.875, 0.5}, 8);
  EXPECT_NEAR(one_leaf.engine_seconds, 1.12 * one_leaf.predicted_seconds, 1e-9);
  EXPECT_TRUE(one_leaf.engine) << one_leaf.why;
  const EngineAdvice slight = ask({1, 0.75, 1, 0.75}, 4);
  EXPECT_EQ(slight.engine_seconds, slight.predicted_seconds);
}

TEST(Advise, the_trace_calls_schedules_what_the_planner_calls_them) {
  for (size_t i = 0; i + 1 < trace::kPlannedAlgorithms; ++i)
    EXPECT_EQ(trace::name(traced_as(Algorithm(i))), name(Algorithm(i)));
  EXPECT_EQ(size_t(Algorithm::kDirect) + 2, trace::kPlannedAlgorithms);
}

// It has more channels than any other, and over several NICs it takes longer than simulated ports show.
TEST(Advise, groups_do_not_take_direct) {
  const std::vector<double> degraded{1, 0.5, 1, 1, 1, 1, 1, 1};
  for (const uint64_t bytes : {256ull << 10, 4ull << 20, 64ull << 20}) {
    Job job = job_of(degraded, bytes, outstanding_for(bytes), kSlowNet);
    EXPECT_FALSE(plan(job).value().candidates.back().eligible);
    job.direct = true;
    EXPECT_EQ(plan(job).value().candidates.back().eligible, job.outstanding == 1);
  }
}

// Eight NICs of which one is lost: pieces of an operation of 16 MiB are too small for anything but a ring.
TEST(Advise, a_ring_is_left_to_nccl) {
  const Speeds speeds{.bytes_per_second = 2.5e9, .rails = 8};
  const std::vector<double> degraded{1, 0.875, 1, 1, 1, 1, 1, 1};
  const EngineAdvice small = advise(degraded, 16 << 20, speeds);
  EXPECT_FALSE(small.engine);
  EXPECT_EQ(small.why.find("ring on the host"), 0u) << small.why;
  EXPECT_NE(small.why.find("no better than NCCL's"), std::string::npos) << small.why;
  EXPECT_TRUE(advise(std::vector<double>{1, 0.875, 1, 1}, 256 << 20, speeds).engine);
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
