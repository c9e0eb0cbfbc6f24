// SPDX-License-Identifier: Apache-2.0
// When the files of a command are checked and written: what cannot be written is refused before anything
// runs, and what has been measured is on the disk before a terminal can keep it waiting.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <ostream>
#include <streambuf>
#include <thread>

#include "harness/base/testing/eventually.h"
#include "harness/cli/console.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/resources.h"
#include "harness/cli/testing/program_fixture.h"
#include "harness/report/part_file.h"
#include "harness/report/whole_file.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

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

TEST_F(ResultFiles, of_many_scenarios_do_not_use_up_the_open_files) {
  constexpr size_t kScenarios = 60;
  std::ofstream("many.yaml") << sample_scenario().source_text << "\nmatrix: {seed: [" << [] {
    std::string seeds;
    for (size_t i = 1; i <= kScenarios; ++i) seeds += (i > 1 ? ", " : "") + std::to_string(i);
    return seeds;
  }() << "]}\n";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(STDERR_FILENO);  // the lowest number that is free
  ::close(next);
  const rlimit small{rlim_t(next) + 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  const int fresh = call({"run", "many.yaml", "--no-plot", "--quiet"});
  const std::string said = err.str();
  const int named = call({"run", "many.yaml", "--no-plot", "--quiet", "--out", "result"});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(fresh, 0) << said;
  EXPECT_EQ(named, 0) << err.str();
  EXPECT_EQ(ran.size(), 2 * kScenarios);
  EXPECT_EQ(entries("results/runs"), kScenarios);
  EXPECT_EQ(entries("result"), kScenarios);
}

// The suite takes minutes; a gate can take hours.
TEST_F(ResultFiles, that_are_written_at_the_end_are_checked_at_the_beginning) {
  EXPECT_EQ(call({"conformance", "--fabric", "vhca", "--case", "datagram", "--no-faults", "--raw",
                  "/nonexistent/x.json"}),
            kExitUsage);
  EXPECT_NE(err.str().find("/nonexistent/x.json: cannot be written: No such file or directory"),
            std::string::npos)
      << err.str();
  EXPECT_EQ(out.str(), "");
  std::ofstream("file") << "x";
  fs::create_directory("folder");
  for (const char* baseline : {"file/b.json", "file/below/b.json", "folder"}) {
    EXPECT_EQ(call({"gate", "nic_down.yaml", "--repeats", "2", "--save-baseline", baseline}), kExitUsage);
    EXPECT_NE(err.str().find(std::string(baseline) + ": cannot be written"), std::string::npos) << err.str();
  }
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(entries("."), 3u) << "nothing is left beside nic_down.yaml, file and folder";
}

// /dev/full: every write fails as on a full disk.
TEST_F(ResultFiles, that_cannot_be_written_to_their_end_leave_the_older_ones) {
  EXPECT_THROW(write_file("/dev/full", "text"), OutputError);
  write_file("/dev/null", "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  write_file("page.html", "older\n");
  fs::create_symlink("page.html", "link.html");
  write_file("link.html", "newer\n");
  EXPECT_TRUE(fs::is_symlink("link.html"));
  EXPECT_EQ(content("page.html"), "newer\n");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const Signals signals;  // SIGXFSZ is an error of write()
  const rlimit small{4, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said;
  for (const char* file : {"page.html", "new.html"}) try {
      write_file(file, "longer than four bytes\n");
    } catch (const OutputError& error) {
      said += error.what() + std::string("\n");
    }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(said,
            "page.html: cannot be written: File too large\nnew.html: cannot be written: File too large\n");
  EXPECT_EQ(content("page.html"), "newer\n");
  EXPECT_EQ(entries("."), 3u) << "nic_down.yaml, page.html and link.html";
}

TEST(WritableFile, is_left_as_it_was) {
  std::string pattern = (fs::temp_directory_path() / "writable_XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path folder = pattern;
  check_writable(folder / "new");
  EXPECT_FALSE(fs::exists(folder / "new"));
  std::ofstream(folder / "old") << "older\n";
  check_writable(folder / "old");
  EXPECT_EQ(content(folder / "old"), "older\n");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  check_writable(folder / "pipe");  // opening it would wait for a reader
  EXPECT_THROW(check_writable(folder), OutputError);
  EXPECT_THROW(check_writable(folder / "none" / "new"), OutputError);
  EXPECT_THROW(check_writable(folder / "old" / "new"), OutputError);
  fs::remove_all(folder);
}

// -o of another command, or a typing mistake, must not cost a night on real NICs.
TEST_F(ResultFiles, the_files_of_a_run_are_never_overwritten) {
  ASSERT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "a"}), 0) << err.str();
  const std::string result = content("a/result.json"), events = content("a/events.jsonl");
  fs::create_symlink("a/result.json", "link");
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{"report", "a", "-o", "a/result.json"},
        {"report", "a", "-o", "link"},
        {"trace", "a", "-o", "./a/events.jsonl"},
        {"export", "a", "--format", "nccl-tests", "--out", "a/result.json"},
        {"compare", "a", "--save-baseline", "a/result.json"},
        {"gate", "nic_down.yaml", "--save-baseline", "a/result.json"},
        {"compare", "a", "a", "--out", "a"},
        {"exec", "--node", "node0", "--plan", "nic_down.yaml", "--witness", "a/result.json", "--", "true"}}) {
    EXPECT_EQ(call(words), 64) << words[0] << words.back();
    EXPECT_NE(err.str().find(" of a run, which is never overwritten; "), std::string::npos) << err.str();
  }
  EXPECT_EQ(content("a/result.json"), result);
  EXPECT_EQ(content("a/events.jsonl"), events);
  EXPECT_EQ(ran.size(), 1u);
  EXPECT_EQ(call({"report", "a"}), 0) << err.str();
  EXPECT_EQ(call({"report", "a"}), 0) << err.str();  // its own page it replaces
  EXPECT_EQ(call({"report", "a", "-o", "events.jsonl"}), 0) << err.str();
}

/// The figure is drawn by a script that leaves half a figure and then takes long, with a process of its own.
class SlowFigure : public ResultFiles {
 protected:
  void SetUp() override {
    ResultFiles::SetUp();
    draw_with_part(".timeline.png.r2bench-part");
    setenv("R2BENCH_PYTHON", fs::absolute("python").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("R2BENCH_PYTHON");
    ResultFiles::TearDown();
  }
  /// --out is the first option of the script of one figure, and the second of that of all figures.
  static void draw_with_part(const std::string& name) {
    std::ofstream("python") << "#!/bin/sh\n"
                               "[ \"$2\" = --out ] && folder=$3 || folder=$5\n"
                               "echo half >\"$folder/"
                            << name
                            << "\"\n"
                               "sleep 20 &\n"
                               "echo $! $$ >pids.part\n"
                               "mv pids.part pids\n"
                               "wait\n";
    fs::permissions("python", fs::perms::owner_all);
  }
  static bool lives(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    return bool(stat >> number >> name >> state) && state != "Z";
  }
  /// As a user who presses Ctrl-C, or `kill`: only while the command draws, because later it would end this
  /// program.
  static std::thread user(int signal) {
    return std::thread([signal] {
      const bool draws = eventually([] { return fs::exists("pids"); });
      EXPECT_TRUE(draws);
      if (draws) ::kill(::getpid(), signal);
    });
  }
  static pid_t child_of_script() { return pids().first; }
  static pid_t script() { return pids().second; }

 private:
  static std::pair<pid_t, pid_t> pids() {
    std::ifstream stream("pids");
    std::pair<pid_t, pid_t> both{-1, -1};
    stream >> both.first >> both.second;
    return both;
  }
};

TEST_F(SlowFigure, ends_with_the_first_signal_and_leaves_no_half_figure) {
  std::thread terminates = user(SIGTERM);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(call({"run", "nic_down.yaml", "--out", "result"}), kExitSignal + SIGTERM) << err.str();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  terminates.join();
  EXPECT_FALSE(lives(script()));
  EXPECT_TRUE(eventually([] { return !lives(child_of_script()); }, 5s));  // killed, not waited for
  for (const auto& entry : fs::directory_iterator("result"))
    EXPECT_EQ(entry.path().filename().string().find("timeline.p"), std::string::npos) << entry.path();
  EXPECT_TRUE(fs::exists("result/result.json"));
  EXPECT_NE(out.str().find("Verdict: pass"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("No picture: "), std::string::npos) << out.str();
}

TEST_F(SlowFigure, of_plot_ends_with_the_first_signal_too) {
  fs::create_directory("run");
  fs::copy_file(std::string(R2BENCH_SOURCE_DIR) + "/results/reference/nic_down/result.json",
                "run/result.json");
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{"plot", "run"}, {"plot", "--all", "--results", "run", "--out", "run"}}) {
    fs::remove("pids");
    std::thread interrupts = user(SIGINT);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(call(words), kExitSignal + SIGINT) << words[1] << ": " << err.str();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << words[1];
    interrupts.join();
    EXPECT_FALSE(lives(script()));
    EXPECT_EQ(entries("run"), 1u) << words[1];
    EXPECT_NE(err.str().find("interrupted"), std::string::npos) << err.str();
  }
}

// Of two that draw into one folder, the one that is interrupted takes only its own half figures away.
TEST_F(SlowFigure, of_another_plot_in_the_same_folder_stays) {
  fs::create_directory("run");
  fs::copy_file(std::string(R2BENCH_SOURCE_DIR) + "/results/reference/nic_down/result.json",
                "run/result.json");
  std::ofstream("run/.stall.png.part") << "of another program";
  int begun[2];
  ASSERT_EQ(::pipe(begun), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const PartFile half("run/timeline.png"), another("run/stall.pdf");
    if (::write(begun[1], "", 1) == 1) ::pause();
    ::_exit(1);
  }
  char none = 0;
  ASSERT_EQ(::read(begun[0], &none, 1), 1);
  ::close(begun[0]);
  ::close(begun[1]);
  draw_with_part(".timeline.png.r2bench-part2");
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{"plot", "run"}, {"plot", "--all", "--results", "run", "--out", "run"}}) {
    fs::remove("pids");
    std::thread interrupts = user(SIGINT);
    EXPECT_EQ(call(words), kExitSignal + SIGINT) << words[1] << ": " << err.str();
    interrupts.join();
    EXPECT_TRUE(fs::exists("run/.timeline.png.r2bench-part")) << words[1];
    EXPECT_TRUE(fs::exists("run/.stall.pdf.r2bench-part")) << words[1];
    EXPECT_EQ(entries("run"), 4u) << words[1];
  }
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_F(SlowFigure, does_not_outlive_a_run_that_is_killed) {
  const pid_t child = fork();
  if (child == 0) ::_exit(call({"run", "nic_down.yaml", "--out", "result"}));
  ASSERT_TRUE(eventually([] { return fs::exists("pids"); }));
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(eventually([] { return !lives(script()); }, 10s));
  ::kill(child_of_script(), SIGKILL);
}

}  // namespace
}  // namespace r2bench
