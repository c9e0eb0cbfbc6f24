// SPDX-License-Identifier: Apache-2.0
// How a job has to end, and what its error has to say.
#include "harness/judge/testing/verdict_fixture.h"

namespace r2bench {
namespace {

TEST_F(VerdictTest, a_job_is_expected_to_end_well_unless_told_otherwise) {
  const Judgement implied = of("migrate.outcome");
  EXPECT_TRUE(implied.implied);
  EXPECT_EQ(implied.verdict, Verdict::kPass);
  migrate().outcome = Outcome::kHang;
  EXPECT_EQ(of("migrate.outcome").verdict, Verdict::kFail);
  EXPECT_FALSE(of("baseline.outcome").implied);
}

TEST_F(VerdictTest, an_error_must_name_the_nic_of_the_fault) {
  const auto names_it = [&](const std::string& error) {  // that is node1/nic0
    baseline().error = error;
    return of("baseline.error_names_nic").verdict == Verdict::kPass;
  };
  EXPECT_TRUE(names_it("node1/rank0: vhca0: WC error 12"));
  EXPECT_TRUE(names_it("node1/nic0 failed"));
  EXPECT_TRUE(names_it("NIC failed: NIC vhca0 of node1 to NIC vhca0 of node0: retries exceeded"));
  EXPECT_TRUE(names_it("node0/rank0: NIC vhca2 of node0 to NIC vhca0 of node1: retries exceeded"));
  EXPECT_TRUE(names_it("test on channel 0 of node1/rank0 (NIC mlx5_0, to rank 0) failed"));
  EXPECT_TRUE(names_it("NIC 0 failed")) << "it does not say whose";
  EXPECT_TRUE(names_it("node0/rank0: NIC mlx5_0 of gpu-17 failed")) << "a name that the harness did not give";
  EXPECT_TRUE(names_it("node0/rank0: NIC mlx5_0 of node0b failed")) << "nor this one";

  EXPECT_FALSE(names_it("node1/rank0: vhca10: WC error 12"));
  EXPECT_FALSE(names_it("node1/rank0: vhca1: WC error 12"));
  EXPECT_FALSE(names_it("node1/rank0: failed after 10 s"));
  EXPECT_FALSE(names_it("node1/rank0: electronic 0 failed"));
  baseline().faults[0].target = "node1/nic1";
  EXPECT_TRUE(names_it("node1/rank0: vhca1: WC error 12"));
  EXPECT_FALSE(names_it("node1/rank0: vhca10: WC error 12"));
}

TEST_F(VerdictTest, the_same_nic_of_another_node_is_another_nic) {
  for (const char* error : {"node0/rank0: vhca0: WC error 12", "node0/nic0 failed",
                            "node1/rank0: NIC vhca0 of node0 to NIC vhca2 of node1: retries exceeded",
                            "test on channel 0 of node0/rank0 (NIC vhca0, from rank 1) failed",
                            "node10/rank0: vhca0: WC error 12", "node1/rank0 says: vhca0 of node10 failed"}) {
    baseline().error = error;
    EXPECT_EQ(of("baseline.error_names_nic").verdict, Verdict::kFail) << error;
  }
  baseline().faults[0].target = "*/nic0";
  EXPECT_EQ(of("baseline.error_names_nic").verdict, Verdict::kPass) << "unless the fault struck them all";
}

TEST_F(VerdictTest, an_error_may_call_a_nic_by_the_name_of_its_device) {
  baseline().devices = {{0, {"rocep65s0f0", "rocep65s0f1"}}, {1, {"mlx5_2", "mlx5_0"}}};
  const auto names_it = [&](const std::string& error) {  // that is node1/nic0
    baseline().error = error;
    return of("baseline.error_names_nic").verdict == Verdict::kPass;
  };
  EXPECT_TRUE(names_it("NIC mlx5_2 of node1 to NIC rocep65s0f0 of node0: retries exceeded"));
  EXPECT_TRUE(names_it("test on channel 0 of node1/rank0 (NIC mlx5_2, to rank 0) failed"));
  EXPECT_TRUE(names_it("node1/nic0 failed"));
  EXPECT_FALSE(names_it("NIC mlx5_0 of node1 to NIC rocep65s0f1 of node0: retries exceeded"))
      << "its number is not the NIC's";
  EXPECT_FALSE(names_it("NIC mlx5_2 of node0: retries exceeded")) << "of the other node";
  EXPECT_FALSE(names_it("NIC mlx5_21 of node1: retries exceeded"));
  EXPECT_FALSE(names_it("NIC my_mlx5_2 of node1: retries exceeded"));
  baseline().devices = {{0, {"rocep65s0f0"}}, {1, {}}};
  EXPECT_TRUE(names_it("NIC mlx5_0 of node1: retries exceeded")) << "nobody knows that node's devices";
}

TEST_F(VerdictTest, an_error_must_name_every_nic_of_a_fault_that_struck_several) {
  baseline().faults[0].target = "node1/nic[0-1]";
  baseline().error = "node0/rank0: NIC vhca0 of node1 is down";
  EXPECT_EQ(of("baseline.error_names_nic").verdict, Verdict::kFail);
  baseline().error += "; NIC vhca1 of node0 is down";
  EXPECT_EQ(of("baseline.error_names_nic").verdict, Verdict::kFail) << "of the other node";
  baseline().error += "; NIC vhca1 of node1 is down";
  EXPECT_EQ(of("baseline.error_names_nic").verdict, Verdict::kPass);
  baseline().faults[0].target = "node1/nic*";
  EXPECT_EQ(of("baseline.error_names_nic").verdict, Verdict::kFail) << "there are four";
}

TEST_F(VerdictTest, an_error_comes_in_time_and_says_what_is_expected) {
  const auto expect = [&](const char* metric, const char* wanted) {
    scenario.expectations.push_back(
        {"baseline", metric, wanted, 0, 0, parse_condition(*find_metric(metric), wanted)});
  };
  expect("error_ms", ">= 2 s");
  expect("error_says", "retry counter … on channel");
  EXPECT_EQ(of("baseline.error_ms").verdict, Verdict::kUnknown);
  EXPECT_EQ(of("baseline.error_says").verdict, Verdict::kPass);
  baseline().measured["error_ms"] = 2001;
  EXPECT_EQ(of("baseline.error_ms").verdict, Verdict::kPass);
  EXPECT_EQ(of("baseline.error_ms").got, "2001 ms");
  baseline().measured["error_ms"] = 1999;
  EXPECT_EQ(of("baseline.error_ms").verdict, Verdict::kFail);
  baseline().error = "on channel 0: retry counter exceeded";
  EXPECT_EQ(of("baseline.error_says").verdict, Verdict::kFail) << "in another order";
  EXPECT_EQ(of("baseline.error_says").detail, baseline().error);
  baseline().error = "";
  EXPECT_EQ(of("baseline.error_says").verdict, Verdict::kUnknown);
}

}  // namespace
}  // namespace r2bench
