// SPDX-License-Identifier: Apache-2.0
// The program from its command line to its exit status, in a folder of its own, with a runner that answers
// from memory.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/cli/commands.h"
#include "harness/measure/testing/sample_result.h"

namespace r2bench {

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "cli_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    before = std::filesystem::current_path();
    std::filesystem::current_path(root);
    ::setenv("R2BENCH_SHARE", R2BENCH_SOURCE_DIR, 1);
    std::ofstream("nic_down.yaml") << sample_scenario().source_text;
  }
  void TearDown() override {
    std::filesystem::current_path(before);
    std::filesystem::remove_all(root);
  }

  int call(std::vector<const char*> words) {
    words.insert(words.begin(), "r2bench");
    out.str("");
    err.str("");
    return r2bench_main(static_cast<int>(words.size()), words.data(), runner, Console{out, err});
  }
  size_t entries(const std::filesystem::path& path) const {
    if (!std::filesystem::exists(path)) return 0;
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()));
  }

  std::filesystem::path root, before;
  std::ostringstream out, err;
  std::vector<Scenario> ran;
  RunResult answer = sample_result();
  Runner runner = [this](const Scenario& scenario, const RunOptions& options, const std::atomic<bool>&) {
    EXPECT_TRUE(std::filesystem::is_directory(options.out_dir));
    ran.push_back(scenario);
    Progress progress;
    progress.mode = "baseline";
    if (options.progress) options.progress(progress);
    RunResult result = answer;
    result.scenario = scenario.name;
    return result;
  };
};

}  // namespace r2bench
