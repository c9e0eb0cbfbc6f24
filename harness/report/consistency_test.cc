// SPDX-License-Identifier: Apache-2.0
#include "harness/report/consistency.h"

#include <gtest/gtest.h>

#include "harness/report/testing/judged_json.h"
#include "harness/report/testing/sample_result.h"

namespace r2bench {
namespace {

class Consistency : public testing::Test {
 protected:
  std::string said() const {
    std::string text;
    for (const std::string& line : contradictions(json)) text += line + "\n";
    return text;
  }
  /// What is said once this value of mode migrate is another.
  std::string said_with(const std::string& place, const nlohmann::json& value) {
    nlohmann::json& at = json["runs"][1].at(nlohmann::json::json_pointer(place));
    const nlohmann::json before = at;
    at = value;
    const std::string text = said();
    at = before;
    return text;
  }
  nlohmann::json json = judged_json(sample_scenario(), sample_result());
};

TEST_F(Consistency, what_r2bench_writes_agrees_with_itself) {
  EXPECT_EQ(said(), "");
  json = judged_json(sample_scenario(), sample_result_with_dropped_faults());
  EXPECT_EQ(said(), "");
}

TEST_F(Consistency, counts_are_those_of_the_list_of_faults) {
  EXPECT_EQ(said_with("/metrics/faults/witnessed", 7),
            "migrate: faults.witnessed is 7, but 1 follows from its list of faults\n"
            "migrate: metrics.values.fault_witness is 1.0, but 7.0 follows from /metrics/faults/witnessed\n");
  EXPECT_EQ(said_with("/metrics/faults/unrecovered", 1),
            "migrate: faults.unrecovered is 1, but 0 follows from its list of faults\n"
            "migrate: recovery.recover_ms.n is 1, but 2 follows from its list of faults\n");
  EXPECT_EQ(said_with("/metrics/recovery/detected_by", {{"watchdog", 1}}),
            "migrate: recovery.detected_by is {\"watchdog\":1}, but {\"event\":1} follows from its list of "
            "faults\n");
  EXPECT_NE(said_with("/faults/0/sampled", false).find("faults.sampled is 1, but 0 follows"),
            std::string::npos);
  json = judged_json(sample_scenario(), sample_result_with_dropped_faults());
  json["runs"][1]["faults"].erase(0);
  EXPECT_NE(said().find("faults.dropped is {\"no operation was open\":1"), std::string::npos) << said();
}

TEST_F(Consistency, percentiles_and_the_floor_are_those_of_the_faults) {
  EXPECT_EQ(said_with("/metrics/recovery/blackout_ms/max", 0.5),
            "migrate: recovery.blackout_ms.max is 0.5, but 9.8 follows from its list of faults\n"
            "migrate: metrics.values.blackout_ms.max is 9.8, but 0.5 follows from "
            "/metrics/recovery/blackout_ms/max\n");
  const std::string slow = said_with("/faults/0/recover_ms", 9999);
  for (const char* each : {"p50", "p95", "p99", "max"})
    EXPECT_NE(slow.find(std::string("recovery.recover_ms.") + each + " is 12.3, but 9999.0 follows"),
              std::string::npos)
        << slow;
  EXPECT_EQ(said_with("/metrics/recovery/floor_ms", 500),
            "migrate: recovery.floor_ms is 500.0, but 4.19 follows from its list of faults\n");
}

TEST_F(Consistency, a_time_is_the_distance_of_its_marks) {
  EXPECT_NE(
      said_with("/faults/0/detected_at_ms", 1).find("detect_ms of port_down node1/nic0 is 0.412, but 0.0"),
      std::string::npos);
}

TEST_F(Consistency, nothing_comes_before_its_fault) {
  EXPECT_EQ(said_with("/faults/0/recovered_at_ms", -50),
            "migrate: recovered_at_ms of port_down node1/nic0 is before its t0\n");
}

TEST_F(Consistency, exact_is_what_has_no_wrong_element) {
  EXPECT_EQ(said_with("/metrics/correctness/exact", false),
            "migrate: correctness.exact is false, but true follows from its counts\n");
  EXPECT_NE(said_with("/metrics/correctness/lost", 3).find("correctness.exact is true, but false"),
            std::string::npos);
  EXPECT_EQ(said_with("/row/wrong", 3),
            "migrate: row.wrong is 3, but 0 follows from correctness.wrong_elements\n");
}

TEST_F(Consistency, a_metric_has_one_value) {
  EXPECT_EQ(said_with("/metrics/values/migrations", 9),
            "migrate: metrics.values.migrations is 9.0, but 2.0 follows from /metrics/recovery/migrations\n");
}

TEST_F(Consistency, totals_are_those_of_the_rounds) {
  json["runs"][1]["rounds"] = {{{"migrations", 2}, {"failbacks", 0}}, {{"migrations", 1}, {"failbacks", 0}}};
  EXPECT_EQ(said(), "migrate: recovery.migrations is 2, but 3 follows from its rounds\n");
  json["runs"][1]["rounds"][0]["migrations"] = 1;
  EXPECT_EQ(said(), "migrate: metrics.values.migrations is 2.0, but 1.0 follows from its rounds\n")
      << "with repeats the most of a round";
}

TEST_F(Consistency, rates_are_those_beside_them) {
  EXPECT_EQ(said_with("/metrics/throughput/settled", false),
            "migrate: throughput.settled is false, but true follows from its rounds\n");
  EXPECT_NE(said_with("/metrics/throughput/retained", 0.77).find("throughput.retained is 0.77, but 0.506"),
            std::string::npos);
  EXPECT_NE(said_with("/metrics/throughput/rounds/settled", 2).find("2 settled of 1 measured of 1"),
            std::string::npos);
  json["runs"][1]["metrics"]["restored"]["before_ms"] = 10;
  json["runs"][1]["metrics"]["restored"]["after_ms"] = 20;
  json["runs"][1]["metrics"]["restored"]["ratio"] = 1;
  EXPECT_EQ(said(), "migrate: restored.ratio is 1.0, but 0.5 follows from the times beside it\n");
}

TEST_F(Consistency, a_job_ended_well_only_if_its_ranks_did) {
  json["runs"][1]["ranks"] = json["runs"][0]["ranks"];
  EXPECT_EQ(said(), "migrate: its outcome is ok, but that of node1/rank0 is error\n");
}

TEST_F(Consistency, iterations_are_those_whose_times_are_listed) {
  json["runs"][1]["iteration_ms"].erase(0);
  EXPECT_EQ(said(), "migrate: row.iterations is 200, but 199 follows from iteration_ms\n");
}

TEST_F(Consistency, bounds_allow_the_runners_wake_up_latency_up_to_its_cap) {
  EXPECT_EQ(said_with("/metrics/recovery/wakeup_p99_ms", 50),
            "migrate: recovery.wakeup_p99_ms is 50.0, but 0.84 follows from wakeup_ms and its cap\n");
  json["runs"][1]["wakeup_ms"]["p99"] = 50;
  EXPECT_EQ(said(), "migrate: recovery.wakeup_p99_ms is 0.84, but 2.0 follows from wakeup_ms and its cap\n");
}

TEST_F(Consistency, a_rate_of_no_round_was_not_measured) {
  for (const char* count : {"measured", "settled"})
    json["runs"][1]["metrics"]["throughput"]["rounds"][count] = 0;
  json["runs"][1]["metrics"]["throughput"]["settled"] = false;
  EXPECT_NE(said().find("but no round was measured"), std::string::npos) << said();
}

TEST_F(Consistency, virtual_nics_are_no_hardware) {
  json["evidence"] = "hardware";
  EXPECT_EQ(said(), "evidence: is hardware, but the fabric is vhca\n");
}

TEST_F(Consistency, a_mode_has_one_run) {
  json["runs"].push_back(json["runs"][1]);
  EXPECT_EQ(said(), "migrate: there are several runs of this mode\n");
}

}  // namespace
}  // namespace r2bench
