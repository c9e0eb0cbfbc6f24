// SPDX-License-Identifier: Apache-2.0
// Jobs whose ranks have two instances of a net plugin, which take turns.
#include <algorithm>
#include <cmath>

#include "harness/judge/beside.h"
#include "harness/run/testing/run_fixture.h"
#include "harness/scenario/load.h"
#include "harness/scenario/turns.h"

namespace r2bench {
namespace {

class BesideJob : public RunTest {
 protected:
  void load(const std::string& text) {
    scenario_ = parse_scenarios("beside.yaml", "version: 1\nname: beside\n" + text)[0];
  }
  std::string log(const ModeResult& mode, int rank) const {
    std::ifstream file(out_ + "/logs/" + mode.mode + "-rank" + std::to_string(rank) + ".log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::set<std::string> shared_memory() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path());
    return names;
  }
  static void expect_cpu_of_both_sides(const ModeResult& mode) {
    for (const RankResult& rank : mode.ranks) {
      ASSERT_EQ(rank.cpu_by_side_s.size(), 2u) << rank.label;
      for (const double side : rank.cpu_by_side_s) EXPECT_GT(side, 0) << rank.label;
    }
  }
};

TEST_F(BesideJob, balance_beside_migrate_goes_on_without_a_nic_and_leaves_nothing_behind) {
  load(R"(
fabric: {nodes: 2, nics_per_node: 2, nic_rate: 1 Gbit/s}
workload: {bytes: 4 MiB, iters: 64, warmup: 2}
env: {NCCL_DEBUG: INFO}
modes: [{mode: balance, beside: migrate}]
faults: [{at: {iter: 16}, target: node1/nic0, kind: port_down}]
)");
  options_.fabric = "vhca";
  const auto before = shared_memory();
  const ModeResult mode = run();
  expect_exact(mode, 2, 66, 1 << 20);
  EXPECT_EQ(mode.row.iterations, 64u);
  EXPECT_EQ(mode.faults_witnessed, 1u) << "the NIC was lost";
  EXPECT_GT(mode.count("migrations"), 0u);
  EXPECT_FALSE(mode.cpu.known()) << "deliveries of the other side are not seen";
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = log(mode, rank);
    for (const char* of : {"NET/R2CCL: mode balance, 2 NICs", "NET/R2CCL: mode migrate, 2 NICs"})
      EXPECT_NE(text.find(of), std::string::npos) << "rank " << rank << " has no '" << of << "'\n" << text;
  }
  expect_cpu_of_both_sides(mode);
  EXPECT_EQ(mode.settings.at("beside"), "migrate");
  EXPECT_EQ(mode.settings.at("R2CC_MODE"), "2");
  ASSERT_TRUE(mode.beside);
  EXPECT_EQ(mode.beside->against, "migrate");
  const SidesCompared sides = compare_sides(mode, 64);
  ASSERT_TRUE(sides.ratio) << sides.why_not;
  EXPECT_GT(*sides.ratio, 0.3);  // the lost NIC limits both sides in the same way
  EXPECT_LT(*sides.ratio, 3);
  EXPECT_GE(sides.operations, 16u);
  EXPECT_LE(sides.operations, 48u);
  EXPECT_EQ(shared_memory(), before);
}

TEST_F(BesideJob, each_side_may_have_several_communicators) {
  load(R"(
fabric: {nodes: 2, nics_per_node: 2, nic_rate: 1 Gbit/s}
workload: {bytes: 64 KiB, iters: 128, warmup: 4, copies: 2}
env: {NCCL_DEBUG: INFO}
modes: [{mode: balance, beside: {mode: baseline, env: {R2CC_PROBE_MS: 777}}}]
)");
  options_.fabric = "vhca";
  const ModeResult mode = run();
  expect_exact(mode, 2, 132, 1 << 14);
  expect_cpu_of_both_sides(mode);
  ASSERT_TRUE(mode.beside);
  EXPECT_EQ(mode.beside->copies, 2u);
  EXPECT_EQ(compare_sides(mode, 128).operations, 128u);
  for (const char* of : {"NET/R2CCL: mode balance", "NET/R2CCL: mode baseline"})
    EXPECT_NE(log(mode, 0).find(of), std::string::npos) << log(mode, 0);
}

TEST_F(BesideJob, the_other_side_may_have_another_plugin) {
  load(std::string("workload: {bytes: 64 KiB, iters: 64, warmup: 4}\nmodes: [{mode: baseline, plugin: ") +
       TESTNET_PLUGIN + ", beside: {mode: baseline, plugin: " + STANDIN_NCCL + "}}]\n");
  scenario_.workload.plugin = "nonexistent";  // nobody's
  const ModeResult mode = run();
  expect_exact(mode, 2, 68, 1 << 14);
  expect_cpu_of_both_sides(mode);
  ASSERT_TRUE(mode.beside);
  EXPECT_EQ(mode.beside->against, "baseline of libstandin-nccl-ib.so");
  EXPECT_EQ(mode.settings.at("beside"), "baseline of libstandin-nccl-ib.so");
  EXPECT_EQ(compare_sides(mode, 64).operations, 64u);
}

/// The other side's plugin has its own environment, and the times of its operations are those of its turns.
TEST_F(BesideJob, only_the_other_sides_operations_are_slow_where_its_plugin_is) {
  for (const int copies : {1, 2})
    for (const bool other_is_slow : {true, false}) {
      SCOPED_TRACE(std::to_string(copies) + (other_is_slow ? " copies, other slow" : " copies, mode slow"));
      load("workload: {bytes: 4 KiB, iters: 64, warmup: 4, copies: " + std::to_string(copies) +
           "}\nmodes: [{mode: baseline, env: {TESTNET_SLOW: " + (other_is_slow ? "0" : "30") +
           "}, beside: {mode: baseline, env: {TESTNET_SLOW: " + (other_is_slow ? "30" : "0") + "}}}]\n");
      scenario_.workload.plugin = TESTNET_PLUGIN;
      const ModeResult mode = run();
      expect_exact(mode, 2, 68, 1 << 10);
      ASSERT_EQ(mode.iteration_ms.size(), 64u);
      const Turns turns{copies};
      double quickest = HUGE_VAL;
      for (size_t i = 0; i < 64; ++i) {
        if ((turns.side(i) == 1) == other_is_slow)
          EXPECT_GE(mode.iteration_ms[i], 30) << "operation " << i;
        else
          quickest = std::min(quickest, mode.iteration_ms[i]);
      }
      EXPECT_LT(quickest, 30);
      const SidesCompared sides = compare_sides(mode, 64);
      ASSERT_TRUE(sides.ratio) << sides.why_not;
      EXPECT_EQ(sides.operations, 64u);
      if (other_is_slow)
        EXPECT_LT(*sides.ratio, 1);
      else
        EXPECT_GT(*sides.ratio, 1);
    }
}

TEST_F(BesideJob, a_side_that_cannot_start_is_an_error_and_no_crash) {
  for (const char* variables :
       {"TESTNET_UNSET: 1}, beside: baseline", "A: b}, beside: {mode: baseline, env: {TESTNET_UNSET: 1}}"}) {
    load(std::string("workload: {bytes: 4 KiB, iters: 64, warmup: 2}\nmodes: [{mode: baseline, env: {") +
         variables + "}]\n");
    scenario_.workload.plugin = TESTNET_PLUGIN;
    const ModeResult mode = run();
    EXPECT_EQ(mode.outcome, Outcome::kError) << variables;
    EXPECT_NE(mode.error.find("maxP2pBytes"), std::string::npos) << mode.error;
    scenario_.workload.plugin = "nonexistent";
    EXPECT_NE(run().error.find("libnccl-net-nonexistent.so"), std::string::npos);
  }
}

TEST_F(BesideJob, settings_of_the_other_side_are_checked_before_anything_starts) {
  load(
      "workload: {iters: 64}\nmodes: [{mode: balance, beside: {mode: migrate, env: {R2CC_SUSPECT_MS: "
      "x}}}]\n");
  scenario_.workload.plugin = "r2ccl";
  try {
    run();
    ADD_FAILURE() << "not refused";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("env of the other side of mode 'balance': R2CC_SUSPECT_MS='x'"),
              std::string::npos)
        << e.what();
  }
}

// The tuner reads the mode when it starts: without it each AllReduce of this size would go through CollNet.
TEST_F(BesideJob, the_other_side_has_a_tuner_of_its_own_mode) {
  for (const char* modes : {"{mode: migrate, beside: allreduce}", "{mode: allreduce, beside: migrate}"}) {
    load(std::string("fabric: {nodes: 3, nics_per_node: 2, nic_rate: 1 Gbit/s}\n"
                     "workload: {op: allreduce, bytes: 2 MiB, iters: 32, warmup: 2}\nmodes: [") +
         modes + "]\n");
    options_.fabric = "vhca";
    const ModeResult mode = run();
    EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
    EXPECT_EQ(mode.correctness.collnet_operations, 0u) << modes << ": with all NICs the ring is better";
  }
}

}  // namespace
}  // namespace r2bench
