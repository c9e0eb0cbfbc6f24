// SPDX-License-Identifier: Apache-2.0
// What the emulated tests of whole commands share: r2bench in several 'terminals', what is read of it, and
// the proof that it leaves nothing behind: no process, no name.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "harness/base/testing/eventually.h"
#include "harness/control/control_socket.h"
#include "harness/vhca/testing/free_port.h"

namespace r2bench::test {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// A program that is built without a sanitizer can load a library that needs one only where the runtime is
// preloaded; whoever builds this says which file that is.
#ifndef R2BENCH_SANITIZER_RUNTIME
#define R2BENCH_SANITIZER_RUNTIME ""
#endif
inline const std::string kSanitizerRuntime = R2BENCH_SANITIZER_RUNTIME;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline bool installed(const std::string& program) {
  std::istringstream folders(getenv("PATH") ? getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}
#define FAIL_UNLESS_INSTALLED(program, package) \
  if (!installed(program))                      \
  GTEST_FAIL() << program << " is not installed, so nothing was shown: apt-get install " << package

inline std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline bool alive(pid_t pid) {
  const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = stat.rfind(')');
  return end != std::string::npos && stat.size() > end + 2 && stat[end + 2] != 'Z' && stat[end + 2] != 'X';
}

/// Processes whose command line holds `text`; zombies have none.
inline std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> pids;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = atoi(entry->d_name);
    if (pid > 0 &&
        contents("/proc/" + std::string(entry->d_name) + "/cmdline").find(text) != std::string::npos)
      pids.push_back(pid);
  }
  closedir(proc);
  return pids;
}

inline bool somebody_listens_on_tcp(int port) {
  char wanted[16];
  snprintf(wanted, sizeof wanted, ":%04X", port);
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(contents(file));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream row(line);
      std::string number, local, remote, state;
      if (row >> number >> local >> remote >> state && state == "0A" && local.ends_with(wanted)) return true;
    }
  }
  return false;
}

/// One command of r2bench in a terminal of its own: its input is a pipe, its output a file.
class Command {
 public:
  Command(const Words& words, const std::string& output) : output_(output) {
    char self[PATH_MAX] = {};
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) throw std::runtime_error("readlink");
    const std::string program = (fs::path(self).parent_path() / "r2bench").string();
    int input[2];
    if (pipe2(input, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setpgid(0, 0);
      const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(input[0], 0);
      dup2(file, 1);
      dup2(file, 2);
      // Leaks: of shells, not of ours. The injector comes before the runtime here, and needs nothing of it so
      // early.
      setenv("ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0", 1);
      setenv("TSAN_OPTIONS", "die_after_fork=0", 1);
      if (!kSanitizerRuntime.empty()) setenv("LD_PRELOAD", kSanitizerRuntime.c_str(), 1);
      std::vector<char*> argv{const_cast<char*>(program.c_str())};
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(input[0]);
    input_ = input[1];
  }
  ~Command() {
    close(input_);
    if (pid_ > 0 && !ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  /// Ends its input: `read` in a shell returns.
  void release() {
    close(input_);
    input_ = -1;
  }
  std::string output() const { return contents(output_); }
  bool says(const std::string& text, int seconds = 20) const {
    return eventually([&] { return output().find(text) != std::string::npos; },
                      std::chrono::seconds(seconds));
  }
  /// Waits for its end: the exit status, 128 + signal, -1 when it took longer than `seconds`.
  int status(int seconds = 30) {
    const bool over = ended_ || eventually([&] { return waitpid(pid_, &status_, WNOHANG) == pid_; },
                                           std::chrono::seconds(seconds));
    if (!over) return -1;
    ended_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  std::string output_;
  pid_t pid_ = -1;
  int input_ = -1, status_ = 0;
  bool ended_ = false;
};

/// The text behind "<key>=" in a line of it.
inline std::string value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(key + "=", 0) == 0) return line.substr(key.size() + 1);
  return "";
}

// Says where it is, and stays until its input ends.
inline const char* const kStay =
    "echo fabric=$VHCA_FABRIC; echo board=$FAULTINJECT_BOARD; echo pid=$$; read line; exit 0";

class Exec : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized && kSanitizerRuntime.empty())
      GTEST_SKIP() << "the libraries are built with a sanitizer, the programs are not";
    static int count = 0;
    name = "exec-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
    std::string pattern = (fs::temp_directory_path() / "exec_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override {
    if (name.empty()) return;
    commands.clear();
    EXPECT_TRUE(eventually([&] { return processes_with(name).empty(); })) << "a process was left behind";
    EXPECT_FALSE(listens(name));
    fs::remove_all(folder);
  }

  static bool listens(const std::string& which) {
    const auto names = listening_names();
    return std::find(names.begin(), names.end(), which) != names.end();
  }
  Command& start(const Words& words) {
    commands.push_back(std::make_unique<Command>(words, folder + "/" + std::to_string(commands.size())));
    return *commands.back();
  }
  Command& exec(const Words& options, const Words& program) {
    Words words = {"exec", "--name", name};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back("--");
    words.insert(words.end(), program.begin(), program.end());
    return start(words);
  }
  Command& stay(const Words& options) {
    Command& command = exec(options, {"sh", "-c", kStay});
    EXPECT_TRUE(command.says("pid=")) << command.output();
    return command;
  }
  /// An inject command that must succeed.
  std::string inject(Words words, const std::string& of) {
    words.insert(words.begin(), "inject");
    words.insert(words.end(), {"--name", of});
    Command& command = start(words);
    EXPECT_EQ(command.status(), 0) << command.output();
    return command.output();
  }
  nlohmann::json faults(const std::string& of) {
    return nlohmann::json::parse(inject({"list", "--json"}, of))["faults"];
  }
  std::string file(const std::string& its_name, const std::string& text) {
    std::ofstream(folder + "/" + its_name) << text;
    return folder + "/" + its_name;
  }
  /// One for all tests of the process.
  std::string port() {
    static const int port = vhca::test::free_tcp_port();
    return std::to_string(port);
  }
  /// perftest's server on node0, ready for its client.
  Command& server(const Words& options, const Words& program) {
    Words all = program;
    all.insert(all.end(), {"-p", port()});
    Command& command = exec(options, all);
    EXPECT_TRUE(eventually([&] { return somebody_listens_on_tcp(atoi(port().c_str())); }))
        << command.output();
    return command;
  }
  Command& client(const Words& options, const Words& program) {
    Words all = program;
    all.insert(all.end(), {"-p", port(), "localhost"});
    return exec(options, all);
  }

  std::string name, folder;
  std::vector<std::unique_ptr<Command>> commands;
};

}  // namespace r2bench::test
