// SPDX-License-Identifier: Apache-2.0
// How a job comes up: what its hosts are told, and its ranks with them. And what is said of one that does not
// move.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/fabric/topology_xml.h"
#include "harness/hosts/cluster.h"
#include "harness/launch/process.h"
#include "harness/real/real_faults.h"
#include "harness/run/exec_job.h"
#include "harness/run/job.h"
#include "harness/run/nccl_environment.h"
#include "harness/workload/cpu/rank_config.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

const std::string kLogFolder = "logs/";

size_t number_or(const std::map<std::string, std::string>& environment, const char* name, size_t otherwise) {
  const auto found = environment.find(name);
  const long value = found == environment.end() ? 0 : std::atol(found->second.c_str());
  return value > 0 ? size_t(value) : otherwise;
}

}  // namespace

void Job::start_ranks() {
  const Fabric& shape = scenario_.fabric;
  start_ns_ = r2ccl::now_ns();
  std::vector<RankPlace> places;
  for (int r = 0; r < shape.ranks(); ++r) {
    const Communicator group = communicator_of(scenario_, r);
    const int node = r / shape.ranks_per_node, previous = group.rank_at(group.position - 1);
    const std::string label = node_name(node) + "/rank" + std::to_string(r % shape.ranks_per_node);
    places.push_back({label, uint16_t(node), uint16_t(previous / shape.ranks_per_node)});
    ranks_.emplace_back(r, node, label);
    log_paths_.push_back(kLogFolder + log_prefix_ + "rank" + std::to_string(r) + ".log");
  }
  if (scenario_.workload.engine == Engine::kExec) exec_port_ = free_port();
  take_hosts();
  for (size_t h = 0; h < hosts_.size(); ++h) hosts_[h]->prepare(host_plan(nodes_of_hosts_[h]));
  const std::vector<faultinject::NodeShape> nodes = host_plan({}).node_shapes();
  if (options_.cluster) {
    std::vector<HostBoards::Part> parts;
    for (size_t h = 0; h < hosts_.size(); ++h) parts.push_back({&hosts_[h]->board(), nodes_of_hosts_[h]});
    boards_ = std::make_unique<HostBoards>(std::move(parts), nodes, seed_);
  }
  collector_ = std::make_unique<Collector>(
      places, [this](size_t rank, auto& out) { return host_of(int(rank)).drain(int(rank), out); },
      [this](auto type) {
        for (Host* host : hosts_) host->decline(type);
      });
  driver_ = std::make_unique<FaultDriver>(
      scenario_, repeats_, seed_, board(), ranks_, *collector_,
      [this](uint64_t time, const std::string& what, const std::string& text) { note(time, what, text); });
  if (scenario_.arm_at_start) driver_->arm_first();
  control_ = std::make_unique<JobControl>(
      board(), nodes, "scenario '" + scenario_.name + "' of r2bench run, mode " + mode_.label,
      [this](uint64_t time, const std::string& what, const std::string& text) { note(time, what, text); });
  for (Host* host : hosts_) host->start();
  for (RankLink& rank : ranks_) rank.attach(host_of(rank.rank()).rank(rank.rank()));
}

/// Which hosts there are, and which nodes live where.
void Job::take_hosts() {
  const Fabric& shape = scenario_.fabric;
  if (options_.cluster) {
    hosts_ = options_.cluster->hosts(options_.out_dir);
  } else {
    local_ = std::make_unique<LocalHost>(paths_.bin_dir, paths_.lib_dir, options_.out_dir);
    hosts_.push_back(local_.get());
  }
  if (hosts_.size() > size_t(shape.nodes))
    throw FabricError("the scenario '" + scenario_.name + "' has " + std::to_string(shape.nodes) +
                      " nodes, but there are " + std::to_string(hosts_.size()) +
                      " hosts; name as many hosts or fewer with --hosts");
  nodes_of_hosts_ = nodes_of_hosts(shape.nodes, int(hosts_.size()));
  for (size_t h = 0; h < hosts_.size(); ++h)
    host_of_rank_.insert(host_of_rank_.end(), size_t(nodes_of_hosts_[h].count * shape.ranks_per_node), h);
  if (!options_.cluster || fabric_name() != name(FabricKind::kVhca)) return;
  const HostFacts here = facts_of_this_host();
  for (const Host* host : hosts_)
    if (host->facts().boot_id != here.boot_id)
      throw FabricError("host " + host->facts().name + " is another machine than " + here.name +
                        ": virtual NICs are shared memory of one machine. Choose --fabric verbs");
  shared_fabric_ = make_fabric(fabric_name(), shape, paths_.lib_dir);
  for (NodesHere& nodes : nodes_of_hosts_) nodes.shared = shared_fabric_->shared();
}

std::string Job::fabric_name() const {
  return options_.fabric.empty() ? name(scenario_.fabric.kind) : options_.fabric;
}

HostPlan Job::host_plan(const NodesHere& nodes) const {
  HostPlan plan;
  plan.fabric = fabric_name();
  plan.shape = scenario_.fabric;
  plan.nodes = nodes;
  plan.seed = seed_;
  if (options_.allow_real_faults) plan.real_faults = real_faults_of(scenario_);
  plan.bootstrap_port = options_.bootstrap_port;
  if (scenario_.fabric.topology) plan.topology = topology_xml(scenario_.fabric);
  if (options_.cluster)
    for (const auto& [variable, value] : current_environment())
      if (variable.starts_with("NCCL_") || variable.starts_with("R2CC_")) plan.inherited[variable] = value;
  for (const auto& [variable, value] : shared_environment_) plan.inherited[variable] = value;
  const std::string program =
      std::filesystem::path(paths_.rank_program(scenario_.workload.engine)).filename().string();
  for (const RankLink& rank : ranks_) {
    if (rank.node() < nodes.first || rank.node() >= nodes.first + nodes.count) continue;
    RankPlan one{rank.rank(), rank.node(), rank.label(),      program,
                 {},          {},          rank_config(rank), log_paths_[size_t(rank.rank())]};
    one.variables = rank_variables(rank, one.removed);
    plan.ranks.push_back(std::move(one));
  }
  return plan;
}

std::map<std::string, std::string> Job::rank_variables(const RankLink& rank,
                                                       std::vector<std::string>& removed) const {
  std::map<std::string, std::string> variables;
  if (const auto& topology = scenario_.fabric.topology) {
    const std::string memory =
        std::to_string(socket_of_rank(scenario_.fabric, rank.rank() % scenario_.fabric.ranks_per_node));
    variables["VHCA_MEMORY_NODE"] = variables["R2CC_MEMORY_NODE"] = memory;
    variables["R2CC_CROSS_SOCKET"] = std::to_string(topology->cross_percent);
  }
  if (mode_.kind == ModeKind::kAllReduce) variables["NCCL_COLLNET_ENABLE"] = "1";
  if (scenario_.workload.engine != Engine::kCpu) {
    const auto users = current_environment();
    auto changed = users;
    add_nccl_environment(changed, rank);
    for (const auto& [variable, value] : changed)
      if (const auto own = users.find(variable); own == users.end() || own->second != value)
        variables[variable] = value;
    for (const auto& [variable, value] : users)
      if (!changed.contains(variable)) removed.push_back(variable);
  }
  for (const auto& [variable, value] : scenario_.env) variables[variable] = value;
  for (const auto& [variable, value] : mode_.env) variables[variable] = value;
  variables["R2CC_MODE"] = std::to_string(int(mode_.kind));
  return variables;
}

nlohmann::json Job::rank_config(const RankLink& rank) const {
  auto environment = current_environment();
  std::vector<std::string> removed;  // nothing of what is looked up here
  for (const auto& [variable, value] : rank_variables(rank, removed)) environment[variable] = value;
  RankConfig config;
  config.group = communicator_of(scenario_, rank.rank());
  config.in_step = in_step();
  config.label = rank.label();
  config.plugin = scenario_.plugin_of(mode_);
  config.plugin_abi = mode_.plugin.empty() ? scenario_.workload.plugin_abi : 0;
  config.op = scenario_.workload.op;
  config.dtype = scenario_.workload.dtype;
  config.reduction = scenario_.workload.reduction;
  config.bytes = scenario_.workload.bytes;
  config.channels = scenario_.workload.channels;
  if (scenario_.fabric.topology) {
    const int local_rank = rank.rank() % scenario_.fabric.ranks_per_node;
    config.channels = channels_of(scenario_, local_rank);
    config.devices = nics_from_near(scenario_.fabric, local_rank);
  }
  config.warmup = scenario_.workload.warmup;
  config.verify = scenario_.workload.verify;
  config.seed = seed_;
  config.collnet = mode_.kind == ModeKind::kAllReduce ? scenario_.workload.collnet : CollNet::kOff;
  config.in_place = scenario_.workload.in_place;
  config.registered = number_or(environment, "NCCL_LOCAL_REGISTER", 0) != 0;
  config.buffer_bytes = number_or(environment, "NCCL_BUFFSIZE", config.buffer_bytes);
  config.p2p_chunk_bytes = number_or(environment, "NCCL_P2P_NET_CHUNKSIZE", config.p2p_chunk_bytes);
  config.setup_limit_ms =
      int(std::chrono::duration_cast<std::chrono::milliseconds>(scenario_.timeouts.setup).count());
  if (mode_.beside) {
    const bool allreduce = mode_.beside->kind == ModeKind::kAllReduce;
    config.pairs = scenario_.workload.pairs();
    config.other_collnet = allreduce ? scenario_.workload.collnet : CollNet::kOff;
    config.other_plugin = scenario_.plugin_of(mode_, *mode_.beside);
    config.other_environment = mode_.beside->env;
    config.other_environment["R2CC_MODE"] = std::to_string(int(mode_.beside->kind));
    config.other_environment["NCCL_COLLNET_ENABLE"] = allreduce ? "1" : "0";
  }
  nlohmann::json message = config.to_json();
  if (scenario_.workload.engine == Engine::kNccl)
    message["nccl"] = nccl_options(scenario_, mode_, rank.rank());
  if (scenario_.workload.engine == Engine::kExec) message["exec"] = exec_options(rank);
  return message;
}

/// Where every thread of every rank is: in one line; in full in hang.txt beside the ranks' logs.
std::string Job::evidence_of_hang() {
  std::ostringstream text;
  ThreadReport threads;
  for (Host* host : hosts_) {
    ThreadReport one = host->threads();
    threads.brief.merge(one.brief);
    threads.full += one.full;
  }
  for (const RankLink& rank : ranks_)
    text << "; " << rank.label() << " has begun " << collector_->begun(size_t(rank.rank())) << " and ended "
         << collector_->ended(size_t(rank.rank())) << " iterations (threads:" << threads.brief.at(rank.rank())
         << ')';
  const std::string path = kLogFolder + log_prefix_ + "hang.txt";
  std::ofstream file(options_.out_dir + "/" + path);
  file << threads.full;
  if (file.flush()) text << "; more about each thread in " << path << " of the run's folder";
  return text.str();
}

}  // namespace r2bench
