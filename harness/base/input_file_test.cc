// SPDX-License-Identifier: Apache-2.0
#include "harness/base/input_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class InputFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "input_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    ASSERT_EQ(::mkfifo((root / "pipe").c_str(), 0600), 0);
  }
  void TearDown() override { fs::remove_all(root); }
  static std::string refusal(const fs::path& file, size_t most = kLargestInput) {
    try {
      read_input(file, most, 50ms);
    } catch (const ReadError& error) {
      return error.what();
    }
    return "";
  }
  fs::path root;
};

TEST_F(InputFile, is_read_to_its_end) {
  const std::string text(300'000, 'n');
  std::ofstream(root / "file") << text;
  EXPECT_EQ(read_input(root / "file"), text);
  std::ofstream(root / "empty").flush();
  EXPECT_EQ(read_input(root / "empty"), "");
  EXPECT_EQ(read_input("/dev/null"), "");
}

TEST_F(InputFile, that_cannot_be_read_says_why) {
  EXPECT_EQ(refusal(root / "none"), "cannot be read: No such file or directory");
  EXPECT_EQ(refusal(root), "cannot be read: Is a directory");
  EXPECT_EQ(refusal("/dev/zero", 4u << 20), "is larger than 4 MiB, the limit");
}

TEST_F(InputFile, a_pipe_that_nobody_writes_to_is_not_waited_for_without_an_end) {
  EXPECT_EQ(refusal(root / "pipe"), "is a pipe that nobody writes to; start its writer, or give a file");
}

TEST_F(InputFile, a_pipe_is_read_until_its_writer_is_gone) {
  const std::string pipe = root / "pipe";
  std::thread writer([&] {
    const int fd = ::open(pipe.c_str(), O_WRONLY);
    for (const char* word : {"one ", "two ", "three"}) {
      EXPECT_GT(::write(fd, word, strlen(word)), 0);
      std::this_thread::sleep_for(20ms);  // it finds the pipe empty
    }
    ::close(fd);
  });
  EXPECT_EQ(read_input(pipe, kLargestInput, 60s), "one two three");
  writer.join();
}

TEST_F(InputFile, a_writer_that_writes_nothing_ends_the_wait) {
  const std::string pipe = root / "pipe";
  std::thread writer([&] { ::close(::open(pipe.c_str(), O_WRONLY)); });
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(read_input(pipe, kLargestInput, 60s), "");
  EXPECT_LT(std::chrono::steady_clock::now() - before, 30s);
  writer.join();
}

// <(command), and /dev/stdin behind a pipe: no other writer can come.
TEST_F(InputFile, a_pipe_of_a_shell_is_read_as_it_is) {
  for (const char* text : {"", "text"}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], text, strlen(text)), ssize_t(strlen(text)));
    ::close(ends[1]);
    EXPECT_EQ(read_input("/dev/fd/" + std::to_string(ends[0]), kLargestInput, 1h), text);
    EXPECT_EQ(::fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
    ::close(ends[0]);
  }
}

}  // namespace
}  // namespace r2bench
