// SPDX-License-Identifier: Apache-2.0
#include "harness/report/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <vector>

#include "harness/report/whole_file.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

class FileLocks : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "file_lock_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
  }
  void TearDown() override { fs::remove_all(root); }
  size_t entries() const {
    return size_t(std::distance(fs::directory_iterator(root), fs::directory_iterator()));
  }
  static int number_in(const fs::path& file) {
    int number = 0;
    std::ifstream(file) >> number;
    return number;
  }
  fs::path root;
};

TEST_F(FileLocks, no_change_of_many_processes_is_lost) {
  const fs::path file = root / "number";
  constexpr int kProcesses = 8, kChanges = 50;
  std::vector<pid_t> processes;
  for (int process = 0; process < kProcesses; ++process) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    for (int change = 0; change < kChanges; ++change) {
      const FileLock lock(file);
      const int before = number_in(file);
      write_whole(file, [&](std::ostream& out) { out << before + 1; });
    }
    ::_exit(0);
  }
  for (const pid_t process : processes) {
    int status = 0;
    ASSERT_EQ(::waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(number_in(file), kProcesses * kChanges);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileLocks, that_of_a_process_that_was_killed_is_free) {
  int begun[2];
  ASSERT_EQ(::pipe(begun), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const FileLock lock(root / "file");
    if (::write(begun[1], "", 1) == 1) ::pause();
    ::_exit(1);
  }
  char none = 0;
  ASSERT_EQ(::read(begun[0], &none, 1), 1);
  ::close(begun[0]);
  ::close(begun[1]);
  ::kill(holder, SIGKILL);
  ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);
  EXPECT_EQ(entries(), 1u);
  { const FileLock lock(root / "file"); }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(FileLocks, there_is_none_where_it_cannot_be_made) {
  const FileLock lock(root / "none" / "file");
  EXPECT_EQ(entries(), 0u);
}

}  // namespace
}  // namespace r2bench
