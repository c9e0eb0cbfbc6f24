// SPDX-License-Identifier: Apache-2.0
#include "harness/report/run_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>

#include "harness/measure/testing/sample_result.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "run_folder_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
  }
  void TearDown() override { fs::remove_all(root); }
  fs::path root;
};

TEST_F(RunFolderTest, two_runs_in_one_second_have_folders_of_their_own) {
  RunFolder first = RunFolder::create_fresh(root / "runs", "nic_down");
  RunFolder second = RunFolder::create_fresh(root / "runs", "nic_down");
  EXPECT_NE(first.path(), second.path());
  EXPECT_TRUE(fs::is_directory(first.path()));
  EXPECT_TRUE(fs::is_directory(second.path()));
}

TEST_F(RunFolderTest, nothing_is_left_of_a_run_that_was_not_kept) {
  {
    RunFolder folder = RunFolder::create(root / "a" / "b" / "c");
    fs::create_directory(folder.path() / "logs");
    folder.write("x.txt", "x");
  }
  EXPECT_TRUE(fs::is_empty(root));
  {
    RunFolder folder = RunFolder::create_fresh(root / "runs", "n");
    folder.write("x.txt", "x");
  }
  EXPECT_TRUE(fs::is_empty(root));
}

TEST_F(RunFolderTest, a_kept_run_stays) {
  fs::path path;
  {
    RunFolder folder = RunFolder::create_fresh(root / "runs", "n");
    folder.write("x.txt", "x");
    folder.keep();
    path = folder.path();
  }
  EXPECT_TRUE(fs::exists(path / "x.txt"));
}

TEST_F(RunFolderTest, a_folder_that_was_there_stays_there) {
  fs::create_directory(root / "mine");
  { RunFolder folder = RunFolder::create(root / "mine"); }
  EXPECT_TRUE(fs::is_directory(root / "mine"));
}

TEST_F(RunFolderTest, an_older_result_is_never_overwritten) {
  fs::create_directory(root / "mine");
  std::ofstream(root / "mine" / "result.json") << "{}";
  EXPECT_THROW(RunFolder::create(root / "mine"), OutputError);
  EXPECT_TRUE(fs::exists(root / "mine" / "result.json"));
}

TEST_F(RunFolderTest, of_two_runs_that_want_one_folder_only_one_gets_it) {
  for (const bool there : {false, true}) {
    const fs::path path = root / (there ? "mine" : "new");
    if (there) fs::create_directory(path);
    {
      RunFolder first = RunFolder::create(path);
      try {
        RunFolder::create(path);
        FAIL() << "both write there";
      } catch (const OutputError& error) {
        EXPECT_NE(std::string(error.what()).find("another run is using this folder"), std::string::npos)
            << error.what();
      }
      first.write("x.txt", "x");
      const RunFolder moved = std::move(first);
      EXPECT_THROW(RunFolder::create(path), OutputError);
      EXPECT_TRUE(fs::exists(path / "x.txt"));
    }
    EXPECT_EQ(fs::exists(path), there);
    EXPECT_NO_THROW(RunFolder::create(path)) << "the lock is given back";
  }
}

TEST_F(RunFolderTest, an_unlocked_folder_is_taken_again_only_if_nobody_has_used_it) {
  {
    RunFolder folder = RunFolder::create(root / "a" / "mine");
    folder.unlock();
    folder.lock();
    EXPECT_THROW(RunFolder::create(root / "a" / "mine"), OutputError) << "it is locked again";
    folder.write("x.txt", "x");
    EXPECT_NO_THROW(folder.lock()) << "it is locked";
    fs::remove(root / "a" / "mine" / "x.txt");
    folder.unlock();
  }
  EXPECT_TRUE(fs::is_empty(root)) << "its turn did not come";
  for (const bool has_written : {false, true}) {
    const fs::path path = root / (has_written ? "written" : "running");
    std::optional<RunFolder> mine = RunFolder::create(path);
    mine->unlock();
    std::optional<RunFolder> other = RunFolder::create(path);
    if (has_written) {
      other->write("result.json", "{}");
      other->keep();
      other.reset();
    }
    EXPECT_THROW(mine->lock(), OutputError);
    mine.reset();
    EXPECT_TRUE(fs::is_directory(path));
    EXPECT_EQ(fs::exists(path / "result.json"), has_written);
  }
  for (const bool there : {false, true}) {
    const fs::path path = root / (there ? "there" : "new");
    if (there) fs::create_directory(path);
    RunFolder waiting = RunFolder::create(path);
    waiting.unlock();
    const RunFolder other = RunFolder::create(path);
    other.write("log", "x");
    { const RunFolder ends_before_its_turn = std::move(waiting); }
    EXPECT_TRUE(fs::exists(path / "log"));
  }
}

TEST_F(RunFolderTest, a_file_is_no_folder) {
  std::ofstream(root / "file") << "x";
  EXPECT_THROW(RunFolder::create(root / "file"), OutputError);
  EXPECT_THROW(RunFolder::create(root / "file" / "below"), OutputError);
  EXPECT_TRUE(fs::is_regular_file(root / "file"));
}

TEST_F(RunFolderTest, too_little_space_is_known_before_anything_runs) {
  // Far more than any disk has; a file system without a notion of reservation may accept it.
  try {
    RunFolder folder = RunFolder::create(root / "big", uint64_t{1} << 60);
    GTEST_SKIP() << "this file system reserves nothing";
  } catch (const OutputError& error) {
    EXPECT_NE(std::string(error.what()).find("a run needs"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(fs::is_empty(root));
}

TEST_F(RunFolderTest, a_write_that_fails_leaves_nothing_behind) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  {
    RunFolder folder = RunFolder::create(root / "run", 0);
    rlimit small = before;
    small.rlim_cur = 4096;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Scenario scenario = sample_scenario();
    const RunResult result = sample_result();
    const Judged judged = judge(scenario, result);
    EXPECT_THROW(folder.write_reports({scenario, result, judged}), OutputError);
    ::setrlimit(RLIMIT_FSIZE, &before);
  }
  EXPECT_TRUE(fs::is_empty(root));
}

TEST_F(RunFolderTest, a_folder_that_cannot_be_written_is_refused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  fs::permissions(root, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(RunFolder::create(root / "x"), OutputError);
  fs::permissions(root, fs::perms::owner_all);
}

TEST_F(RunFolderTest, every_format_is_written) {
  RunFolder folder = RunFolder::create(root / "run");
  const Scenario scenario = sample_scenario();
  const RunResult result = sample_result();
  const Judged judged = judge(scenario, result);
  for (const std::string& name : folder.write_reports({scenario, result, judged})) {
    EXPECT_GT(fs::file_size(folder.path() / name), 0u) << name;
  }
  EXPECT_TRUE(fs::exists(folder.path() / "result.json"));
}

// A run that is killed while it writes leaves a folder that no command takes for a run.
TEST_F(RunFolderTest, a_folder_with_a_result_has_everything_else_too) {
  RunFolder folder = RunFolder::create(root / "run");
  const Scenario scenario = sample_scenario();
  const RunResult result = sample_result();
  const Judged judged = judge(scenario, result);
  for (const char* name : {"report.txt", "events.jsonl", "junit.xml", "timeline.json"}) {
    fs::create_directory(folder.path() / name);  // it cannot be written
    EXPECT_THROW(folder.write_reports({scenario, result, judged}), OutputError) << name;
    EXPECT_FALSE(fs::exists(folder.path() / "result.json")) << name;
    fs::remove(folder.path() / name);
  }
}

}  // namespace
}  // namespace r2bench
