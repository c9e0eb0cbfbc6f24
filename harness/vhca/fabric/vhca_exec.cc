// SPDX-License-Identifier: Apache-2.0
// vhca-exec: holds a virtual fabric, and runs programs on its nodes. Everything is gone when it ends.
//
//   vhca-exec --nodes 2 --nics 4 --rate 1Gbit/s --latency 5us                       prints what to put into
//   the environment, and waits vhca-exec --nodes 2 -- ib_write_bw -d vhca0 -x 1 :: ib_write_bw -d vhca0 -x 1
//   localhost   one command per node, separated by ::
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "harness/vhca/fabric/fabric_host.h"

namespace {

double number_with_unit(const std::string& text,
                        std::initializer_list<std::pair<const char*, double>> units) {
  char* rest = nullptr;
  const double value = std::strtod(text.c_str(), &rest);
  while (*rest == ' ') ++rest;
  for (const auto& [name, factor] : units)
    if (rest != text.c_str() && std::strcmp(rest, name) == 0 && value >= 0) return value * factor;
  std::string known;
  for (const auto& [name, factor] : units) known += std::string(known.empty() ? "" : ", ") + name;
  throw CLI::ValidationError(text, "a number and one of: " + known);
}

std::uint64_t parse_rate(const std::string& text) {
  if (text == "unlimited") return 0;
  return static_cast<std::uint64_t>(std::llround(
      number_with_unit(text, {{"bit/s", 1}, {"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}})));
}

std::chrono::nanoseconds parse_latency(const std::string& text) {
  return std::chrono::nanoseconds(
      std::llround(number_with_unit(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}})));
}

std::string library_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length < 0) return "lib/vhca";
  const std::string bin(path, static_cast<std::size_t>(length));
  return bin.substr(0, bin.rfind('/')) + "/../lib/vhca";
}

std::vector<std::vector<std::string>> split_commands(const std::vector<std::string>& words) {
  std::vector<std::vector<std::string>> commands(words.empty() ? 0 : 1);
  for (const std::string& word : words) {
    if (word == "::")
      commands.emplace_back();
    else
      commands.back().push_back(word);
  }
  return commands;
}

pid_t start(const std::vector<std::string>& command, const std::string& node, const std::string& fabric,
            unsigned delay_ms) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const timespec pause{delay_ms / 1000, static_cast<long>(delay_ms % 1000) * 1'000'000};
  ::nanosleep(&pause, nullptr);
  ::setenv("VHCA_FABRIC", fabric.c_str(), 1);
  ::setenv("VHCA_NODE", node.c_str(), 1);
  const char* before = std::getenv("LD_LIBRARY_PATH");
  const std::string path = library_folder() + (before && *before ? std::string(":") + before : "");
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "vhca-exec: %s: %s\n", arguments[0], std::strerror(errno));
  ::_exit(127);
}

int run(const std::vector<std::vector<std::string>>& commands, const vhca::FabricSpec& spec,
        const std::string& fabric, unsigned stagger_ms) {
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < commands.size(); ++i)
    children.push_back(start(commands[i], spec.nodes[i % spec.nodes.size()].name, fabric,
                             static_cast<unsigned>(i) * stagger_ms));
  int result = 0;
  for (const pid_t child : children) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (result == 0) result = code;
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Holds a virtual RDMA fabric; runs one command per node (separated by ::), or waits until it is ended"};
  std::size_t nodes = 2, nics = 1;
  std::string rate = "unlimited", latency = "0us", link = "ethernet";
  vhca::FabricSpec spec;
  unsigned stagger_ms = 500;
  std::vector<std::string> words;
  app.add_option("--nodes", nodes, "nodes of the fabric, named node0, node1, ...")->capture_default_str();
  app.add_option("--nics", nics, "NICs of each node")->capture_default_str();
  app.add_option("--rate", rate, "rate of each port, such as '1 Gbit/s'")->capture_default_str();
  app.add_option("--latency", latency, "one-way latency of each port, such as '5 us'")->capture_default_str();
  app.add_option("--link", link, "link layer of all ports: ethernet (RoCE) or infiniband")
      ->check(CLI::IsMember({"ethernet", "infiniband"}))
      ->capture_default_str();
  app.add_option("--ports", spec.ports_per_nic, "ports of each NIC")->capture_default_str();
  app.add_option("--mtu", spec.mtu, "active MTU of each port, in bytes")->capture_default_str();
  app.add_option("--stagger-ms", stagger_ms, "how much later each further command begins")
      ->capture_default_str();
  app.add_option("command", words, "command [:: command ...], the i-th on node i modulo the number of nodes");
  app.prefix_command(false);
  try {
    app.parse(argc, argv);
    if (link == "infiniband") spec.link_layer = vhca::LinkLayer::kInfiniBand;
    for (std::size_t n = 0; n < nodes; ++n)
      spec.nodes.push_back({"node" + std::to_string(n),
                            std::vector<vhca::PortSpec>(nics, {parse_rate(rate), parse_latency(latency)})});
    const auto fabric = vhca::FabricHost::create(spec);
    if (!words.empty()) return run(split_commands(words), spec, fabric.path(), stagger_ms);
    std::cout << "export VHCA_FABRIC=" << fabric.path()
              << " VHCA_NODE=node0 LD_LIBRARY_PATH=" << library_folder() << std::endl;
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&wanted, signal);
    ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
    int got = 0;
    ::sigwait(&wanted, &got);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  } catch (const std::invalid_argument& error) {
    std::cerr << "vhca-exec: " << error.what() << '\n';
    return 64;
  } catch (const std::exception& error) {
    std::cerr << "vhca-exec: " << error.what() << '\n';
    return 70;
  }
}
