// SPDX-License-Identifier: Apache-2.0
// When the files of a command are checked and written: what cannot be written is refused before anything
// runs, and what has been measured is on the disk before a terminal can keep it waiting.
#include <fstream>
#include <iterator>
#include <ostream>
#include <streambuf>

#include "harness/cli/exit_codes.h"
#include "harness/cli/testing/program_fixture.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// Calls a function with all that is written, at the moment at which a stopped terminal would block.
class WatchedBuffer : public std::streambuf {
 public:
  explicit WatchedBuffer(std::function<void(std::string_view)> written) : written_(std::move(written)) {}

 private:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    written_({text, size_t(size)});
    return size;
  }
  int_type overflow(int_type next) override {
    const char letter = traits_type::to_char_type(next);
    if (!traits_type::eq_int_type(next, traits_type::eof())) written_({&letter, 1});
    return traits_type::not_eof(next);
  }

  std::function<void(std::string_view)> written_;
};

class ResultFiles : public ProgramTest {
 protected:
  /// The exit status with a terminal whose every write is told to `written`.
  int call_live(std::vector<const char*> words, std::function<void(std::string_view)> written) {
    words.insert(words.begin(), "r2bench");
    WatchedBuffer buffer(std::move(written));
    std::ostream terminal(&buffer);
    Console console{terminal, err};
    console.live = true;
    return r2bench_main(int(words.size()), words.data(), runner, console);
  }

  /// The runner of the fixture; the jobs that have ended so far.
  size_t measured = 0;
  void count_jobs() {
    runner = [this, one = runner](const Scenario& scenario, const RunOptions& options,
                                  const std::atomic<bool>& cancel) {
      RunResult result = one(scenario, options, cancel);
      ++measured;
      return result;
    };
  }
};

// The line of progress is removed when a job has ended. A stopped terminal blocked there, and a kill then
// lost the result.
TEST_F(ResultFiles, are_written_before_the_line_of_progress_is_removed) {
  count_jobs();
  std::string before_the_files;
  EXPECT_EQ(call_live({"run", "nic_down.yaml", "--no-plot", "--out", "result"},
                      [&](std::string_view text) {
                        if (measured == 1 && !fs::exists("result/result.json")) before_the_files += text;
                      }),
            0)
      << err.str();
  EXPECT_EQ(before_the_files, "");
  EXPECT_TRUE(fs::exists("result/result.json"));
}

TEST_F(ResultFiles, of_a_gate_are_written_before_anything_is_printed) {
  count_jobs();
  std::string before_the_files, all;
  const auto written = [&](std::string_view text) {
    all += text;
    size_t written_jobs = 0;
    for (const auto& entry : fs::recursive_directory_iterator("gate"))
      written_jobs += entry.path().filename() == "result.json" ? 1 : 0;
    if (written_jobs < measured) before_the_files += text;
    if (text.find("Comparison:") != text.npos && !fs::exists("gate/comparison/comparison.json"))
      before_the_files += text;
  };
  call_live(
      {"gate", "nic_down.yaml", "--reference", "seed=1", "--repeats", "2", "--jobs", "2", "--out", "gate"},
      written);
  EXPECT_EQ(measured, 4u) << err.str();
  EXPECT_NE(all.find("Comparison:"), std::string::npos) << all;
  EXPECT_EQ(before_the_files, "");
}

TEST_F(ResultFiles, of_all_scenarios_are_checked_before_the_first_runs) {
  std::string other = sample_scenario().source_text;
  other.replace(other.find("nic_down"), std::string_view("nic_down").size(), "other");
  std::ofstream("other.yaml") << other;
  fs::create_directories("result/other");
  std::ofstream("result/other/file") << "older\n";
  EXPECT_EQ(call({"run", "nic_down.yaml", "other.yaml", "--no-plot", "--out", "result"}), kExitUsage);
  EXPECT_NE(err.str().find("result/other: is not empty"), std::string::npos) << err.str();
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(entries("result"), 1u) << "no folder for the first one";
  EXPECT_EQ(content("result/other/file"), "older\n");
}

TEST_F(ResultFiles, leave_no_folder_of_a_scenario_that_was_not_run) {
  answer.modes[1].correctness.wrong_elements = 1;
  EXPECT_EQ(call({"run", "nic_down.yaml", "nic_down.yaml", "--no-plot", "--out", "result"}), 1);
  EXPECT_EQ(ran.size(), 1u);
  EXPECT_TRUE(fs::exists("result/nic_down/result.json"));
  EXPECT_FALSE(fs::exists("result/nic_down-2"));
  runner = [](const Scenario&, const RunOptions&, const std::atomic<bool>&) -> RunResult {
    throw UsageError("port 7000 is in use");
  };
  EXPECT_EQ(call({"run", "nic_down.yaml", "nic_down.yaml", "--no-plot", "--out", "new/result"}), kExitUsage);
  EXPECT_FALSE(fs::exists("new"));
}

}  // namespace
}  // namespace r2bench
