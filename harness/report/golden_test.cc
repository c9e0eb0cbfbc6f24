// SPDX-License-Identifier: Apache-2.0
// Each text format against a stored file. After a wanted change: R2BENCH_UPDATE_GOLDEN=1 report_test, and
// read the difference before it is committed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "harness/base/format.h"
#include "harness/measure/testing/sample_result.h"
#include "harness/report/events.h"
#include "harness/report/junit.h"
#include "harness/report/terminal.h"

namespace r2bench {
namespace {

void expect_golden(const std::string& file, const std::string& text) {
  const std::string path = std::string(R2BENCH_GOLDEN_DIR) + "/" + file;
  if (std::getenv("R2BENCH_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream stream(path);
  ASSERT_TRUE(stream) << path;
  std::ostringstream stored;
  stored << stream.rdbuf();
  EXPECT_EQ(text, stored.str());
}

std::string written(const Reporter& reporter, const Scenario& scenario, const RunResult& result) {
  const Judged judged = judge(scenario, result);
  std::ostringstream text;
  reporter.write({scenario, result, judged}, text);
  return text.str();
}

/// Everything that can go wrong at once.
RunResult troubled() {
  RunResult result = sample_result();
  ModeResult& migrate = result.modes[1];
  migrate.faults_witnessed = 0;
  migrate.faults_sampled = 0;
  migrate.faults[0] = {};
  migrate.faults[0].kind = "port_down";
  migrate.faults[0].target = "node1/nic0";
  migrate.detect_ms = migrate.migrate_ms = migrate.recover_ms = migrate.blackout_ms = {};
  migrate.detected_by.clear();
  migrate.correctness.wrong_elements = 3;
  migrate.row.wrong = 3;
  migrate.throughput.rounds = migrate.throughput.rounds_measured = 0;
  migrate.throughput.rounds_settled = 0;
  result.modes[0].outcome = Outcome::kHang;
  result.modes[0].error = "no progress for 15 s <&>";
  return result;
}

TEST(Golden, terminal) {
  expect_golden("pass.txt", written(TerminalReporter(), sample_scenario(), sample_result()));
}
TEST(Golden, terminal_in_trouble) {
  expect_golden("trouble.txt", written(TerminalReporter(), sample_scenario(), troubled()));
}
TEST(Golden, terminal_with_several_faults_and_pairs) {
  RunResult result = sample_result();
  ModeResult& migrate = result.modes[1];
  migrate.faults_planned = migrate.faults_witnessed = migrate.faults_sampled = 20;
  for (size_t i = 1; i < 20; ++i) {
    migrate.faults.push_back(migrate.faults[0]);
    migrate.faults.back().repetition = i;
  }
  migrate.faults.back().recover_ms = 12.3 * 3;
  for (Distribution* d :
       {&migrate.detect_ms, &migrate.migrate_ms, &migrate.recover_ms, &migrate.blackout_ms}) {
    d->n = 20;
    d->max *= 3;
  }
  migrate.throughput.rounds = migrate.throughput.rounds_measured = 20;
  migrate.throughput.rounds_settled = 20;
  result.overheads.push_back({"migrate", "baseline", 20, 0.61, 1.24, 0.6, 1.22, {}, 20, 2.5, 4.1});
  expect_golden("several.txt", written(TerminalReporter(), sample_scenario(), result));
}
TEST(Golden, terminal_with_faults_that_were_not_sampled) {
  const std::string text =
      written(TerminalReporter(), sample_scenario(), sample_result_with_dropped_faults());
  expect_golden("dropped.txt", text);
  // Whatever the stored file says.
  for (const char* line :
       {"no sample: no operation was open", "migrate: 1 not sampled: no operation was open",
        "migrate: 2 not sampled: no segment was in flight on the target",
        "migrate: 1 recovered only once healed"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
}
TEST(Terminal, says_which_rates_the_ports_did_not_limit) {
  Scenario scenario = sample_scenario();
  std::erase_if(scenario.expectations, [](const Expectation& e) { return e.metric == "retained_bw"; });
  RunResult result = sample_result();
  EXPECT_EQ(written(TerminalReporter(), scenario, result).find('*'), std::string::npos);
  result.modes[1].throughput.before_gbps = 6.7;
  const std::string text = written(TerminalReporter({false, 200}), scenario, result);
  EXPECT_NE(text.find(" 6.70*"), std::string::npos) << text;
  EXPECT_NE(text.find(" 0.506*"), std::string::npos) << text;
  EXPECT_NE(text.find("migrate: * the ports carry 8.00 Gbit/s, and before the fault 6.70 were delivered"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("Verdict: pass"), std::string::npos) << "nothing is expected of the rate";
}
TEST(Terminal, says_what_two_sides_of_a_job_show) {
  RunResult result = sample_beside_result();
  EXPECT_EQ(written(TerminalReporter(), sample_scenario(), sample_result()).find("Two sides"),
            std::string::npos);
  std::string text = written(TerminalReporter({false, 200}), sample_beside_scenario(), result);
  const size_t section = text.find("Two sides in one job");
  ASSERT_NE(section, std::string::npos) << text;
  std::istringstream words(text.substr(text.find("\n  migrate", section)));
  std::string mode, beside, copies, operations, ratio;
  words >> mode >> beside >> copies >> operations >> ratio;
  EXPECT_EQ(beside + " " + copies + " " + operations + " " + ratio, "baseline 1 128 1.0200");
  result.modes[1].outcome = Outcome::kError;
  text = written(TerminalReporter({false, 200}), sample_beside_scenario(), result);
  EXPECT_NE(text.find("  migrate: the job ended (error)"), std::string::npos) << text;
}
TEST(Terminal, says_of_how_many_rounds_that_were_measured_the_rate_settled) {
  RunResult result = sample_result();
  Throughput& rates = result.modes[1].throughput;
  rates.rounds = 7;
  rates.rounds_measured = 5;
  rates.rounds_settled = 4;
  const auto page = [&] { return written(TerminalReporter({false, 200}), sample_scenario(), result); };
  EXPECT_NE(page().find(" 4/5 "), std::string::npos) << page();
  rates.rounds_measured = rates.rounds_settled = 0;
  EXPECT_EQ(page().find("0/7"), std::string::npos) << "not measured is not unsettled: " << page();
  EXPECT_EQ(page().find("0/0"), std::string::npos) << page();
}

TEST(Terminal, says_of_which_rate_a_recovery_is_where_the_ports_did_not_limit_it) {
  const std::string note =
      "migrate: * recover counts to 90 % of this job's own rate before the fault times the limit; at the "
      "ports' full rate it may take longer";
  RunResult result = sample_result();
  const auto page = [&] { return written(TerminalReporter({false, 200}), sample_scenario(), result); };
  EXPECT_EQ(page().find("recover counts"), std::string::npos) << page();
  result.modes[1].throughput.before_gbps = 6.7;
  EXPECT_NE(page().find(" 12.3*"), std::string::npos) << page();
  EXPECT_NE(page().find(note), std::string::npos) << page();
  result.modes[1].faults_unrecovered = 1;
  EXPECT_EQ(page().find("never*"), std::string::npos) << page();
  EXPECT_EQ(page().find(note), std::string::npos) << "there is no time: " << page();
  result.modes[1].faults_unrecovered = 0;
  result.modes[1].recover_ms = {};
  EXPECT_EQ(page().find(note), std::string::npos) << "there is no time: " << page();
}
TEST(Golden, junit) {
  expect_golden("pass.xml", written(JunitReporter(), sample_scenario(), sample_result()));
}
TEST(Golden, junit_in_trouble) {
  expect_golden("trouble.xml", written(JunitReporter(), sample_scenario(), troubled()));
}
TEST(Golden, events) {
  expect_golden("events.jsonl", written(EventsReporter(), sample_scenario(), sample_result()));
}

TEST(Events, of_a_log_that_was_cut_the_last_line_says_how_many_are_left_out) {
  RunResult result = sample_result();
  result.modes.resize(1);
  const std::string whole = written(EventsReporter(), sample_scenario(), result);
  result.modes[0].events_left_out = 3;
  EXPECT_EQ(written(EventsReporter(), sample_scenario(), result),
            whole + "{\"mode\":\"" + result.modes[0].mode + "\",\"event\":\"events_left_out\",\"a\":3}\n");
}

TEST(Terminal, colours_change_nothing_but_colours) {
  std::string text = written(TerminalReporter({true, 110}), sample_scenario(), sample_result());
  for (size_t at = text.find('\033'); at != std::string::npos; at = text.find('\033')) {
    text.erase(at, text.find('m', at) - at + 1);
  }
  EXPECT_EQ(text, written(TerminalReporter(), sample_scenario(), sample_result()));
}

TEST(Format, numbers_have_three_digits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.4124), "0.412");
  EXPECT_EQ(short_number(0.9999), "1.00");
  EXPECT_EQ(short_number(12.34), "12.3");
  EXPECT_EQ(short_number(99.97), "100");
  EXPECT_EQ(short_number(54321), "54321");
  EXPECT_EQ(milliseconds(12'000), "12.0 s");
}

TEST(Format, columns_are_counted_in_characters) {
  EXPECT_EQ(width("✓ µs"), 4u);
  EXPECT_EQ(right("–", 3), "  –");
  EXPECT_EQ(cut("abcdef", 4), "abc…");
  EXPECT_EQ(cut("✓✓✓✓✓", 3), "✓✓…");
  EXPECT_EQ(cut("abc", 3), "abc");
  EXPECT_EQ(wrap("one two three", 7, 2), "one two\n  three");
}

}  // namespace
}  // namespace r2bench
