// SPDX-License-Identifier: Apache-2.0
// What mpirun, srun and torchrun want to be told, and what they tell whom they start.
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "faultinject/plan/joined.h"
#include "harness/hosts/host_agent.h"
#include "harness/hosts/launched_cluster.h"
#include "harness/launch/process.h"

namespace r2bench {
namespace {

constexpr std::chrono::milliseconds kFindRunner{60'000};

/// Of a variable that counts from 0. Throws FabricError when it is set to something else.
std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return std::nullopt;
  int number = 0;
  const char* end = text + std::strlen(text);
  if (const auto [at, failed] = std::from_chars(text, end, number);
      failed != std::errc() || at != end || number < 0)
    throw FabricError(std::string(variable) + "='" + text +
                      "' is not a whole number from 0; correct or unset this variable");
  return number;
}

/// The first of PATH; the word itself when there is none, for the message.
std::string in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "/usr/bin:/bin";
  for (size_t from = 0; from <= folders.size();) {
    const size_t to = std::min(folders.find(':', from), folders.size());
    const std::string file = folders.substr(from, to - from) + "/" + program;
    if (access(file.c_str(), X_OK) == 0) return file;
    from = to + 1;
  }
  return program;
}

}  // namespace

uint16_t port_of_environment() {
  constexpr int kMost = 65535, kMasterPort = 29500;
  const auto port_in = [](const char* variable, int most) {
    const auto port = number_in(variable);
    if (port && (*port == 0 || *port > most))
      throw FabricError(std::string(variable) + "='" + std::getenv(variable) + "' is no TCP port from 1 to " +
                        std::to_string(most) + "; correct or unset this variable");
    return port;
  };
  if (const auto port = port_in("R2BENCH_PORT", kMost)) return uint16_t(*port);
  return uint16_t(port_in("MASTER_PORT", kMost - 1).value_or(kMasterPort) + 1);
}

const char* name(Launcher launcher) {
  // clang-format off
  switch (launcher) {
    case Launcher::kLocal: return "local";
    case Launcher::kMpi: return "mpi";
    case Launcher::kSlurm: return "slurm";
    case Launcher::kEnv: return "env";
  }
  // clang-format on
  return "?";
}

std::optional<Launcher> launcher_named(const std::string& text) {
  for (const Launcher launcher : {Launcher::kLocal, Launcher::kMpi, Launcher::kSlurm, Launcher::kEnv})
    if (text == name(launcher)) return launcher;
  return std::nullopt;
}

std::vector<std::string> launcher_command(const ClusterOptions& options) {
  std::vector<std::string> command;
  switch (options.launcher) {
    case Launcher::kMpi:
      command = {in_path("mpirun"),   "--map-by", "ppr:1:node",   "--bind-to", "none", "-x",
                 kRendezvousVariable, "-x",       kSecretVariable};
      if (geteuid() == 0) command.insert(command.begin() + 1, "--allow-run-as-root");
      if (!options.hosts.empty())
        command.insert(command.end(), {"--host", faultinject::joined(options.hosts, ",")});
      break;
    case Launcher::kSlurm:
      command = {in_path("srun"),   "--ntasks-per-node=1", "--kill-on-bad-exit=1",
                 "--cpu-bind=none", "--export=ALL",        "--overlap"};
      if (!options.hosts.empty())
        command.insert(command.end(), {"--nodes=" + std::to_string(options.hosts.size()),
                                       "--nodelist=" + faultinject::joined(options.hosts, ",")});
      break;
    case Launcher::kLocal:
    case Launcher::kEnv:
      break;
  }
  command.insert(command.end(), {options.program, "host-agent", name(options.launcher)});
  return command;
}

std::map<std::string, std::string> launcher_environment(const ClusterOptions& options,
                                                        std::map<std::string, std::string> environment) {
  // Of the allocation: srun would take its number of tasks in place of one per host.
  if (options.launcher == Launcher::kSlurm)
    std::erase_if(environment, [](const auto& variable) {
      return variable.first == "SLURM_NTASKS" || variable.first == "SLURM_NPROCS" ||
             variable.first.starts_with("SLURM_NTASKS_PER_");
    });
  return environment;
}

std::vector<std::string> launchers_own(Launcher launcher,
                                       const std::map<std::string, std::string>& environment) {
  static const std::map<Launcher, std::vector<std::string>> kBeginnings = {
      {Launcher::kMpi,
       {"OMPI_COMM_WORLD_", "OMPI_APP_CTX_", "OMPI_UNIVERSE_SIZE", "OMPI_FIRST_RANKS", "OMPI_NUM_APP_CTX",
        "OMPI_ARGV", "OMPI_COMMAND", "OMPI_FILE_LOCATION", "OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix",
        "OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_", "PMIX_", "PRTE_"}},
      {Launcher::kSlurm,
       {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_",
        "SLURM_STEPID", "SLURM_TASK_PID", "SLURM_GTIDS", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_",
        "PMI_", "PMIX_"}},
      {Launcher::kEnv,
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "NNODES", "GROUP_RANK",
        "GROUP_WORLD_SIZE", "ROLE_", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_"}}};
  std::vector<std::string> own;
  const auto beginnings = kBeginnings.find(launcher);
  if (beginnings == kBeginnings.end()) return own;
  for (const auto& [variable, value] : environment)
    for (const std::string& beginning : beginnings->second) {
      const bool whole = beginning.back() != '_' && launcher == Launcher::kEnv;
      if (whole ? variable == beginning : variable.starts_with(beginning)) {
        own.push_back(variable);
        break;
      }
    }
  return own;
}

LaunchedPlace launched_place(Launcher launcher) {
  const auto place = [&](const char* order, const char* count, const char* local) {
    const auto is = number_in(order), of = number_in(count);
    if (!is || !of)
      throw FabricError(std::string(order) + " and " + count + " are not set: launcher '" + name(launcher) +
                        "' has not started this process");
    if (*of < 1) throw FabricError(std::string(count) + "='" + std::getenv(count) + "' is less than 1");
    if (*is >= *of)
      throw FabricError(std::string(order) + "='" + std::getenv(order) + "' is not below " + count + "='" +
                        std::getenv(count) + "'");
    return LaunchedPlace{*is, *of, number_in(local).value_or(0) == 0};
  };
  switch (launcher) {
    case Launcher::kMpi:
      return place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
    case Launcher::kSlurm:
      return place("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID");
    case Launcher::kEnv: {
      LaunchedPlace of_process = place("RANK", "WORLD_SIZE", "LOCAL_RANK");
      const int each = std::max(1, number_in("LOCAL_WORLD_SIZE").value_or(1));
      of_process.order /= each;
      of_process.count = (of_process.count + each - 1) / each;
      return of_process;
    }
    case Launcher::kLocal:
      break;
  }
  return {};
}

int host_agent(Launcher launcher) {
  const char* secret = std::getenv(kSecretVariable);
  const char* rendezvous = std::getenv(kRendezvousVariable);
  std::string addresses = rendezvous ? rendezvous : "";
  if (addresses.empty() && launcher == Launcher::kEnv) {
    const char* master = std::getenv("MASTER_ADDR");
    if (master) addresses = std::string(master) + ":" + std::to_string(port_of_environment());
  }
  if (!secret || addresses.empty()) {
    fprintf(stderr, "r2bench host-agent is started by r2bench run --launcher; %s is not set\n",
            secret ? kRendezvousVariable : kSecretVariable);
    return 64;
  }
  const LaunchedPlace place = launched_place(launcher);
  std::string why_not;
  SecureLink link =
      call_runner(addresses, secret, agent_hello(place.order, place.count), kFindRunner, why_not);
  // Ranks inherit the environment, and need none of these.
  unsetenv(kSecretVariable);
  unsetenv(kRendezvousVariable);
  for (const std::string& variable : launchers_own(launcher, current_environment()))
    unsetenv(variable.c_str());
  const std::string host = agent_hello(0, 1)["name"];
  if (link.closed()) {
    fprintf(stderr, "host %s cannot reach the runner at %s: %s\n", host.c_str(), addresses.c_str(),
            why_not.c_str());
    return 1;
  }
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string prefix = self.parent_path().parent_path().string();
  const std::string why = serve_runner(std::move(link), prefix + "/bin", prefix + "/lib");
  if (why.empty()) return 0;
  fprintf(stderr, "host %s has lost the runner: %s\n", host.c_str(), why.c_str());
  return 1;
}

}  // namespace r2bench
