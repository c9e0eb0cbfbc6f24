// SPDX-License-Identifier: Apache-2.0
// `compare`, `gate` and `export` from the command line to the exit status, with a runner that answers from
// memory.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <utility>

#include "harness/cli/commands.h"
#include "harness/cli/comparison_output.h"
#include "harness/judge/fault_times.h"
#include "harness/measure/testing/sample_result.h"
#include "harness/report/file_lock.h"
#include "harness/report/testing/without_locks.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

class Gate : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "compare_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    before = fs::current_path();
    fs::current_path(root);
    ::setenv("R2BENCH_SHARE", R2BENCH_SOURCE_DIR, 1);
    ::unsetenv("GITHUB_ACTIONS");
    ::unsetenv("GITHUB_STEP_SUMMARY");
    std::ofstream("job.yaml") << sample_scenario().source_text;
  }
  void TearDown() override {
    ::unsetenv("GITHUB_ACTIONS");
    ::unsetenv("GITHUB_STEP_SUMMARY");
    fs::current_path(before);
    fs::remove_all(root);
  }

  int call(std::vector<const char*> words) {
    words.insert(words.begin(), "r2bench");
    out.str("");
    err.str("");
    return r2bench_main(static_cast<int>(words.size()), words.data(), runner, Console{out, err});
  }
  std::string content(const fs::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  /// A run of `repeats` faults whose recovery takes `later_ms` longer than usual.
  RunResult run(const Scenario& scenario, size_t repeats) {
    RunResult result = sample_result();
    result.scenario = scenario.name;
    result.repeats = repeats;  // the gate divides them over its jobs
    std::erase_if(result.modes, [&](const ModeResult& mode) { return !scenario.find_mode(mode.mode); });
    std::normal_distribution<double> noise(0, 0.3);
    const auto plugin = scenario.workload.plugin;
    for (ModeResult& mode : result.modes) {
      if (mode.mode != "migrate") continue;
      const FaultSample one = mode.faults[0];
      mode.faults.clear();
      for (size_t i = 0; i < repeats; ++i) {
        FaultSample fault = one;
        fault.repetition = i;
        const double more = std::abs(noise(random)) + (plugin == "r2ccl" ? later_ms : 0);
        fault.detect_ms = *one.detect_ms + more;
        fault.recover_ms = *one.recover_ms + more;
        fault.switch_ms = 1 + more;
        for (auto* time : {&fault.detected_ns, &fault.migrated_ns, &fault.recovered_ns})
          **time += uint64_t(more * 1e6);
        mode.faults.push_back(fault);
      }
      summarize(mode);
    }
    return result;
  }

  static void summarize(ModeResult& mode) {
    summarize_times(mode);
    mode.faults_planned = mode.faults_witnessed = mode.faults_sampled = mode.faults.size();
    mode.detected_by = {{"event", mode.faults.size()}};
    mode.rounds.resize(mode.faults.size());
    mode.rounds[0] = mode.counts;
  }

  fs::path root, before;
  std::ostringstream out, err;
  double later_ms = 0;
  std::mt19937_64 random{5};
  std::vector<std::string> plugins;
  std::function<void()> meanwhile;  ///< happens once, during a run
  Runner runner = [this](const Scenario& scenario, const RunOptions& options, const std::atomic<bool>&) {
    plugins.push_back(scenario.workload.plugin);
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    return run(scenario, options.repeats);
  };
};

TEST_F(Gate, passes_what_is_no_worse_and_fails_what_is) {
  ASSERT_EQ(call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--runs", "3",
                  "--save-baseline", "base/b.json", "--quiet"}),
            0)
      << err.str();
  EXPECT_EQ(call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--baseline", "base/b.json",
                  "--quiet"}),
            0)
      << out.str() << err.str();
  EXPECT_NE(out.str().find("Comparison: pass"), std::string::npos) << out.str();
  later_ms = 2;
  EXPECT_EQ(call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--baseline", "base/b.json",
                  "--quiet", "--out", "result"}),
            1)
      << out.str() << err.str();
  EXPECT_NE(out.str().find("worse: nic_down migrate switch_ms"), std::string::npos) << out.str();
  for (const char* file : {"comparison.txt", "comparison.md", "comparison.json", "junit.xml",
                           "benchmark_smaller.json", "benchmark_bigger.json", "bencher.json"})
    EXPECT_TRUE(fs::exists(fs::path("result/comparison") / file)) << file;
  EXPECT_EQ(call({"validate", "result/nic_down-run0-job0/result.json"}), 0) << err.str();
}

TEST_F(Gate, runs_a_reference_by_turns) {
  later_ms = 2;
  EXPECT_EQ(call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--jobs", "2", "--reference",
                  "workload.plugin=older", "--quiet"}),
            1)
      << out.str() << err.str();
  EXPECT_EQ(plugins, (std::vector<std::string>{"r2ccl", "older", "older", "r2ccl"}));
  later_ms = 0;
  EXPECT_EQ(call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--reference",
                  "workload.plugin=older", "--quiet"}),
            0)
      << out.str() << err.str();
}

TEST_F(Gate, a_reference_and_a_comparison_may_differ_in_their_environment_where_it_is_said) {
  EXPECT_EQ(call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--reference",
                  "env.R2CC_FAILBACK_MS=5", "--quiet"}),
            0)
      << out.str() << err.str();
  for (const char* setting : {"env.R2CC_FAILBACK_MS=5", "env.R2CC_FAILBACK_MS=6"})
    ASSERT_EQ(call({"run", "job.yaml", "--modes", "migrate", "--repeats", "24", "--no-plot", "--quiet",
                    "--set", setting, "--out", setting}),
              0);
  EXPECT_EQ(call({"compare", "env.R2CC_FAILBACK_MS=5", "env.R2CC_FAILBACK_MS=6"}), 2) << out.str();
  EXPECT_NE(out.str().find("env is R2CC_FAILBACK_MS=5 before and R2CC_FAILBACK_MS=6 now"), std::string::npos)
      << out.str();
  EXPECT_EQ(call({"compare", "env.R2CC_FAILBACK_MS=5", "env.R2CC_FAILBACK_MS=6", "--may-differ",
                  "env.R2CC_FAILBACK_MS"}),
            0)
      << out.str();
}

TEST_F(Gate, what_cannot_be_told_is_unknown) {
  ASSERT_EQ(call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--save-baseline", "b.json",
                  "--quiet"}),
            0);
  EXPECT_EQ(
      call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "3", "--baseline", "b.json", "--quiet"}),
      2)
      << out.str();
  EXPECT_EQ(call({"gate", "job.yaml", "--repeats", "24", "--baseline", "b.json", "--quiet"}), 2) << out.str();
  EXPECT_NE(out.str().find("baseline: not in b.json"), std::string::npos) << out.str();
}

TEST_F(Gate, needs_something_to_compare_with) {
  EXPECT_EQ(call({"gate", "job.yaml"}), 64);
  EXPECT_NE(err.str().find("gate needs something to compare with"), std::string::npos) << err.str();
  EXPECT_EQ(call({"gate", "job.yaml", "--baseline", "none.json"}), 64);
  EXPECT_NE(err.str().find("none.json: no such file"), std::string::npos) << err.str();
  EXPECT_EQ(call({"gate", "job.yaml", "--save-baseline", "b.json", "--baseline", "b.json"}), 64);
  EXPECT_EQ(call({"gate", "job.yaml", "--append", "--reference", "a=b"}), 64);
  EXPECT_EQ(call({"gate", "job.yaml", "--reference", "nothing"}), 64);
  EXPECT_TRUE(plugins.empty());
}

// A gate takes long. What is added is what is in the file when it is written, not when the gate began.
TEST_F(Gate, adds_to_what_another_gate_has_saved_meanwhile) {
  const auto save = [&](const char* scenario, const char* file) {
    return call({"gate", scenario, "--modes", "migrate", "--repeats", "24", "--save-baseline", file,
                 "--append", "--quiet"});
  };
  std::string text = content("job.yaml");
  text.replace(text.find("nic_down"), 8, "other");
  std::ofstream("other.yaml") << text;
  ASSERT_EQ(save("other.yaml", "other.json"), 0) << err.str();
  ASSERT_EQ(save("job.yaml", "alone.json"), 0) << err.str();
  meanwhile = [] { fs::copy_file("other.json", "b.json"); };
  ASSERT_EQ(save("job.yaml", "b.json"), 0) << err.str();
  EXPECT_EQ(content("alone.json").find("other"), std::string::npos);
  EXPECT_NE(content("b.json").find("other"), std::string::npos) << "the other gate's samples are lost";
  EXPECT_NE(content("b.json").find("nic_down"), std::string::npos);
}

// The two of a matrix of CI jobs end at the same time, on one file.
TEST_F(Gate, keeps_the_samples_of_all_that_append_at_the_same_time) {
  constexpr int kProcesses = 2, kChanges = 40;
  std::ostringstream ignored;
  const Console console{ignored, ignored};
  std::vector<pid_t> processes;
  for (int process = 0; process < kProcesses; ++process) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    for (int change = 0; change < kChanges; ++change) {
      SampleSet one;
      one.modes.emplace_back().scenario = "nic_down" + std::to_string(process) + "-" + std::to_string(change);
      one.modes[0].mode = "migrate";
      one.modes[0].outcomes = {"ok"};
      if (!save_baseline("b.json", one, true, console, nullptr)) ::_exit(1);
    }
    ::_exit(0);
  }
  for (const pid_t process : processes) {
    int status = 0;
    ASSERT_EQ(::waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_baseline("b.json").modes.size(), size_t(kProcesses * kChanges));
}

/// The user presses Ctrl-C when this is printed.
class InterruptedAt : public std::stringbuf {
 public:
  explicit InterruptedAt(std::string text) : text_(std::move(text)) {}

 private:
  int sync() override {
    if (str().find(text_) != std::string::npos && !std::exchange(pressed_, true)) ::raise(SIGINT);
    return 0;
  }
  std::string text_;
  bool pressed_ = false;
};

TEST_F(Gate, that_waits_for_another_one_to_write_says_so_and_can_be_interrupted) {
  std::ofstream("b.json") << "{}";
  auto other = std::make_unique<FileLock>("b.json");
  InterruptedAt printed("waiting for another r2bench that writes b.json\n");
  std::ostream messages(&printed);
  const std::vector<const char*> words{"r2bench", "gate",      "job.yaml", "--modes",
                                       "migrate", "--repeats", "24",       "--save-baseline",
                                       "b.json",  "--quiet",   "--out",    "result"};
  EXPECT_EQ(r2bench_main(int(words.size()), words.data(), runner, Console{out, messages}), 130)
      << printed.str();
  EXPECT_EQ(content("b.json"), "{}");
  EXPECT_NE(printed.str().find("b.json: not written; the results are in result/"), std::string::npos)
      << printed.str();
  EXPECT_TRUE(fs::exists("result/nic_down-run0-job0/result.json"));
  EXPECT_TRUE(fs::exists(".b.json.r2bench-lock")) << "it has taken the lock away from its holder";
}

TEST_F(Gate, that_saves_where_the_file_system_knows_no_locks_says_so) {
  const std::vector<const char*> words{"gate", "job.yaml",        "--modes", "migrate", "--repeats",
                                       "24",   "--save-baseline", "b.json",  "--quiet", "--out"};
  for (const auto& [which, warned] :
       {std::pair{testing_support::Locks::kNoFlock, false}, std::pair{testing_support::Locks::kNone, true}}) {
    const testing_support::OnlyLocks only(which);
    std::vector<const char*> call_words = words;
    call_words.push_back(warned ? "second" : "first");
    ASSERT_EQ(call(call_words), 0) << err.str();
    EXPECT_EQ(err.str().find("r2bench: b.json: its file system gives no locks") != std::string::npos, warned)
        << err.str();
    EXPECT_TRUE(fs::remove("b.json"));
  }
}

// They would share samples and folders: the second was refused when the first had been measured.
TEST_F(Gate, refuses_two_scenarios_of_one_name_before_it_measures) {
  EXPECT_EQ(call({"gate", "job.yaml", "job.yaml", "--modes", "migrate", "--save-baseline", "b.json"}), 64);
  EXPECT_NE(err.str().find("two of the scenarios have the name nic_down"), std::string::npos) << err.str();
  EXPECT_TRUE(plugins.empty());
}

TEST_F(Gate, inside_github_actions_it_annotates_and_writes_the_summary) {
  ASSERT_EQ(call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--save-baseline", "b.json",
                  "--quiet"}),
            0);
  ::setenv("GITHUB_ACTIONS", "true", 1);
  ::setenv("GITHUB_STEP_SUMMARY", "summary.md", 1);
  std::ofstream("summary.md") << "before\n";
  later_ms = 3;
  EXPECT_EQ(
      call({"gate", "job.yaml", "--modes", "migrate", "--repeats", "24", "--baseline", "b.json", "--quiet"}),
      1);
  EXPECT_NE(out.str().find("\n::error title=r2bench regression::nic_down migrate"), std::string::npos)
      << out.str();
  EXPECT_EQ(content("summary.md").find("before\n### r2bench: fail"), 0u) << content("summary.md");
}

TEST_F(Gate, compares_results_and_folders_of_results) {
  ASSERT_EQ(call({"run", "job.yaml", "--modes", "migrate", "--repeats", "24", "--no-plot", "--quiet", "--out",
                  "a"}),
            0);
  ASSERT_EQ(call({"run", "job.yaml", "--modes", "migrate", "--repeats", "24", "--no-plot", "--quiet", "--out",
                  "b/1"}),
            0);
  ASSERT_EQ(call({"run", "job.yaml", "--modes", "migrate", "--repeats", "24", "--no-plot", "--quiet", "--out",
                  "b/2"}),
            0);
  EXPECT_EQ(call({"compare", "a", "b"}), 0) << out.str() << err.str();
  EXPECT_EQ(call({"compare", "a/result.json", "b/1/result.json", "--out", "c"}), 0) << out.str() << err.str();
  EXPECT_TRUE(fs::exists("c/junit.xml"));
  EXPECT_EQ(call({"compare", "--save-baseline", "b.json", "b"}), 0) << err.str();
  later_ms = 4;
  ASSERT_EQ(call({"run", "job.yaml", "--modes", "migrate", "--repeats", "24", "--no-plot", "--quiet", "--out",
                  "slow"}),
            0);
  EXPECT_EQ(call({"compare", "--baseline", "b.json", "slow"}), 1) << out.str();
  fs::copy_file("b.json", "kept.json");  // the comparison is with what it had before it is replaced
  EXPECT_EQ(call({"compare", "--baseline", "kept.json", "--save-baseline", "kept.json", "slow"}), 1)
      << out.str();
  EXPECT_NE(content("kept.json"), content("b.json"));
  EXPECT_EQ(call({"compare", "--baseline", "b.json", "slow", "--floor", "detect_ms=9", "--floor",
                  "recover_ms=9", "--floor", "switch_ms=9"}),
            0)
      << out.str();
  EXPECT_EQ(call({"compare", "a"}), 64);
  EXPECT_EQ(call({"compare", "a", "b", "slow"}), 64);
  EXPECT_EQ(call({"compare", "a", "b", "--floor", "x"}), 64);
}

TEST_F(Gate, a_baseline_without_samples_is_told_and_later_unknown) {
  ASSERT_EQ(call({"run", "job.yaml", "--modes", "migrate", "--repeats", "24", "--no-plot", "--quiet", "--out",
                  "good"}),
            0);
  nlohmann::json result = nlohmann::json::parse(content("good/result.json"));
  for (nlohmann::json& fault : result["runs"][0]["faults"]) fault["sampled"] = false;
  std::ofstream("missed.json") << result;
  EXPECT_EQ(call({"compare", "--save-baseline", "b.json", "missed.json"}), 0);
  EXPECT_NE(err.str().find("b.json has no sample of nic_down, migrate, recover_ms"), std::string::npos)
      << err.str();
  EXPECT_EQ(call({"compare", "--baseline", "b.json", "good"}), 2) << out.str();
}

TEST_F(Gate, bad_input_is_64_and_names_the_file) {
  std::ofstream("foreign.json") << R"({"version": 3, "results": []})";
  std::ofstream("cut.json") << "{\n \"schema_version\": 2,\n \"runs\": [";
  std::ofstream("empty.json") << "";
  std::ofstream("old.json") << R"({"schema_version": 1, "runs": []})";
  fs::create_directory("folder");
  ASSERT_EQ(call({"run", "job.yaml", "--modes", "migrate", "--no-plot", "--quiet", "--out", "good"}), 0);
  for (const auto& [file, why] : std::vector<std::pair<const char*, const char*>>{
           {"foreign.json", "foreign.json: is JSON, but no result"},
           {"cut.json", "cut.json:3:10: was cut off"},
           {"empty.json", "empty.json: is empty"},
           {"old.json", "old.json: schema_version 1"},
           {"folder", "folder: is a folder without a result.json"},
           {"none.json", "none.json: no such file"}}) {
    EXPECT_EQ(call({"compare", "good", file}), 64) << file;
    EXPECT_NE(err.str().find(why), std::string::npos) << err.str();
    EXPECT_EQ(call({"compare", file, "good"}), 64) << file;
    EXPECT_EQ(call({"export", "--format", "nccl-tests", file}), 64) << file;
    EXPECT_EQ(call({"compare", "--baseline", file, "good"}), 64) << file;
    EXPECT_NE(err.str().find(file), std::string::npos) << err.str();
  }
  EXPECT_EQ(call({"compare", "--baseline", "foreign.json", "good"}), 64);
  EXPECT_NE(err.str().find("no baseline: it has no 'baseline_version'"), std::string::npos) << err.str();
  EXPECT_EQ(call({"validate", "cut.json"}), 64);
  EXPECT_NE(err.str().find("cut.json:3:10: was cut off"), std::string::npos) << err.str();
}

TEST_F(Gate, exports_for_tools_that_read_nccl_tests) {
  ASSERT_EQ(call({"run", "job.yaml", "--no-plot", "--quiet", "--out", "good"}), 0);
  EXPECT_EQ(call({"export", "--format", "nccl-tests", "good"}), 0) << err.str();
  EXPECT_EQ(nlohmann::json::parse(out.str())["version"], 3);
  EXPECT_EQ(call({"export", "--format", "nccl-tests", "good", "--mode", "migrate", "--out", "x.json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(content("x.json"))["results"].size(), 1u);
  EXPECT_EQ(call({"export", "--format", "nccl-tests", "good", "--mode", "nothing"}), 64);
  EXPECT_EQ(call({"export", "good"}), 64);
}

}  // namespace
}  // namespace r2bench
