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
