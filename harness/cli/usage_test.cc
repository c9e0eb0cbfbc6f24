// SPDX-License-Identifier: Apache-2.0
// What is told of a command line that cannot be read.
#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "harness/cli/exit_codes.h"
#include "harness/cli/testing/program_fixture.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Program = ProgramTest;

TEST_F(Program, usage_errors_are_64) {
  EXPECT_EQ(call({}), 64);
  EXPECT_EQ(call({"rnu"}), 64);
  EXPECT_EQ(call({"run"}), 64);
  EXPECT_EQ(call({"run", "nic_down.yaml", "--repeats", "0"}), 64);
  EXPECT_EQ(call({"run", "nic_down.yaml", "--modes", "migrat"}), 64);
  EXPECT_EQ(call({"run", "nic_down.yaml", "--set", "novalue"}), 64);
  EXPECT_EQ(call({"run", "nic_down.yaml", "--port", "99999"}), 64);
  EXPECT_NE(err.str().find("65535"), std::string::npos) << err.str();
  EXPECT_EQ(call({"run", "nic_down.yaml", "--colour"}), 64);
  EXPECT_EQ(call({"plot", "nothing.json"}), 64);
  EXPECT_EQ(call({"--help"}), 0);
  EXPECT_EQ(call({"--version"}), 0);
  EXPECT_NE(out.str().find("built from commit "), std::string::npos) << out.str();
  EXPECT_TRUE(ran.empty());
}

TEST_F(Program, a_seed_is_a_number_of_64_bits) {
  for (const char* seed : {"-1", "18446744073709551616", "", "1e3", "0x10", "7 "})
    for (const std::vector<const char*>& words : {std::vector<const char*>{"run", "nic_down.yaml", "--seed"},
                                                  {"explain", "nic_down", "--seed"},
                                                  {"gate", "nic_down.yaml", "--seed"},
                                                  {"matrix", "--list", "--seed"},
                                                  {"exec", "--node", "node0", "--seed"}}) {
      std::vector<const char*> all = words;
      all.push_back(seed);
      EXPECT_EQ(call(all), kExitUsage) << words[0] << " " << seed;
      EXPECT_NE(err.str().find("is no whole number of at most 64 bits"), std::string::npos) << err.str();
    }
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--seed", "18446744073709551615"}), 0) << err.str();
  ASSERT_EQ(ran.size(), 1u);
  EXPECT_EQ(ran[0].seed, UINT64_MAX);
}

TEST_F(Program, a_usage_error_names_the_command_and_an_option_that_is_near) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> wrong = {
      {{}, "r2bench: A subcommand is required\n`r2bench --help` lists the commands.\n"},
      {{"run", "nic_down.yaml", "--repeat", "5"},
       "r2bench run: The following argument was not expected: --repeat; did you mean '--repeats'?\n"
       "`r2bench run --help` lists the options.\n"},
      {{"run", "nic_down.yaml", "--repeat=5"}, "did you mean '--repeats'?"},
      {{"run", "nic_down.yaml", "--colour"}, "not expected: --colour\n"},
      {{"inject", "list", "--jsno"},
       "r2bench inject list: The following argument was not expected: --jsno; did you mean '--json'?"},
      {{"list", "--jsno", "b--r"}, "did you mean '--json'?"},
      {{"list", "b--jsno"}, "not expected: b--jsno\n"},
      {{"run"}, "r2bench run: scenario is required\n"}};
  for (const auto& [words, told] : wrong) {
    EXPECT_EQ(call(words), kExitUsage);
    EXPECT_NE(err.str().find(told), std::string::npos) << told << "\nbut:\n" << err.str();
  }
}

TEST_F(Program, an_empty_value_is_no_value) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> wrong = {
      {{"run", "nic_down.yaml", "--no-plot", "--out", ""}, "r2bench run: --out: is empty\n"},
      {{"run", "", "--no-plot"}, "r2bench run: scenario: is empty\n"},
      {{"run", "nic_down.yaml", "", "--no-plot"}, "scenario: is empty"},
      {{"gate", "nic_down.yaml", "--save-baseline", ""}, "--save-baseline: is empty"},
      {{"report", ""}, "result: is empty"},
      {{"inject", "fault", ""}, "r2bench inject"}};
  for (const auto& [words, told] : wrong) {
    EXPECT_EQ(call(words), kExitUsage) << told;
    EXPECT_NE(err.str().find(told), std::string::npos) << told << "\nbut:\n" << err.str();
  }
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(call({"doctor", "--first-day", "--run-options", "", "--out", "none"}), 1) << err.str();
}

TEST_F(Program, an_empty_entry_of_a_list_is_named) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> wrong = {
      {{"sim", "allreduce", "--capacities", "1,,1"},
       "r2bench sim: --capacities: entry 2 of '1,,1' is empty\n"},
      {{"sim", "allreduce", "--capacities", "1,1,"}, "--capacities: entry 3 of '1,1,' is empty"},
      {{"sim", "allreduce", "--capacities", ",1,1"}, "--capacities: entry 1 of ',1,1' is empty"},
      {{"sim", "allreduce", "--capacities="}, "--capacities"},
      {{"sim", "allreduce", "--capacities", "1,x,1"}, "--capacities: 'x' is no number"},
      {{"explain", "--capacities", "1,,1"}, "r2bench explain: --capacities: entry 2 of '1,,1' is empty\n"},
      {{"sim", "allreduce", "--nodes", "4", "--degraded", "0:0.5,,1:0.5"},
       "--degraded: entry 2 of '0:0.5,,1:0.5'"},
      {{"sim", "allreduce", "--nodes", "4", "--nics", "4", "--lost", "1:0,,2:1"},
       "r2bench sim: --lost: entry 2 of '1:0,,2:1' is empty\n"},
      {{"explain", "--nodes", "4", "--nics", "4", "--slow", "1:0=0.5,"},
       "r2bench explain: --slow: entry 2 of '1:0=0.5,' is empty\n"},
      {{"sim", "allreduce", "--nodes", "4", "--degraded", "0.5:0.5"}, "--degraded 0.5:0.5: write NODE:X"},
      {{"sim", "allreduce", "--degraded", "0:0.5"}, "--degraded needs --nodes"},
      {{"run", "nic_down.yaml", "--modes", "baseline,,migrate"},
       "run: --modes: entry 2 of 'baseline,,migrate' is empty"},
      {{"gate", "nic_down.yaml", "--modes", "migrate,"}, "gate: --modes: entry 2 of 'migrate,' is empty"},
      {{"run", "nic_down.yaml", "--modes="}, "--modes"},
      {{"run", "nic_down.yaml", "--launcher", "mpi", "--hosts", "a,,b"},
       "--hosts: entry 2 of 'a,,b' is empty; give hosts as HOST,HOST"},
      {{"doctor", "--cluster", "--hosts", "a,,b"}, "--hosts: entry 2 of 'a,,b' is empty"},
      {{"doctor", "--first-day", "--hosts", "a,,b"}, "--hosts: entry 2 of 'a,,b' is empty"},
      {{"conformance", "--fabric", "vhca,,rxe"}, "conformance: --fabric: entry 2 of 'vhca,,rxe' is empty"},
      {{"conformance", "--fabric", "vhca,tcp"}, "--fabric: 'tcp' is none of vhca, rxe, verbs"}};
  for (const auto& [words, told] : wrong) {
    EXPECT_EQ(call(words), kExitUsage) << told;
    EXPECT_NE(err.str().find(told), std::string::npos) << told << "\nbut:\n" << err.str();
  }
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(call({"sim", "allreduce", "--only-chosen", "--capacities", "1,0.5", "1"}), 0) << err.str();
  EXPECT_NE(out.str().find(" on 3 nodes "), std::string::npos) << out.str();
  EXPECT_EQ(call({"sim", "allreduce", "--only-chosen", "--nodes", "3", "--degraded", "1:0.5"}), 0)
      << err.str();
}

// As on a full disk: a table or a page that was cut off counted as complete.
TEST_F(Program, output_that_is_lost_is_told) {
  const auto call_with = [&](const char* file, int flags, std::vector<const char*> words) {
    words.insert(words.begin(), "r2bench");
    err.str("");
    std::ofstream stream(file);
    Console console{stream, err};
    console.descriptor = ::open(file, flags);
    EXPECT_GE(console.descriptor, 0);
    const int status = r2bench_main(int(words.size()), words.data(), runner, console);
    ::close(console.descriptor);
    return status;
  };
  EXPECT_EQ(call_with("/dev/full", O_WRONLY, {"list"}), kExitUsage);
  EXPECT_NE(err.str().find("the output is not complete"), std::string::npos) << err.str();
  EXPECT_EQ(call_with("/dev/full", O_WRONLY, {"run", "nic_down.yaml", "--no-plot"}), 0);
  EXPECT_NE(err.str().find("the output is not complete"), std::string::npos) << err.str();
  for (const std::vector<const char*>& words : {std::vector<const char*>{"run", "nic_down.yaml", "--dry-run"},
                                                {"matrix", "--list"},
                                                {"--help"},
                                                {"run", "--help"},
                                                {"--version"}}) {
    EXPECT_EQ(call_with("/dev/full", O_WRONLY, words), kExitUsage) << words[0];
    EXPECT_NE(err.str().find("the output is not complete"), std::string::npos) << err.str();
  }
  // A gate's files have been written; the programs that exec and guest run have ended with this status.
  EXPECT_EQ(call_with("/dev/full", O_WRONLY,
                      {"gate", "nic_down.yaml", "--repeats", "2", "--save-baseline", "b.json"}),
            0)
      << err.str();
  EXPECT_NE(err.str().find("the output is not complete"), std::string::npos) << err.str();
  EXPECT_TRUE(fs::exists("b.json"));
  EXPECT_EQ(call_with("/dev/null", O_WRONLY, {"list"}), 0);
  EXPECT_EQ(err.str(), "");
}

}  // namespace
}  // namespace r2bench
