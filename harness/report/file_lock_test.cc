// SPDX-License-Identifier: Apache-2.0
#include "harness/report/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <ostream>
#include <vector>

#include "harness/report/testing/without_locks.h"
#include "harness/report/whole_file.h"

namespace {
bool unstable_inodes = false;
}

/// In place of the C library's, for this program: as on file systems that give a file a new number at each
/// look.
extern "C" int lstat(const char* path, struct stat* status) noexcept {
  static ino_t next = ino_t(1) << 40;
  const int result = ::fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
  if (result == 0 && unstable_inodes) status->st_ino = next++;
  return result;
}

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using testing_support::Locks;
using testing_support::OnlyLocks;

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
  for (const Locks which : {Locks::kAll, Locks::kNoFlock}) {
    const OnlyLocks only(which);
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
    EXPECT_EQ(number_in(file), kProcesses * kChanges) << (which == Locks::kAll ? "" : "without flock");
    EXPECT_EQ(entries(), 1u);
    fs::remove(file);
  }
}

TEST_F(FileLocks, that_of_a_process_that_was_killed_is_free) {
  for (const Locks which : {Locks::kAll, Locks::kNoFlock}) {
    const OnlyLocks only(which);
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
}

/// Whether somebody else has the lock of `file`.
bool waits_for(const fs::path& file) {
  const std::atomic<bool> cancel = true;
  bool told = false;
  const FileLock lock(file, {[&] { told = true; }, &cancel});
  EXPECT_EQ(lock.cancelled(), told);
  return told;
}

// write_whole() follows links: what it replaces is one file, whatever its names.
TEST_F(FileLocks, are_of_the_file_behind_a_link) {
  fs::create_directory(root / "folder");
  fs::create_symlink("folder/file", root / "link");  // leads nowhere yet
  fs::create_symlink("folder", root / "same");
  for (const bool exists : {false, true}) {
    if (exists) std::ofstream(root / "folder" / "file") << 1;
    const FileLock lock(root / "link");
    EXPECT_FALSE(lock.cancelled());
    EXPECT_TRUE(fs::exists(root / "folder" / ".file.r2bench-lock"));
    EXPECT_TRUE(waits_for(root / "folder" / "file"));
    EXPECT_TRUE(waits_for(root / "same" / "file"));
    EXPECT_TRUE(waits_for(root / "link"));
    EXPECT_FALSE(waits_for(root / "folder" / "other"));
  }
  EXPECT_EQ(entries(), 3u);
}

TEST_F(FileLocks, who_waits_is_told_once_and_has_it_next) {
  std::atomic<bool> cancel = false;
  for (const Locks which : {Locks::kAll, Locks::kNoFlock}) {
    const OnlyLocks only(which);
    for (const std::atomic<bool>* const may_cancel : {&cancel, static_cast<std::atomic<bool>*>(nullptr)}) {
      auto other = std::make_unique<FileLock>(root / "file");
      int told = 0;
      const FileLock lock(root / "file", {[&] { ++told, other.reset(); }, may_cancel});
      EXPECT_EQ(told, 1);
      EXPECT_FALSE(lock.cancelled());
      EXPECT_EQ(lock.problem(), "");
      EXPECT_TRUE(waits_for(root / "file"));
    }
    EXPECT_EQ(entries(), 0u);
  }
}

TEST_F(FileLocks, one_that_cannot_be_had_says_so_and_what_to_do) {
  const OnlyLocks none(Locks::kNone);
  const FileLock lock(root / "file"), other(root / "file");
  for (const FileLock* each : {&lock, &other}) {
    EXPECT_FALSE(each->cancelled());
    EXPECT_EQ(each->problem().find(
                  (root / "file").string() +
                  ": its file system gives no locks (flock: Operation not supported; fcntl: No locks "
                  "available). If two programs change the file at the same time"),
              0u)
        << each->problem();
    EXPECT_NE(each->problem().find("choose a file on a local disk"), std::string::npos) << each->problem();
  }
}

TEST_F(FileLocks, a_wait_that_is_cancelled_leaves_the_lock_to_its_holder) {
  const FileLock lock(root / "file");
  EXPECT_TRUE(waits_for(root / "file"));
  EXPECT_TRUE(waits_for(root / "file")) << "the first one that gave up has taken the lock away";
}

// Its file can be read, and not written.
TEST_F(FileLocks, that_of_another_user_is_one) {
  const fs::path name = root / ".file.r2bench-lock";
  const int held = ::open(name.c_str(), O_CREAT | O_RDONLY | O_CLOEXEC, 0444);
  ASSERT_GE(held, 0);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  ASSERT_EQ(::chmod(root.c_str(), 0777), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    ::_exit(waits_for(root / "file") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  ::close(held);
}

// /dev/stdout is a link to a pipe or a terminal, and nobody's file stands beside that.
TEST_F(FileLocks, what_is_no_regular_file_has_none) {
  ASSERT_EQ(::mkfifo((root / "pipe").c_str(), 0666), 0);
  fs::create_symlink("pipe", root / "link");
  const FileLock pipe(root / "pipe"), link(root / "link"), null("/dev/null");
  EXPECT_EQ(entries(), 2u);
  EXPECT_FALSE(fs::exists("/dev/.null.r2bench-lock"));
}

TEST_F(FileLocks, and_parts_need_no_inode_numbers_that_stay) {
  unstable_inodes = true;
  for (int time = 0; time < 200; ++time) write_whole(root / "file", [&](std::ostream& out) { out << time; });
  {
    const FileLock lock(root / "file");
    EXPECT_TRUE(waits_for(root / "file"));
  }
  unstable_inodes = false;
  EXPECT_EQ(number_in(root / "file"), 199);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileLocks, there_is_none_where_it_cannot_be_made) {
  const FileLock lock(root / "none" / "file");
  EXPECT_EQ(entries(), 0u);
}

}  // namespace
}  // namespace r2bench
