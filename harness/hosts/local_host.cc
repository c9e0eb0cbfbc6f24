// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/local_host.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "harness/hosts/hang_evidence.h"
#include "harness/launch/injection.h"
#include "harness/real/nic_place.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

/// Between two looks at the threads of a job that hangs.
constexpr std::chrono::milliseconds kBetweenLooks{200};
constexpr const char* kIbHca = "NCCL_IB_HCA";

/// Events that each rank's ring holds, a power of two: the rings' memory (64 bytes an event) is taken before
/// the job begins, so that many ranks get smaller ones. A rank of many is also slower at filling its own.
size_t ring_events(size_t ranks) {
  constexpr size_t kMost = 1 << 17, kLeast = 1 << 13, kAll = 1 << 21;
  size_t events = kMost;
  while (events > kLeast && events * ranks > kAll) events /= 2;
  return events;
}

int in_memory(const char* name) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  return fd;
}

}  // namespace

LocalHost::LocalHost(std::string bin_dir, std::string lib_dir, std::string folder)
    : bin_dir_(std::move(bin_dir)), lib_dir_(std::move(lib_dir)), folder_(std::move(folder)) {}

HostFacts facts_of_this_host() {
  HostFacts facts;
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  facts.name = name;
  utsname system{};
  if (uname(&system) == 0) facts.kernel = std::string(system.sysname) + " " + system.release;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> facts.boot_id;
  facts.cores = int(std::thread::hardware_concurrency());
  return facts;
}

LocalHost::~LocalHost() { release(); }

void LocalHost::end_ranks() {
  for (const auto& rank : ranks_) rank->kill();
  for (int fd : std::exchange(outputs_, {})) close(fd);
  output_.reset();  // what is still in the pipes is written now
}

void LocalHost::release() {
  end_ranks();
  real_.reset();
  ranks_.clear();
  logs_.clear();
  for (int fd : std::exchange(memory_files_, {})) close(fd);
  bootstrap_.reset();
  rings_.reset();
  board_.reset();
  fabric_.reset();
  topology_path_.clear();
}

/// A host's nodes are neighbours, so its ranks are numbered one after the other.
size_t LocalHost::index_of(int rank) const {
  const int index = plan_.ranks.empty() ? -1 : rank - plan_.ranks[0].rank;
  if (index < 0 || size_t(index) >= plan_.ranks.size())
    throw std::out_of_range("rank " + std::to_string(rank) + " is not on this host");
  return size_t(index);
}

void LocalHost::prepare(const HostPlan& plan) {
  plan_ = plan;
  if (plan_.fabric != "vhca" && geteuid() == 0)
    put_back_what_is_left([&](const std::string& text) {
      fprintf(stderr, "r2bench: %s\n", text.c_str());
      notes_.push_back({r2ccl::now_ns(), "put_back_left", text});
    });
  fabric_ = make_fabric(plan_.fabric, plan_.shape, lib_dir_, plan_.nodes, device_wish());
  tell_control_ports();
  board_.emplace(faultinject::BoardHost::create(plan_.node_shapes(), plan_.seed));
  rings_ = std::make_unique<TraceRings>(plan_.ranks.size(), ring_events(plan_.ranks.size()));
  try {
    bootstrap_ = std::make_unique<Bootstrap>(plan_.ranks.size(), plan_.bootstrap_port);
  } catch (const std::system_error& e) {
    if (plan_.bootstrap_port == 0) throw;
    throw FabricError("TCP port " + std::to_string(plan_.bootstrap_port) +
                      " on the loopback cannot be used: " + e.code().message() +
                      "; choose another port, or none");
  }
  plan_real_faults();
  write_topology();
  open_outputs();
  if (!plan_.ranks.empty()) environment_ = environment_of(plan_.ranks[0]);
}

/// The default route alone tells control ports here: a cluster's hosts have it on the same port each. The ssh
/// session need not come in over the same one everywhere, and NIC i of a host has to meet NIC i of the
/// others.
DeviceWish LocalHost::device_wish() const {
  DeviceWish wish;
  if (plan_.fabric != "verbs") return wish;
  const auto environment = plan_.ranks.empty() ? current_environment() : users_environment(plan_.ranks[0]);
  if (const auto filter = environment.find(kIbHca); filter != environment.end()) wish.ib_hca = filter->second;
  wish.is_control = [routes = default_routes()](const std::string& device) {
    const std::string interface = place_of(0, 0, device).interface;
    return !interface.empty() && std::any_of(routes.begin(), routes.end(), [&](const std::string& route) {
      return carries(interface, route);
    });
  };
  return wish;
}

void LocalHost::tell_control_ports() {
  const DeviceWish wish = device_wish();
  if (!wish.is_control) return;
  for (int node = plan_.nodes.first; node < plan_.nodes.first + plan_.nodes.count; ++node)
    for (const std::string& device : devices_of(node))
      if (wish.is_control(device))
        notes_.push_back({r2ccl::now_ns(), "control_port",
                          device + " is a NIC of " + node_name(node) +
                              ", and this machine's default route leaves by it; NCCL_IB_HCA=^=" + device +
                              " leaves it out"});
}

/// Before the ranks start: what is going to be done to this machine, or why it cannot be.
void LocalHost::plan_real_faults() {
  if (plan_.real_faults.empty()) return;
  if (geteuid() != 0) throw FabricError("real faults change the machine: run as root");
  LifelineSources sources;
  sources.runner_link = runner_link_;
  if (!plan_.ranks.empty()) sources.socket_names = environment_of(plan_.ranks[0])["NCCL_SOCKET_IFNAME"];
  real_ = std::make_unique<RealFaults>(
      plan_.real_faults, plan_.shape, plan_.nodes, [this](int node) { return devices_of(node); },
      bin_dir_ + "/r2bench-real-guard",
      [this](uint64_t time, const std::string& what, const std::string& text) {
        notes_.push_back({time, what, text});
      },
      MachinePlaces{"/sys", kUndoFolder, lifelines(sources)});
  for (const std::string& text : real_->in_words()) notes_.push_back({r2ccl::now_ns(), "will_change", text});
}

void LocalHost::put_back() {
  if (real_) real_->finish(*board_);
}

/// Beside the result, where the ranks and a curious user can read it.
void LocalHost::write_topology() {
  if (plan_.topology.empty()) return;
  if (folder_.empty()) {
    memory_files_.push_back(in_memory("r2bench-topology"));
    topology_path_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory_files_.back());
  } else {
    topology_path_ = std::filesystem::absolute(folder_ + "/topology.xml").string();
  }
  std::ofstream file(topology_path_);
  file << plan_.topology;
  if (!file.flush())
    throw FabricError("the topology cannot be written to " + topology_path_ + ": " +
                      std::system_category().message(errno));
}

void LocalHost::open_outputs() {
  output_ = std::make_unique<OutputCapture>();
  for (const RankPlan& rank : plan_.ranks) {
    if (folder_.empty()) {
      memory_files_.push_back(in_memory("r2bench-output"));
      logs_.push_back(memory_files_.back());
      outputs_.push_back(output_->add_file(fcntl(logs_.back(), F_DUPFD_CLOEXEC, 0)));
      continue;
    }
    const std::filesystem::path path = std::filesystem::path(folder_) / rank.log;
    std::error_code failed;
    std::filesystem::create_directory(path.parent_path(), failed);
    if (failed)
      throw FabricError("the folder " + path.parent_path().string() + " cannot be made: " + failed.message());
    try {
      outputs_.push_back(output_->add(path.string()));
    } catch (const std::system_error& e) {
      throw FabricError(e.what());
    }
  }
}

std::map<int, std::vector<std::string>> LocalHost::devices() const {
  std::map<int, std::vector<std::string>> all;
  for (const RankPlan& rank : plan_.ranks)
    if (auto names = devices_of(rank.node); !names.empty()) all.try_emplace(rank.node, std::move(names));
  return all;
}

std::vector<std::string> LocalHost::devices_of(int node) const {
  std::vector<std::string> names;
  const auto environment = fabric_->environment(node);
  const auto list = environment.find("FAULTINJECT_NICS");
  std::istringstream words(list == environment.end() ? "" : list->second);
  for (std::string name; std::getline(words, name, ',');) names.push_back(name);
  return names;
}

std::map<std::string, std::string> LocalHost::users_environment(const RankPlan& rank) const {
  auto environment = current_environment();
  environment["NCCL_SOCKET_IFNAME"] = "lo";
  for (const auto& [variable, value] : plan_.inherited) environment[variable] = value;
  for (const std::string& variable : rank.removed) environment.erase(variable);
  for (const auto& [variable, value] : rank.variables) environment[variable] = value;
  return environment;
}

std::map<std::string, std::string> LocalHost::environment_of(const RankPlan& rank) const {
  auto environment = users_environment(rank);
  // The scenario has the last word, but NCCL_IB_HCA decided which devices the fabric chose: these it names
  // now.
  const bool chosen = plan_.fabric == "verbs";
  for (const auto& [variable, value] : fabric_->environment(rank.node))
    if (!rank.variables.contains(variable) || (chosen && variable == kIbHca)) environment[variable] = value;
  if (!topology_path_.empty() && !rank.variables.contains("R2CC_TOPOLOGY"))
    environment["R2CC_TOPOLOGY"] = topology_path_;
  return environment;
}

void LocalHost::start() {
  for (size_t i = 0; i < plan_.ranks.size(); ++i) {
    const RankPlan& rank = plan_.ranks[i];
    ProcessSpec spec;
    spec.program = bin_dir_ + "/" + rank.program;
    spec.environment = environment_of(rank);
    spec.environment["R2CC_TRACE"] = rings_->path(i);
    spec.environment["R2BENCH_RANK"] = std::to_string(rank.rank);
    spec.environment["R2BENCH_CONTROL"] = bootstrap_->control(i);
    // The injector is always there, also without faults: its presence must not differ between the modes.
    add_injection(spec.environment,
                  {lib_dir_, fabric_->library_folders(), board_->path(), node_name(rank.node), rank.label});
    spec.output_fd = outputs_[i];
    spec.control_fd = bootstrap_->inherited_fd(i);
    ranks_.push_back(std::make_unique<LocalRank>(spec));
  }
  for (int fd : std::exchange(outputs_, {})) close(fd);
  bootstrap_->all_started();
  output_->start();
}

void LocalHost::tick() {
  if (real_) real_->tick(*board_);
  if (!bootstrap_ || ranks_.size() < plan_.ranks.size()) return;  // or not started
  bool all = true;
  for (size_t i = 0; i < ranks_.size(); ++i)
    all = ranks_[i]->connect(*bootstrap_, i, plan_.ranks[i].config) && all;
  if (all) bootstrap_.reset();
}

RankPort& LocalHost::rank(int rank) { return *ranks_.at(index_of(rank)); }

uint64_t LocalHost::drain(int rank, std::vector<r2ccl::trace::Event>& out) {
  return rings_->drain(index_of(rank), out);
}

ThreadReport LocalHost::threads() {
  ThreadReport report;
  std::vector<Suspect> suspects;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    suspects.push_back({plan_.ranks[i].label, ranks_[i]->pid()});
    report.brief[plan_.ranks[i].rank] = threads_in_brief(ranks_[i]->pid());
  }
  std::ostringstream full;
  write_threads_in_full(full, suspects, kBetweenLooks);
  report.full = full.str();
  return report;
}

std::string LocalHost::output(int rank, size_t from) const {
  std::string text(kMostOutput, '\0');
  const ssize_t n = logs_.empty() ? 0 : pread(logs_[index_of(rank)], text.data(), text.size(), off_t(from));
  text.resize(n > 0 ? size_t(n) : 0);
  return text;
}

}  // namespace r2bench
