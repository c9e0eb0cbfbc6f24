// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/launched_cluster.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "harness/hosts/host_agent.h"
#include "harness/hosts/local_host.h"

namespace r2bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAgentsBound{
    60'000};  // for the first to call, then for all others: some load r2bench slowly
constexpr milliseconds kLook{100};
constexpr milliseconds kEndBound{10'000};
constexpr milliseconds kTermBound{5'000};

std::string end_of(int status) {
  if (WIFSIGNALED(status))
    return "died of signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

bool ends_within(Process& process, milliseconds wait) {
  for (const auto end = steady_clock::now() + wait; steady_clock::now() < end;
       std::this_thread::sleep_for(milliseconds(20)))
    if (process.ended()) return true;
  return false;
}

std::string advice(const ClusterOptions& options) {
  if (options.launcher != Launcher::kSlurm || std::getenv("SLURM_JOB_ID")) return "";
  return "; this process is in no allocation of Slurm: run r2bench inside salloc or sbatch";
}

}  // namespace

LaunchedCluster::LaunchedCluster(const ClusterOptions& options) : launcher_name_(name(options.launcher)) {
  const char* secret = std::getenv(kSecretVariable);
  if (options.launcher == Launcher::kEnv) {
    if (!secret || std::strlen(secret) < kLeastSecret)
      throw FabricError(std::string("set ") + kSecretVariable + " to the same " +
                        std::to_string(kLeastSecret) +
                        " characters or more on every host, such as the output of 'openssl rand -hex 32' on "
                        "the first host: it authenticates the hosts of the job to each other");
  }
  try {
    const bool told = options.launcher == Launcher::kEnv;
    rendezvous_ = std::make_unique<Rendezvous>(told ? secret : random_secret(),
                                               told ? port_of_environment() : uint16_t(0));
  } catch (const std::system_error& error) {
    throw FabricError(std::string("the runner cannot listen for its hosts: ") + error.what() +
                      "; R2BENCH_PORT names another port");
  }
  start_launcher(options);
  wait_for_agents(options);
}

void LaunchedCluster::start_launcher(const ClusterOptions& options) {
  ProcessSpec spec;
  const std::vector<std::string> command = launcher_command(options);
  spec.program = command[0];
  spec.arguments.assign(command.begin() + 1, command.end());
  spec.environment = launcher_environment(options, current_environment());
  spec.environment[kRendezvousVariable] = rendezvous_->addresses();
  spec.environment[kSecretVariable] = rendezvous_->secret();
  // mpirun and srun end their own helpers and folders on every host when they are asked to.
  spec.death_signal = options.launcher == Launcher::kEnv ? SIGKILL : SIGTERM;
  output_ = std::make_unique<OutputCapture>();
  launcher_said_ = memfd_create("r2bench-launcher", MFD_CLOEXEC);
  if (launcher_said_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  spec.output_fd = output_->add_file(fcntl(launcher_said_, F_DUPFD_CLOEXEC, 0));
  try {
    launcher_ = std::make_unique<Process>(spec);
  } catch (const std::system_error& error) {
    close(spec.output_fd);
    throw FabricError(std::string(error.what()) + "; install " +
                      (options.launcher == Launcher::kMpi ? "openmpi-bin" : "slurm-client") +
                      ", or choose another --launcher");
  }
  close(spec.output_fd);
  output_->start();
}

std::string LaunchedCluster::launcher_output() const {
  std::string said(16384, '\0');
  const ssize_t n = pread(launcher_said_, said.data(), said.size(), 0);
  said.resize(n > 0 ? size_t(n) : 0);
  std::istringstream lines_of(said);
  std::string text, line;
  for (int lines = 0; lines < 12 && std::getline(lines_of, line);)
    if (line.find_first_not_of(" -\t") != std::string::npos) {
      text += "\n  " + line;
      ++lines;
    }
  return text;
}

template <class Error>
void LaunchedCluster::fail(const std::string& what) {
  std::string text = what;
  for (const std::string& refused : rendezvous_->refused()) text += "; " + refused;
  if (launcher_) launcher_->signal(SIGTERM);
  if (launcher_) ends_within(*launcher_, kTermBound);
  launcher_.reset();
  output_.reset();  // what it has said is all there now
  const std::string said = launcher_output();
  throw Error(text + (said.empty() ? "" : ". It said:" + said));
}

void LaunchedCluster::check_place(const std::string& host, int order, int count) {
  const std::string advice =
      launcher_name_ == name(Launcher::kEnv)
          ? "; every host needs its own RANK, and the same WORLD_SIZE and LOCAL_WORLD_SIZE"
          : "";
  if (order < 0 || order >= count)
    fail("host " + host + " has the number " + std::to_string(order) + ", but there are " +
         std::to_string(count) + " hosts, whose numbers start at 0" + advice);
  for (const Called& other : called_) {
    if (other.count != count) {
      const auto [first, second] = std::minmax({std::pair(other.host, other.count), std::pair(host, count)});
      fail("host " + first.first + " has been told that there are " + std::to_string(first.second) +
           " hosts, host " + second.first + " that there are " + std::to_string(second.second) + advice);
    }
    if (other.order == order)
      fail("hosts " + std::min(other.host, host) + " and " + std::max(other.host, host) +
           " both have the number " + std::to_string(order) + advice);
  }
  called_.push_back({host, order, count});
}

void LaunchedCluster::wait_for_agents(const ClusterOptions& options) {
  auto deadline = steady_clock::now() + kAgentsBound;
  size_t expected = 0;
  while (expected == 0 || hosts_.size() < expected) {
    if (auto caller = rendezvous_->accept(kLook)) {
      const nlohmann::json& hello = caller->hello;
      const std::string host = hello.value("name", "?");
      if (hello.value("revision", "") != agent_hello(0, 1)["revision"].get<std::string>())
        fail("host " + host + " has another build of r2bench (commit " + hello.value("revision", "?") +
             "); install the same on every host");
      check_place(host, hello.value("order", 0), hello.value("count", 1));
      if (hosts_.empty()) {
        expected = size_t(hello.value("count", 1));
        deadline = steady_clock::now() + kAgentsBound;
        if (options.most_hosts > 0 && expected > size_t(options.most_hosts))
          fail(launcher_name_ + " has started agents on " + std::to_string(expected) +
               " hosts, but the scenario has " + std::to_string(options.most_hosts) +
               " nodes; name as many hosts or fewer with --hosts");
      }
      try {
        hosts_.push_back(std::make_unique<RemoteHost>(std::move(caller->link), hello));
      } catch (const std::exception& error) {
        fail<LauncherError>("host " + host + " has called, and then was lost: " + error.what());
      }
      continue;
    }
    if (options.cancel && *options.cancel) fail("cancelled");
    if (const auto how = launcher_->ended())
      fail<LauncherError>("the launcher (" + launcher_name_ + ") " + end_of(*how) +
                          " before every host had called" + advice(options));
    if (steady_clock::now() > deadline)
      fail<LauncherError>(std::to_string(hosts_.size()) + " of " +
                          (expected ? std::to_string(expected) : "the") +
                          " hosts have called the runner (at " + rendezvous_->addresses() +
                          ") in time; can the others reach it, or does a firewall keep them off?");
  }
  std::sort(hosts_.begin(), hosts_.end(),
            [](const auto& a, const auto& b) { return a->facts().order < b->facts().order; });
}

std::vector<Host*> LaunchedCluster::hosts(const std::string& log_folder) {
  std::vector<Host*> hosts;
  for (const auto& host : hosts_) {
    host->log_into(log_folder);
    hosts.push_back(host.get());
  }
  return hosts;
}

std::optional<std::string> LaunchedCluster::failure() {
  const auto how = launcher_->ended();
  if (!how) return std::nullopt;
  return "the launcher (" + launcher_name_ + ") " + end_of(*how);
}

std::string LaunchedCluster::master_address() {
  const char* address = launcher_name_ == name(Launcher::kEnv) ? std::getenv("MASTER_ADDR") : nullptr;
  return address && *address ? address : hosts_[0]->facts().name;
}

LaunchedCluster::~LaunchedCluster() {
  hosts_.clear();  // each agent is told to end, or sees that its runner is gone
  end_launcher();
  output_.reset();
  if (launcher_said_ >= 0) close(launcher_said_);
}

void LaunchedCluster::end_launcher() {
  if (!launcher_ || ends_within(*launcher_, kEndBound)) return;
  launcher_->signal(SIGTERM);
  ends_within(*launcher_, kTermBound);  // then it is killed
}

}  // namespace r2bench
