// SPDX-License-Identifier: Apache-2.0
// Running Debian's own verbs programs, unchanged, on the virtual HCA that was just built, and reading what
// they print. A program that is not installed is a failure: these tests are the proof that such programs run.
#pragma once

#include <gtest/gtest.h>
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "harness/vhca/testing/free_port.h"

namespace vhca::test {

struct Output {
  std::string text;
  int code = 255;
};

inline Output output_of(const std::string& command) {
  Output output;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return output;
  char text[4096];
  for (std::size_t got; (got = std::fread(text, 1, sizeof text, pipe)) > 0;) output.text.append(text, got);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) output.code = WEXITSTATUS(status);
  return output;
}

// Long enough for a machine that stands still for minutes; a program that hangs still ends.
inline std::string vhca_exec() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string self(path, static_cast<std::size_t>(length));
  return "timeout 700 " + self.substr(0, self.rfind('/')) + "/vhca-exec";
}

// A port of its own for each test process, so that tests in parallel do not meet.
inline std::string tcp_port() {
  static const int port = vhca::test::free_tcp_port();
  return std::to_string(port);
}

class Programs : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [program, package] :
         {std::pair{"ibv_rc_pingpong", "ibverbs-utils"}, {"ib_write_bw", "perftest"}})
      if (output_of(std::string("command -v ") + program).code != 0)
        GTEST_FAIL() << program << " is not installed, so nothing was shown: apt-get install " << package;
  }

  // One program on node0.
  std::string run_one(const std::string& fabric, const std::string& command) {
    const Output output = output_of(vhca_exec() + " " + fabric + " -- " + command);
    EXPECT_EQ(output.code, 0) << command << '\n' << output.text;
    return output.text;
  }

  struct Pair {
    std::string server, client;
  };
  // The program as a server on node0 and as its client on node1. Both must end with 0.
  Pair run_pair(const std::string& fabric, const std::string& command) {
    char file[] = "/tmp/vhca-server-XXXXXX";
    ::close(::mkstemp(file));
    const std::string words = command + " -d vhca0 -p " + tcp_port();
    const Output output = output_of(vhca_exec() + " --nodes 2 " + fabric + " -- sh -c '" + words + " >" +
                                    file + " 2>&1' :: " + words + " 127.0.0.1");
    std::ostringstream server;
    server << std::ifstream(file).rdbuf();
    ::unlink(file);
    EXPECT_EQ(output.code, 0) << command << "\nserver:\n" << server.str() << "\nclient:\n" << output.text;
    return {server.str(), output.text};
  }
};

// The numbers of perftest's row of results: bytes, iterations, and what follows. Empty when there is none.
inline std::vector<double> row_of(const std::string& output) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<double> row;
    for (double number; words >> number;) row.push_back(number);
    if (row.size() >= 4 && row[0] > 0 && row[1] > 0) return row;
  }
  return {};
}

}  // namespace vhca::test
