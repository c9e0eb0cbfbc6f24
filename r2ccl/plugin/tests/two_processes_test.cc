// SPDX-License-Identifier: Apache-2.0
// The built library between two processes, over the virtual HCA: each version's calls from init to close.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "harness/vhca/fabric/fabric_host.h"
#include "r2ccl/plugin/nccl_net_abi.h"

namespace r2ccl::plugin_test {
namespace {

namespace fs = std::filesystem;

fs::path build_folder() { return fs::canonical("/proc/self/exe").parent_path().parent_path(); }

/// Starts plugin_peer on `node` ("" = no fabric at all). Its descriptor 3 is `socket`, its stderr goes to
/// `log`.
pid_t start(const std::string& role, int version, const std::string& node, const std::string& fabric,
            int socket, const std::string& log, const std::string& memory = "") {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text(*entry);
    if (text.rfind("LD_LIBRARY_PATH=", 0) != 0 && text.rfind("VHCA_", 0) != 0) environment.push_back(text);
  }
  environment.push_back("LD_LIBRARY_PATH=" + (build_folder() / "lib/vhca").string());
  if (!memory.empty()) {
    environment.push_back("PEER_MEMORY=" + memory);
    environment.push_back("R2CC_GPU_DIRECT=1");
  }
  environment.push_back("NCCL_SOCKET_IFNAME=lo");
  environment.push_back("PEER_VERBOSE=1");
  if (!node.empty()) {
    environment.push_back("VHCA_FABRIC=" + fabric);
    environment.push_back("VHCA_NODE=" + node);
  }
  std::vector<std::string> arguments = {(build_folder() / "bin/plugin_peer").string(), role,
                                        std::to_string(version),
                                        (build_folder() / "lib/libnccl-net-r2ccl.so").string()};
  std::vector<char*> argv, envp;
  for (std::string& text : arguments) argv.push_back(text.data());
  for (std::string& text : environment) envp.push_back(text.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (socket >= 0) posix_spawn_file_actions_adddup2(&actions, socket, 3);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

/// Exit status, or 128 + signal.
int finish(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string read_file(const std::string& path) {
  std::string text(static_cast<size_t>(fs::file_size(path)), '\0');
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t got = read(fd, text.data(), text.size());
  close(fd);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

class TwoProcesses : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void SetUp() override {
    char made[] = "/tmp/r2ccl_plugin_XXXXXX";
    ASSERT_NE(mkdtemp(made), nullptr);
    folder_ = made;
  }
  void TearDown() override { fs::remove_all(folder_); }
  /// A rank of each version; the receiver's log.
  std::string carry(const std::string& memory);
  std::string folder_;
};

std::string TwoProcesses::carry(const std::string& memory) {
  const auto [sender_version, receiver_version] = GetParam();
  const vhca::NodeSpec node0{"node0", {vhca::PortSpec{}, vhca::PortSpec{}}};
  const vhca::NodeSpec node1{"node1", {vhca::PortSpec{}, vhca::PortSpec{}}};
  const vhca::FabricHost fabric = vhca::FabricHost::create({{node0, node1}});
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);

  const std::string receiver_log = folder_ + "/receiver", sender_log = folder_ + "/sender";
  const pid_t receiver =
      start("receive", receiver_version, "node1", fabric.path(), pair[1], receiver_log, memory);
  const pid_t sender = start("send", sender_version, "node0", fabric.path(), pair[0], sender_log, memory);
  close(pair[0]);
  close(pair[1]);
  EXPECT_EQ(finish(sender), 0) << read_file(sender_log);
  EXPECT_EQ(finish(receiver), 0) << read_file(receiver_log);
  EXPECT_GE(fabric.counters("node0", 0).tx_bytes, size_t{2} << 20)
      << "the payload went another way than NIC 0";
  EXPECT_EQ(fabric.usage().queue_pairs, 0u) << "something was left behind";
  return read_file(receiver_log);
}

TEST_P(TwoProcesses, messages_arrive_whole_and_in_order) { carry(""); }

TEST_P(TwoProcesses, messages_by_dma_buf_arrive_whole) { carry("dma-buf"); }

INSTANTIATE_TEST_SUITE_P(SameVersion, TwoProcesses,
                         ::testing::Values(std::tuple(8, 8), std::tuple(9, 9), std::tuple(10, 10),
                                           std::tuple(11, 11), std::tuple(12, 12)),
                         [](const auto& info) { return "v" + std::to_string(std::get<0>(info.param)); });
// Nodes with different NCCL releases meet in one job.
INSTANTIATE_TEST_SUITE_P(MixedVersions, TwoProcesses, ::testing::Values(std::tuple(8, 12), std::tuple(11, 9)),
                         [](const auto& info) {
                           return "v" + std::to_string(std::get<0>(info.param)) + "_to_v" +
                                  std::to_string(std::get<1>(info.param));
                         });

class NoDevice : public TwoProcesses {};

TEST_P(NoDevice, init_fails_and_the_log_says_what_to_do) {
  const std::string log = folder_ + "/log";
  const pid_t child = start("init", std::get<0>(GetParam()), "", "", -1, log);
  EXPECT_EQ(finish(child), nccl_abi::ncclSystemError);
  EXPECT_NE(read_file(log).find("ibv_devinfo"), std::string::npos) << read_file(log);
}

INSTANTIATE_TEST_SUITE_P(EachVersion, NoDevice, ::testing::Values(std::tuple(8, 8), std::tuple(12, 12)),
                         [](const auto& info) { return "v" + std::to_string(std::get<0>(info.param)); });

}  // namespace
}  // namespace r2ccl::plugin_test
