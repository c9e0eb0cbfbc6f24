// SPDX-License-Identifier: Apache-2.0
#include "harness/report/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <ostream>
#include <utility>
#include <vector>

namespace r2bench {
namespace {

namespace fs = std::filesystem;

class WholeFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "whole_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
  }
  void TearDown() override {
    fs::permissions(root, fs::perms::owner_all);
    fs::remove_all(root);
  }
  static void write(const fs::path& file, const std::string& text) {
    write_whole(file, [&](std::ostream& out) { out << text; });
  }
  /// What write() says; empty: it has written.
  static std::string refusal(const fs::path& file) {
    try {
      write(file, "newer\n");
    } catch (const OutputError& error) {
      return error.what();
    }
    return "";
  }
  static std::string check(const fs::path& file) {
    try {
      check_writable(file);
    } catch (const OutputError& error) {
      return error.what();
    }
    return "";
  }
  static std::string content(const fs::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  size_t entries() const {
    return size_t(std::distance(fs::directory_iterator(root), fs::directory_iterator()));
  }
  fs::path root;
};

/// Not root, who may write everywhere, while it lives.
struct OrdinaryUser {
  static constexpr uid_t kNobody = 65534;
  const bool was_root = ::geteuid() == 0;
  const bool is_one = !was_root || ::seteuid(kNobody) == 0;
  static void give(const fs::path& path) {
    if (::geteuid() == 0 && ::chown(path.c_str(), kNobody, gid_t(-1)) != 0) ADD_FAILURE() << path;
  }
  ~OrdinaryUser() {
    if (was_root && ::seteuid(0) != 0) std::abort();
  }
};

// `r2bench report RUN -o /dev/stdout | cat`, and -o >(wc -c).
TEST_F(WholeFile, can_be_a_pipe_that_a_descriptor_names) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string number = std::to_string(ends[1]);
  fs::create_symlink("/dev/fd/" + number, root / "link");
  std::string expected;
  for (const fs::path& file :
       {fs::path("/dev/fd/" + number), fs::path("/proc/self/fd/" + number),
        fs::path("/proc") / std::to_string(::getpid()) / "fd" / number, root / "link"}) {
    EXPECT_EQ(check(file), "") << file;
    EXPECT_EQ(refusal(file), "") << file;
    expected += "newer\n";
  }
  ::close(ends[1]);
  std::string got(100, '\0');
  got.resize(size_t(std::max<ssize_t>(::read(ends[0], got.data(), got.size()), 0)));
  EXPECT_EQ(got, expected);
  const std::string read_end = "/dev/fd/" + std::to_string(ends[0]);
  EXPECT_EQ(check(read_end), read_end + ": cannot be written: Bad file descriptor");
  EXPECT_EQ(refusal(read_end), read_end + ": cannot be written: Bad file descriptor");
  ::close(ends[0]);
}

// `r2bench report RUN -o /dev/stdout >>FILE`: the shell goes on to write to what it has opened.
TEST_F(WholeFile, is_not_replaced_under_an_open_descriptor) {
  const fs::path file = root / "file";
  std::ofstream(file) << "before\n";
  const int opened = ::open(file.c_str(), O_WRONLY | O_APPEND);
  ASSERT_GE(opened, 0);
  write("/dev/fd/" + std::to_string(opened), "page\n");
  EXPECT_EQ(::write(opened, "after\n", 6), 6);
  ::close(opened);
  EXPECT_EQ(content(file), "before\npage\nafter\n");
  EXPECT_EQ(entries(), 1u);
}

// Another process's descriptor is a link of /proc, too, but only the kernel can follow it.
TEST_F(WholeFile, is_not_replaced_under_the_descriptor_of_another_process) {
  const fs::path file = root / "file";
  std::ofstream(file) << "longer than what replaces it\n";
  const int opened = ::open(file.c_str(), O_RDWR);
  const pid_t other = ::fork();
  if (other == 0) {
    ::pause();
    ::_exit(0);
  }
  write("/proc/" + std::to_string(other) + "/fd/" + std::to_string(opened), "page\n");
  char got[64] = "";
  EXPECT_EQ(::pread(opened, got, sizeof got, 0), 5) << got;
  ::close(opened);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_F(WholeFile, is_made_where_a_link_points_to) {
  fs::create_directory(root / "results");
  fs::create_symlink("results/page.html", root / "page.html");
  EXPECT_EQ(check(root / "page.html"), "");
  EXPECT_FALSE(fs::exists(root / "results" / "page.html"));
  EXPECT_EQ(refusal(root / "page.html"), "");
  EXPECT_TRUE(fs::is_symlink(root / "page.html"));
  EXPECT_EQ(content(root / "results" / "page.html"), "newer\n");
  fs::create_symlink("round", root / "round");
  EXPECT_EQ(refusal(root / "round"),
            (root / "round").string() + ": cannot be written: " + std::strerror(ELOOP));
}

TEST_F(WholeFile, keeps_the_permissions_of_what_it_replaces) {
  std::ofstream(root / "file") << "older\n";
  fs::permissions(root / "file", fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(refusal(root / "file"), "");
  EXPECT_EQ(fs::status(root / "file").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(WholeFile, keeps_the_owner_of_what_it_replaces) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  write(root / "page.html", "older\n");
  ASSERT_EQ(::chown((root / "page.html").c_str(), 65534, 65534), 0);
  fs::permissions(root / "page.html", fs::perms::owner_read | fs::perms::owner_write);
  write(root / "page.html", "newer\n");
  struct stat now {};
  ASSERT_EQ(::stat((root / "page.html").c_str(), &now), 0);
  EXPECT_EQ(now.st_uid, 65534u);
  EXPECT_EQ(now.st_gid, 65534u);
  EXPECT_EQ(now.st_mode & 0777, 0600u);
  EXPECT_EQ(content(root / "page.html"), "newer\n");
}

TEST_F(WholeFile, is_no_descriptor_if_its_name_only_begins_with_a_number) {
  EXPECT_NE(refusal("/dev/fd/1x"), "");
}

TEST_F(WholeFile, is_written_in_place_in_a_folder_that_cannot_be_written) {
  std::ofstream(root / "file") << "older, and longer\n";
  OrdinaryUser::give(root / "file");
  fs::permissions(root, fs::perms(0555));
  {
    const OrdinaryUser user;
    if (!user.is_one) GTEST_SKIP() << "root cannot become another user";
    EXPECT_EQ(check(root / "file"), "");
    EXPECT_EQ(refusal(root / "file"), "");
    EXPECT_EQ(content(root / "file"), "newer\n");
    const std::string denied = (root / "new").string() + ": cannot be written: Permission denied";
    EXPECT_EQ(check(root / "new"), denied);
    EXPECT_EQ(refusal(root / "new"), denied);
  }
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WholeFile, is_not_replaced_if_it_is_read_only) {
  std::ofstream(root / "file") << "older\n";
  fs::permissions(root / "file", fs::perms(0444));
  fs::permissions(root, fs::perms(0777));
  const OrdinaryUser user;
  if (!user.is_one) GTEST_SKIP() << "root cannot become another user";
  const std::string denied = (root / "file").string() + ": cannot be written: Permission denied";
  EXPECT_EQ(check(root / "file"), denied);
  EXPECT_EQ(refusal(root / "file"), denied);
  EXPECT_EQ(content(root / "file"), "older\n");
}

// A container is given a single file so.
TEST_F(WholeFile, can_be_a_mount_of_its_own) {
  std::ofstream(root / "inner") << "older, and longer\n";
  std::ofstream(root / "outer") << "";
  constexpr int kNoMount = 77;
  const pid_t child = ::fork();
  if (child == 0) {  // its mounts end with it
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount((root / "inner").c_str(), (root / "outer").c_str(), nullptr, MS_BIND, nullptr) != 0)
      ::_exit(kNoMount);
    ::_exit(check(root / "outer").empty() && refusal(root / "outer").empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content(root / "inner"), "newer\n");
  EXPECT_EQ(entries(), 2u);
}

// A mount of a single file on a full disk: the file is cut off, but what was to be in it is kept for good.
TEST_F(WholeFile, is_kept_beside_a_mount_of_its_own_that_is_full) {
  const std::string text(1 << 16, 'n');
  const fs::path file = root / "outer", unwritten = root / "outer.unwritten";
  fs::create_directory(root / "small");
  std::ofstream(file) << "";
  constexpr int kNoMount = 77;
  const pid_t child = ::fork();
  if (child == 0) {  // its mounts end with it
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", (root / "small").c_str(), "tmpfs", 0, "size=16k") != 0)
      ::_exit(kNoMount);
    std::ofstream(root / "small" / "inner") << "older\n" << std::flush;
    if (::mount((root / "small" / "inner").c_str(), file.c_str(), nullptr, MS_BIND, nullptr) != 0)
      ::_exit(kNoMount);
    try {
      write(file, text);
    } catch (const OutputError& error) {
      const std::string said = error.what();
      const bool named = said.ends_with("; " + unwritten.string() + " has what was to be written");
      if (!named) fprintf(stderr, "%s\n", said.c_str());
      ::_exit(named && refusal(file).empty() && content(file) == "newer\n" ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content(unwritten), text);
  EXPECT_EQ(entries(), 3u);
}

/// Another process that has half written a file, and waits.
class HalfWritten {
 public:
  explicit HalfWritten(const fs::path& file) {
    int begun[2], goes_on[2];
    if (::pipe(begun) != 0 || ::pipe(goes_on) != 0) std::abort();
    writer_ = ::fork();
    if (writer_ == 0) {
      ::close(goes_on[1]);
      write_whole(file, [&](std::ostream& out) {
        out << "half" << std::flush;
        char none = 0;
        if (::write(begun[1], &none, 1) != 1 || ::read(goes_on[0], &none, 1) != 0) ::_exit(1);
        out << ", whole\n";
      });
      ::_exit(0);
    }
    char none = 0;
    ::close(begun[1]);
    ::close(goes_on[0]);
    goes_on_ = goes_on[1];
    EXPECT_EQ(::read(begun[0], &none, 1), 1);
    ::close(begun[0]);
  }
  ~HalfWritten() { kill(); }
  void kill() {
    if (writer_ < 0) return;
    ::kill(writer_, SIGKILL);
    end();
  }
  /// It writes the rest. Its exit status.
  int finish() { return writer_ < 0 ? -1 : end(); }

 private:
  int end() {
    int status = 0;
    ::close(goes_on_);
    ::waitpid(std::exchange(writer_, -1), &status, 0);
    return status;
  }
  pid_t writer_ = -1;
  int goes_on_ = -1;
};

TEST_F(WholeFile, leaves_what_another_writer_has_half_written) {
  const fs::path file = root / "page.html";
  HalfWritten other(file);
  EXPECT_EQ(check(file), "");
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(refusal(file), "");
  EXPECT_EQ(content(file), "newer\n");
  EXPECT_EQ(entries(), 2u);
  EXPECT_EQ(other.finish(), 0);
  EXPECT_EQ(content(file), "half, whole\n");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WholeFile, takes_away_what_killed_writers_have_half_written) {
  const fs::path file = root / "page.html";
  {
    HalfWritten first(file), second(file), third(file);
    second.kill();
    EXPECT_EQ(entries(), 3u);
    EXPECT_EQ(check(file), "");
    EXPECT_EQ(entries(), 2u);
    EXPECT_EQ(refusal(file), "");
    EXPECT_EQ(entries(), 3u);
    EXPECT_EQ(third.finish(), 0);
  }
  EXPECT_EQ(entries(), 2u);
  EXPECT_EQ(refusal(file), "");
  EXPECT_EQ(content(file), "newer\n");
  EXPECT_EQ(entries(), 1u);
}

// A part that somebody else's program has made is not ours to take away.
TEST_F(WholeFile, leaves_files_that_it_has_not_made) {
  for (const char* name : {".page.html.part", "page.html.part", ".other.html.r2bench-part"})
    std::ofstream(root / name) << "theirs";
  fs::create_directory(root / ".page.html.r2bench-part");
  fs::create_symlink(".page.html.part", root / ".page.html.r2bench-part2");
  write(root / "page.html", "newer\n");
  EXPECT_EQ(entries(), 6u);
}

TEST_F(WholeFile, of_many_writers_at_once_is_that_of_one) {
  const fs::path file = root / "page.html";
  constexpr int kWriters = 8, kRounds = 100;
  std::vector<pid_t> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.push_back(::fork());
    if (writers.back() != 0) continue;
    for (int round = 0; round < kRounds; ++round)
      if (!refusal(file).empty()) ::_exit(1);
    ::_exit(0);
  }
  for (const pid_t writer : writers) {
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(content(file), "newer\n");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WholeFile, may_have_a_name_to_which_nothing_can_be_added) {
  const fs::path file = root / std::string(255, 'n');
  std::ofstream(file) << "older\n";
  EXPECT_EQ(check(file), "");
  EXPECT_EQ(refusal(file), "");
  EXPECT_EQ(content(file), "newer\n");
}

TEST_F(WholeFile, is_refused_without_naming_an_option_that_its_command_lacks) {
  EXPECT_EQ(refusal("/dev/full"), "/dev/full: cannot be written: No space left on device; free some space");
  EXPECT_EQ(refusal(root / "none" / "x"),
            (root / "none" / "x").string() + ": cannot be written: No such file or directory");
  EXPECT_EQ(refusal(root), root.string() + ": cannot be written: Is a directory");
}

}  // namespace
}  // namespace r2bench
