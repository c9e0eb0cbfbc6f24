// SPDX-License-Identifier: Apache-2.0
// When the files of a command are written: what has been measured is on the disk before a terminal can keep
// it waiting.
#include <ostream>
#include <streambuf>

#include "harness/cli/testing/program_fixture.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

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

}  // namespace
}  // namespace r2bench
