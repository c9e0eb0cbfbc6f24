// SPDX-License-Identifier: Apache-2.0
#include "harness/report/consistency.h"

#include <gtest/gtest.h>

#include <sstream>

#include "harness/measure/statistics.h"
#include "harness/measure/testing/sample_result.h"
#include "harness/report/testing/judged_json.h"
#include "harness/report/testing/sample_pairs.h"

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

TEST_F(Consistency, doubts_have_their_kinds_and_unknown_expectations_theirs) {
  json["doubt_kinds"] = {"cut_short"};
  EXPECT_EQ(said(),
            "doubt_kinds: are 1, but there are 0 doubts\n"
            "doubt_kinds: says cut_short, but no run was\n");
  json["doubt_kinds"] = nlohmann::json::array();
  expectation_of(json, "migrate.outcome")["doubt"] = "cut_short";
  EXPECT_EQ(said(),
            "migrate.outcome: its doubt is \"cut_short\", but ok is true\n"
            "migrate.outcome: its doubt is cut_short, but the run's outcome is \"ok\"\n");
  RunResult cut = sample_result();
  cut.cancelled = true;
  cut.modes[1].outcome = Outcome::kCancelled;
  json = judged_json(sample_scenario(), cut);
  EXPECT_EQ(json["doubt_kinds"], nlohmann::json({"cut_short", "cut_short"}));
  EXPECT_EQ(expectation_of(json, "migrate.recover_ms.max")["doubt"], "cut_short");
  EXPECT_EQ(said(), "");
  json.erase("doubt_kinds");
  for (nlohmann::json& each : json["expectations"]) each.erase("doubt");
  EXPECT_EQ(said(), "") << "an older result";
}

TEST_F(Consistency, a_rank_is_killed_by_a_signal_unless_nobody_knows_its_end) {
  nlohmann::json& rank = json["runs"][0]["ranks"][0];
  rank["outcome"] = "killed";
  rank["signal"] = 0;
  EXPECT_NE(said().find(" is killed, but its signal is 0"), std::string::npos) << said();
  rank["error"] = kEndUnknown;
  EXPECT_EQ(said().find(" is killed, but its signal is 0"), std::string::npos) << said();
}

TEST_F(Consistency, counts_are_those_of_the_list_of_faults) {
  EXPECT_EQ(said_with("/metrics/faults/witnessed", 7),
            "migrate: faults.witnessed is 7, but 1 follows from its list of faults\n"
            "migrate: metrics.values.fault_witness is 1.0, but 7.0 follows from the rest of the run\n");
  const std::string never = said_with("/metrics/faults/unrecovered", 1);
  EXPECT_TRUE(
      never.starts_with("migrate: faults.unrecovered is 1, but 0 follows from its list of faults\n"
                        "migrate: recovery.recover_ms.n is 1, but 2 follows from its list of faults\n"))
      << never;
  EXPECT_EQ(said_with("/metrics/recovery/detected_by", {{"watchdog", 1}}),
            "migrate: recovery.detected_by is {\"watchdog\":1}, but {\"event\":1} follows from its list of "
            "faults\n"
            "migrate: metrics.values.detected_by is \"event\", but \"watchdog\" follows from the rest of the "
            "run\n");
  EXPECT_NE(said_with("/faults/0/sampled", false).find("faults.sampled is 1, but 0 follows"),
            std::string::npos);
  json = judged_json(sample_scenario(), sample_result_with_dropped_faults());
  json["runs"][1]["faults"].erase(0);
  EXPECT_NE(said().find("faults.dropped is {\"no operation was open\":1"), std::string::npos) << said();
}

TEST_F(Consistency, a_sample_without_a_rate_before_it_is_not_unrecovered) {
  RunResult result = sample_result();
  FaultSample& sample = result.modes[1].faults[0];
  sample.why_no_rate_before = "it struck too early";
  sample.recovered_ns.reset();
  sample.recover_ms.reset();
  sample.before_gbps = 0;
  result.modes[1].recover_ms = {};
  result.modes[1].throughput = {
      .limit = sample.limit, .rounds = 1, .bound_ms = 250, .why_not = "nothing was delivered before"};
  json = judged_json(sample_scenario(), result);
  EXPECT_EQ(said(), "");
  EXPECT_EQ(json["runs"][1]["faults"][0]["why_no_rate_before"], "it struck too early");
  EXPECT_NE(said_with("/metrics/faults/unrecovered", 1).find("faults.unrecovered is 1, but 0 follows"),
            std::string::npos);
  EXPECT_NE(said_with("/faults/0/before_gbps", 3).find("why_no_rate_before of port_down node1/nic0 is"),
            std::string::npos);
}

TEST_F(Consistency, percentiles_and_the_floor_are_those_of_the_faults) {
  EXPECT_EQ(said_with("/metrics/recovery/blackout_ms/max", 0.5),
            "migrate: recovery.blackout_ms.max is 0.5, but a lower percentile is 9.8\n"
            "migrate: recovery.blackout_ms.max is 0.5, but 9.8 follows from its list of faults\n"
            "migrate: metrics.values.blackout_ms.max is 9.8, but 0.5 follows from the rest of the run\n");
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
            "migrate: recovered_at_ms of port_down node1/nic0 is before its t0\n"
            "migrate: recover_ms of port_down node1/nic0 is 12.3, but -2090.5 is the time from t0_at_ms to "
            "recovered_at_ms\n");
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
            "migrate: metrics.values.migrations is 9.0, but 2.0 follows from the rest of the run\n");
}

TEST_F(Consistency, totals_are_those_of_the_rounds) {
  json["runs"][1]["rounds"] = {{{"migrations", 2}, {"failbacks", 0}}, {{"migrations", 1}, {"failbacks", 0}}};
  json["repeats"] = 2;
  EXPECT_EQ(said(), "migrate: recovery.migrations is 2, but 3 follows from its rounds\n");
  json["runs"][1]["rounds"][0]["migrations"] = 1;
  EXPECT_EQ(said(), "migrate: metrics.values.migrations is 2.0, but 1.0 follows from the rest of the run\n")
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
  json["runs"][1]["metrics"]["restored"]["why_not"] = nullptr;
  json["runs"][1]["metrics"]["values"]["restored"] = 1;
  for (const char* side : {"operations_before", "operations_after"})
    json["runs"][1]["metrics"]["restored"][side] = 60;
  EXPECT_EQ(said(), "migrate: restored.ratio is 1.0, but 0.5 follows from the times beside it\n");
}

TEST_F(Consistency, a_job_ended_well_only_if_its_ranks_did) {
  json["runs"][1]["ranks"] = json["runs"][0]["ranks"];
  EXPECT_TRUE(said().starts_with("migrate: its outcome is ok, but that of node1/rank0 is error\n")) << said();
}

TEST_F(Consistency, two_transports_used_no_more_cpu_than_their_rank) {
  nlohmann::json& rank = json["runs"][0]["ranks"][0];
  rank["cpu_s"] = 3.0;
  rank["cpu_by_side_s"] = {1.0, 2.0};
  EXPECT_EQ(said().find("the sides"), std::string::npos) << said();
  rank["cpu_by_side_s"] = {1.5, 2.0};
  EXPECT_NE(said().find("used 3.500000 s of CPU, more than its cpu_s"), std::string::npos) << said();
  rank["cpu_by_side_s"] = {1.0};
  EXPECT_NE(said().find("has 1 numbers, and there are two sides"), std::string::npos) << said();
}

TEST_F(Consistency, what_two_sides_show_follows_from_their_operations) {
  json = judged_json(sample_beside_scenario(), sample_beside_result());
  const auto of_sides = [&](const std::string& text) {
    std::string found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.find("beside") != std::string::npos) found += line + "\n";
    return found;
  };
  ASSERT_EQ(of_sides(said()), "");
  for (const char* place : {"/metrics/beside/ratio", "/metrics/values/beside_ratio"})
    EXPECT_NE(of_sides(said_with(place, 1.01)).find("ratio is 1.01, but 1.02"), std::string::npos)
        << place << ": " << of_sides(said_with(place, 1.01));
  EXPECT_NE(of_sides(said_with("/metrics/beside/ratio", nullptr)).find("beside.ratio is null, but 1.0"),
            std::string::npos);
  EXPECT_EQ(of_sides(said_with("/metrics/beside/operations", 192)),
            "migrate: beside.operations is 192, but 128 follows from iteration_ms\n");
  EXPECT_EQ(of_sides(said_with("/metrics/beside/why_not", "no reason")),
            "migrate: beside.why_not is \"no reason\", but null follows from iteration_ms\n");
  EXPECT_NE(of_sides(said_with("/metrics/beside/copies", 5))
                .find("beside.copies is 5, but the job's 192 operations are no multiple of 160"),
            std::string::npos);
  // Before the fault it was another.
  EXPECT_NE(of_sides(said_with("/faults/0/t0_at_ms", nullptr)).find("beside.operations is 128, but 192"),
            std::string::npos)
      << of_sides(said_with("/faults/0/t0_at_ms", nullptr));
}

TEST_F(Consistency, iterations_are_those_whose_times_are_listed) {
  json["runs"][1]["iteration_ms"].erase(0);
  EXPECT_TRUE(said().starts_with("migrate: row.iterations is 200, but 199 follows from iteration_ms\n"))
      << said();
}

TEST_F(Consistency, with_repeats_a_job_goes_on_until_all_faults_have_struck) {
  json["workload"]["iters"] = 150;
  EXPECT_EQ(said(), "migrate: row.iterations is 200, but 150 follows from the workload\n");
  json["repeats"] = 2;
  EXPECT_EQ(said(), "");
  json["workload"]["iters"] = 250;
  EXPECT_EQ(said(), "migrate: row.iterations is 200, but 250 follows from the workload\n");
}

TEST_F(Consistency, bounds_allow_the_runners_wake_up_latency_up_to_its_cap) {
  EXPECT_EQ(said_with("/metrics/recovery/wakeup_p99_ms", 50),
            "migrate: recovery.wakeup_p99_ms is 50.0, but 0.84 follows from wakeup_ms and its cap\n");
  json["runs"][1]["wakeup_ms"]["p99"] = json["runs"][1]["wakeup_ms"]["max"] = 50;
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

TEST_F(Consistency, an_expectation_is_listed_once) {
  const nlohmann::json correctness = expectation_of(json, "migrate.correctness");
  json["expectations"].push_back(correctness);
  EXPECT_EQ(said(),
            "migrate.correctness: 'exact' of line " + correctness["line"].dump() + " is listed twice\n");
  json["expectations"].back()["line"] = 1;
  EXPECT_EQ(said(), "") << "another line may say the same";
}

TEST_F(Consistency, bandwidth_follows_from_bytes_time_ranks_and_operation) {
  EXPECT_EQ(said_with("/row/busbw_gbytes", 4.9),
            "migrate: row.busbw_gbytes is 4.9, but 0.49056187134502927 follows from bytes, time, ranks and "
            "operation\n");
  EXPECT_EQ(said_with("/row/algbw_gbytes", 4.9),
            "migrate: row.algbw_gbytes is 4.9, but 0.49056187134502927 follows from bytes and time\n");
  EXPECT_EQ(said_with("/row/size_bytes", 1 << 20),
            "migrate: row.size_bytes is 1048576, but 16777216 follows from the workload\n");
  EXPECT_NE(said_with("/row/time_us", 3420).find("row.time_us is 3420.0, but 34200"), std::string::npos);
  EXPECT_EQ(said_with("/row/type", "double"),
            "migrate: row.type is \"double\", but \"float\" follows from the workload\n");
  json["workload"]["op"] = "allgather";
  json["fabric"]["ranks_per_node"] = 2;
  EXPECT_NE(said().find("row.busbw_gbytes is 0.49056187134502927, but 0.36792140350877195 follows"),
            std::string::npos)
      << said();
}

TEST_F(Consistency, a_run_lasts_as_long_as_its_operations) {
  EXPECT_EQ(said_with("/duration_s", 6.1), "migrate: duration_s is 6.1, but its operations took 6.84 s\n");
}

TEST_F(Consistency, rates_of_the_ports_follow_from_the_fabric) {
  EXPECT_EQ(said_with("/metrics/throughput/ports_gbps", 80),
            "migrate: throughput.ports_gbps is 80.0, but 8.0 follows from the fabric\n");
}

TEST_F(Consistency, counts_of_balance_may_be_missing) {
  json = judged_json(sample_scenario(), sample_result_with_dropped_faults());
  ASSERT_FALSE(json["runs"][1]["rounds"].empty());
  json["runs"][1]["metrics"].erase("balance");
  EXPECT_EQ(said(), "");
}

TEST_F(Consistency, a_round_has_the_limit_and_the_rate_before_of_its_last_fault) {
  EXPECT_NE(said_with("/metrics/throughput/limit", 0.25)
                .find("throughput.limit is 0.25, but 0.5 follows from the last faults of its rounds"),
            std::string::npos);
  EXPECT_NE(said_with("/faults/0/before_gbps", 3.9)
                .find("throughput.before_gbps is 7.8, but 3.9 follows from the last faults of its rounds"),
            std::string::npos);
  EXPECT_EQ(said_with("/metrics/throughput/bound_ms", 900),
            "migrate: throughput.bound_ms is 900.0, but 250.0 follows from the last faults of its rounds\n");
}

class PairsConsistency : public Consistency {
 protected:
  PairsConsistency() { json = judged_json(sample_pairs_scenario(), sample_pairs_result()); }
};

TEST_F(PairsConsistency, what_r2bench_writes_agrees_with_itself) { EXPECT_EQ(said(), ""); }

TEST_F(PairsConsistency, losses_follow_from_the_jobs) {
  for (const char* key : {"mean", "upper95", "busbw_loss_mean", "busbw_loss_upper95", "cpu_loss_mean",
                          "cpu_loss_upper95", "each/1"}) {
    const std::string place = std::string("/metrics/overhead_pct/") + key;
    std::string what = std::string("overhead_pct.") + key;
    if (what.ends_with("/1")) what = "overhead_pct.each[1]";
    EXPECT_NE(said_with(place, 0.1).find("migrate: " + what + " is 0.1, but "), std::string::npos)
        << said_with(place, 0.1);
  }
  EXPECT_NE(said_with("/metrics/overhead_pct/pairs", 40)
                .find("overhead_pct.pairs is 40, but 3 follows from the jobs"),
            std::string::npos);
  EXPECT_NE(
      said_with("/metrics/overhead_pct/against", "migrate")
          .find("overhead_pct.against is \"migrate\", but \"baseline\" follows from the order of the runs"),
      std::string::npos);
}

TEST_F(PairsConsistency, losses_of_older_results_are_means_of_the_ratios) {
  const auto said_loss = [&]() -> nlohmann::json& { return json["runs"][1]["metrics"]["overhead_pct"]; };
  EXPECT_EQ(said_loss()["mean_of"], "log_ratios");
  said_loss().erase("mean_of");
  EXPECT_NE(said().find("migrate: overhead_pct.mean is "), std::string::npos) << said();

  RunResult result = sample_pairs_result();
  Overhead& overhead = result.overheads[0];
  std::vector<double> with, without(overhead.each_pct.size(), 1.0);
  for (const double each : overhead.each_pct) with.push_back(1 + each / 100);
  Overhead older = paired_overhead(with, without, PairMean::kRatios);
  add_cpu_loss(older, {1.05, 1.06, 1.07}, without);
  older.mode = overhead.mode;
  older.against = overhead.against;
  overhead = older;
  json = judged_json(sample_pairs_scenario(), result);
  said_loss().erase("mean_of");
  EXPECT_EQ(said(), "");
}

TEST_F(PairsConsistency, a_job_has_the_time_of_its_operations_and_the_bandwidth_of_its_time) {
  json["jobs"][2]["busbw_gbytes"] = 2;
  EXPECT_NE(said().find("baseline: busbw_gbytes of job 2 is 2.0, but "), std::string::npos) << said();
  json = judged_json(sample_pairs_scenario(), sample_pairs_result());
  json["jobs"][2]["time_us"] = 20'000;
  EXPECT_NE(said().find("baseline: time_us of job 2 is 20000.0, but 51000.0 follows from iteration_ms"),
            std::string::npos)
      << said();
}

TEST_F(PairsConsistency, cpu_time_is_pooled) {
  EXPECT_NE(said_with("/metrics/cpu/s_per_gb", 1).find("migrate: cpu.s_per_gb is 1.0, but "),
            std::string::npos);
  EXPECT_NE(said_with("/metrics/cpu/seconds", 1).find("migrate: cpu.s_per_gb is "), std::string::npos);
  EXPECT_NE(
      said_with("/metrics/cpu/gbytes", 1).find("migrate: cpu.gbytes is 1.0, but bytes, ranks and operations"),
      std::string::npos);
}

TEST_F(PairsConsistency, no_job_is_missing) {
  json["jobs"].erase(5);
  EXPECT_NE(said().find("migrate: 2 jobs of it are listed, and pairs is 3"), std::string::npos) << said();
  json["cancelled"] = true;
  EXPECT_EQ(said().find("jobs of it are listed"), std::string::npos) << said();
}

}  // namespace
}  // namespace r2bench
