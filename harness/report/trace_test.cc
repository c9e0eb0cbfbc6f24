// SPDX-License-Identifier: Apache-2.0
// The trace of a stored run and of made-up logs against the Trace Event Format, and against the log it is
// made of.
#include "harness/report/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace r2bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

StoredRun sample() { return load_stored_run(R2BENCH_SAMPLE_RUN, read_json_file(R2BENCH_SCHEMA)); }

std::vector<OrderedJson> of_phase(const OrderedJson& trace, const std::string& phase) {
  std::vector<OrderedJson> found;
  for (const OrderedJson& event : trace["traceEvents"])
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

std::vector<OrderedJson> named(const std::vector<OrderedJson>& events, const std::string& part) {
  std::vector<OrderedJson> found;
  for (const OrderedJson& event : events)
    if (event["name"].get<std::string>().find(part) != std::string::npos) found.push_back(event);
  return found;
}

/// What the format asks of every event, and that slices of a track nest.
void expect_well_formed(const OrderedJson& trace) {
  ASSERT_TRUE(trace.contains("traceEvents"));
  static const std::set<std::string> kPhases = {"M", "X", "i", "C", "s", "f"};
  std::map<std::pair<int, int>, std::vector<double>>
      open;                   // ends of the slices that enclose this moment, by track
  std::map<int, int> arrows;  // by id: +1 at its start, +2 at its end
  double last = 0;
  for (const OrderedJson& event : trace["traceEvents"]) {
    ASSERT_TRUE(event.contains("name") && event["name"].is_string()) << event;
    ASSERT_TRUE(event.contains("pid") && event["pid"].is_number_integer()) << event;
    ASSERT_TRUE(event.contains("tid") && event["tid"].is_number_integer()) << event;
    const std::string phase = event.value("ph", "");
    ASSERT_EQ(kPhases.count(phase), 1u) << event;
    if (phase == "M") {
      EXPECT_TRUE(event["args"].contains("name") || event["args"].contains("sort_index")) << event;
      continue;
    }
    ASSERT_TRUE(event.contains("ts") && event["ts"].is_number()) << event;
    const double ts = event["ts"];
    EXPECT_GE(ts, last) << "in order of time: " << event;
    last = ts;
    if (phase == "i") {
      EXPECT_EQ(event["s"], "t") << event;
    }
    if (phase == "C") {
      EXPECT_TRUE(event["args"].is_object() && !event["args"].empty()) << event;
    }
    if (phase == "s") arrows[event["id"].get<int>()] += 1;
    if (phase == "f") arrows[event["id"].get<int>()] += 2;
    if (phase != "X") continue;
    ASSERT_TRUE(event.contains("dur") && event["dur"].is_number()) << event;
    const double end = ts + event["dur"].get<double>();
    EXPECT_GE(event["dur"].get<double>(), 0) << event;
    auto& stack = open[{event["pid"].get<int>(), event["tid"].get<int>()}];
    while (!stack.empty() && stack.back() <= ts + 1e-6) stack.pop_back();
    if (!stack.empty()) {
      EXPECT_LE(end, stack.back() + 1e-6) << "does not nest: " << event;
    }
    stack.push_back(end);
  }
  for (const auto& [id, ends] : arrows) EXPECT_EQ(ends, 3) << "arrow " << id;
}

nlohmann::json event(const char* source, const char* name, double at_ms, int nic, int channel, uint64_t a,
                     uint64_t b, uint64_t c = 0) {
  return {{"mode", "migrate"},
          {"at_ms", at_ms},
          {"time_ns", uint64_t(5e9 + at_ms * 1e6)},
          {"source", source},
          {"event", name},
          {"text", "words"},
          {"nic", nic},
          {"channel", channel},
          {"a", a},
          {"b", b},
          {"c", c}};
}

/// The sample's mode migrate with the faults and the log given.
StoredRun made_up(nlohmann::json faults, std::vector<nlohmann::json> events) {
  StoredRun run = sample();
  run.result["runs"] = nlohmann::json::array({run.result["runs"][1]});
  const nlohmann::json one = run.result["runs"][0]["faults"][0];
  nlohmann::json all = nlohmann::json::array();
  for (const auto& fault : faults) {
    all.push_back(one);
    all.back().update(fault);
  }
  run.result["runs"][0]["faults"] = all;
  run.timeline = nullptr;
  run.events = std::move(events);
  return run;
}

TEST(Trace, a_stored_run_is_well_formed) { expect_well_formed(to_trace(sample())); }

TEST(Trace, says_where_it_is_from) {
  const OrderedJson trace = to_trace(sample());
  EXPECT_EQ(trace["otherData"]["scenario"], "ack_lost");
  EXPECT_EQ(trace["otherData"]["evidence"], "emulated");
  std::set<std::string> processes;
  for (const OrderedJson& event : of_phase(trace, "M"))
    if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
  EXPECT_EQ(processes, (std::set<std::string>{"baseline: faults and rate", "baseline: node0/rank0",
                                              "baseline: node1/rank0", "migrate: faults and rate",
                                              "migrate: node0/rank0", "migrate: node1/rank0"}));
}

TEST(Trace, each_migration_of_the_log_is_a_slice_with_its_phases) {
  const StoredRun run = sample();
  size_t fences = 0, planned = 0;
  for (const auto& event : run.events) {
    if (event["event"] != "fence_started") continue;
    ++fences;
    planned += event["c"] == 1;
  }
  ASSERT_GT(planned, 0u);
  const auto slices = of_phase(to_trace(run), "X");
  EXPECT_EQ(named(slices, "migration: leaves").size(), fences - planned);
  EXPECT_EQ(named(slices, "failback: leaves").size(), planned);
  EXPECT_EQ(named(slices, "fence").size(), fences);
  EXPECT_EQ(named(slices, "detect").size(), fences - planned);  // the faults explain each of them
}

TEST(Trace, times_are_microseconds_of_the_logs_nanoseconds) {
  const StoredRun run = sample();
  uint64_t first = UINT64_MAX;
  for (const auto& event : run.events) first = std::min(first, event["time_ns"].get<uint64_t>());
  std::vector<double> wanted;
  for (const auto& event : run.events)
    if (event["event"] == "fence_started")
      wanted.push_back(double(event["time_ns"].get<uint64_t>() - first) / 1e3);
  std::vector<double> got;
  for (const OrderedJson& slice : of_phase(to_trace(run), "X"))
    if (slice["name"] == "fence") got.push_back(slice["ts"]);
  std::sort(wanted.begin(), wanted.end());
  std::sort(got.begin(), got.end());
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-3);
}

TEST(Trace, the_detect_slice_is_as_long_as_the_result_says) {
  const StoredRun run = sample();
  const OrderedJson trace = to_trace(run);
  for (const auto& fault : run.result["runs"][1]["faults"]) {
    double least = 1e12;
    for (const OrderedJson& slice : named(of_phase(trace, "X"), "detect"))
      if (std::abs(slice["dur"].get<double>() / 1e3 - fault["detect_ms"].get<double>()) < least)
        least = std::abs(slice["dur"].get<double>() / 1e3 - fault["detect_ms"].get<double>());
    EXPECT_LT(least, 0.002) << fault["detect_ms"];
  }
}

TEST(Trace, arrows_lead_from_the_fault_to_the_migrations_that_it_explains) {
  const nlohmann::json faults = {{{"target", "node1/nic0"}, {"t0_at_ms", 10.0}, {"healed_at_ms", nullptr}}};
  const StoredRun run =
      made_up(faults, {event("node0/rank0", "path_opened", 0, 0, 3, 1, 0),
                       event("node0/rank0", "fence_started", 11, 0, 3, 1, 1),
                       event("node0/rank0", "migration_started", 11.1, 0, 3, 1, 1),
                       event("node0/rank0", "fence_started", 12, 1, 4, 1, 2),  // another NIC
                       event("node0/rank0", "fence_done", 12.5, 0, 3, 1, 500),
                       event("node0/rank0", "migration_done", 13, 1, 3, 0, 1, 2)});
  const OrderedJson trace = to_trace(run);
  expect_well_formed(trace);
  const auto starts = of_phase(trace, "s"), ends = of_phase(trace, "f");
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(starts[0]["ts"], 10'000.0);
  EXPECT_EQ(ends[0]["ts"], 11'000.0);
  const auto whole = named(of_phase(trace, "X"), "migration: leaves NIC 0 for NIC 1");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0]["ts"], 10'000.0);
  EXPECT_EQ(whole[0]["dur"], 3'000.0);
  EXPECT_EQ(whole[0]["args"]["detected by"], "completion");
  EXPECT_EQ(named(of_phase(trace, "X"), "migrate").size(), 1u);
}

// A receiver on NIC 1 leaves two paths from the same NIC of its peer: one of each channel, with the same
// number.
TEST(Trace, a_fault_explains_the_migration_of_a_cross_rail_at_both_ends) {
  const nlohmann::json faults = {{{"target", "node0/nic0"}, {"t0_at_ms", 10.0}, {"healed_at_ms", nullptr}}};
  const StoredRun run = made_up(faults, {event("node1/rank0", "path_accepted", 0, 1, 3, 1, 0),
                                         event("node1/rank0", "path_accepted", 0, 1, 4, 1, 2),
                                         event("node1/rank0", "fence_started", 11, 1, 3, 4, 1),
                                         event("node1/rank0", "fence_started", 12, 1, 4, 4, 1)});
  const OrderedJson trace = to_trace(run);
  expect_well_formed(trace);
  const auto ends = of_phase(trace, "f");
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0]["ts"], 11'000.0);
}

TEST(Trace, a_second_failure_in_the_middle_of_a_migration_still_nests) {
  const nlohmann::json faults = {{{"target", "node0/nic0"}, {"t0_at_ms", 10.0}, {"healed_at_ms", nullptr}},
                                 {{"target", "node0/nic1"}, {"t0_at_ms", 11.0}, {"healed_at_ms", nullptr}}};
  const StoredRun run = made_up(faults, {event("node0/rank0", "fence_started", 10.5, 0, 3, 1, 1),
                                         event("node0/rank0", "migration_started", 10.6, 0, 3, 1, 1),
                                         event("node0/rank0", "fence_started", 11.5, 1, 3, 2, 2),
                                         event("node0/rank0", "migration_started", 11.6, 1, 3, 2, 2),
                                         event("node0/rank0", "fence_done", 11.7, 0, 3, 1, 1200),
                                         event("node0/rank0", "migration_done", 14, 2, 3, 1, 2, 3),
                                         event("node0/rank0", "fence_started", 15, 2, 3, 3, 3),
                                         event("node0/rank0", "channel_failed", 16, 2, 3, 11, 0)});
  const OrderedJson trace = to_trace(run);
  expect_well_formed(trace);
  EXPECT_EQ(named(of_phase(trace, "X"), "migration: leaves").size(), 3u);
  std::set<std::string> ended;
  for (const OrderedJson& slice : named(of_phase(trace, "X"), "migration: leaves"))
    ended.insert(slice["args"]["ended"]);
  EXPECT_EQ(ended, (std::set<std::string>{"traffic on NIC 2", "channel_failed"}));
}

TEST(Trace, a_strike_behind_the_end_of_the_log_is_left_out) {
  const nlohmann::json faults = {{{"target", "node0/nic0"}, {"t0_at_ms", 1.0}, {"healed_at_ms", nullptr}},
                                 {{"target", "node0/nic0"}, {"t0_at_ms", 99.0}, {"healed_at_ms", nullptr}}};
  const OrderedJson trace = to_trace(made_up(faults, {event("node0/rank0", "channel_up", 5, 0, 0, 2, 0)}));
  expect_well_formed(trace);
  size_t strikes = 0;
  for (const OrderedJson& slice : of_phase(trace, "X")) strikes += slice["cat"] == "fault";
  EXPECT_EQ(strikes, 1u);
}

TEST(Trace, a_nic_that_is_down_or_gray_is_a_slice) {
  const StoredRun run = made_up(
      nlohmann::json::array(),
      {event("node0/rank0", "nic_down", 1, 0, 0, 2, 0), event("node0/rank0", "nic_gray", 2, 1, 0, 400, 0),
       event("node0/rank0", "nic_up", 5, 0, 0, 2, 0), event("node0/rank0", "channel_up", 9, 0, 0, 2, 0)});
  const OrderedJson trace = to_trace(run);
  expect_well_formed(trace);
  ASSERT_EQ(named(of_phase(trace, "X"), "port down").size(), 1u);
  EXPECT_EQ(named(of_phase(trace, "X"), "port down")[0]["dur"], 4'000.0);
  ASSERT_EQ(named(of_phase(trace, "X"), "gray").size(), 1u);
  EXPECT_EQ(named(of_phase(trace, "X"), "gray")[0]["dur"], 7'000.0);  // to the end of the log
}

TEST(Trace, a_run_without_an_event_log_is_refused) {
  StoredRun run = sample();
  run.has_events = false;
  EXPECT_THROW(to_trace(run), InputError);
}

}  // namespace
}  // namespace r2bench
