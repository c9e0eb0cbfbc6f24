// How a job comes up (fabric, board, rings, processes with their environment) and what is said of one that
// does not move.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "harness/fabric/topology_xml.h"
#include "harness/launch/injection.h"
#include "harness/run/hang_evidence.h"
#include "harness/run/job.h"
#include "harness/run/nccl_environment.h"
#include "harness/workload/cpu/rank_config.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

const std::string kLogFolder = "logs/";

/// Events that each rank's ring holds, a power of two: the rings' memory (64 bytes an event) is taken before
/// the job begins, so that many ranks get smaller ones. A rank of many is also slower at filling its own.
size_t ring_events(size_t ranks) {
  constexpr size_t kMost = 1 << 17, kLeast = 1 << 13, kAll = 1 << 21;
  size_t events = kMost;
  while (events > kLeast && events * ranks > kAll) events /= 2;
  return events;
}

size_t number_or(const std::map<std::string, std::string>& environment, const char* name, size_t otherwise) {
  const auto found = environment.find(name);
  const long value = found == environment.end() ? 0 : std::atol(found->second.c_str());
  return value > 0 ? size_t(value) : otherwise;
}

/// Between two looks at the threads of a job that hangs.
constexpr std::chrono::milliseconds kBetweenLooks{200};

}  // namespace

void Job::start_ranks() {
  const Fabric& shape = scenario_.fabric;
  start_ns_ = r2ccl::now_ns();
  fabric_ = make_fabric(options_.fabric.empty() ? name(shape.kind) : options_.fabric, shape, paths_.lib_dir);
  std::vector<faultinject::NodeShape> nodes;
  for (int n = 0; n < shape.nodes; ++n) nodes.push_back({node_name(n), uint32_t(shape.nics_per_node)});
  board_ = std::make_unique<faultinject::BoardHost>(faultinject::BoardHost::create(nodes, seed_));

  std::vector<RankPlace> places;
  for (int r = 0; r < shape.ranks(); ++r) {
    const Communicator group = communicator_of(scenario_, r);
    const int node = r / shape.ranks_per_node, previous = group.rank_at(group.position - 1);
    const std::string label = node_name(node) + "/rank" + std::to_string(r % shape.ranks_per_node);
    places.push_back({label, uint16_t(node), uint16_t(previous / shape.ranks_per_node)});
    ranks_.emplace_back(r, node, label);
  }
  collector_ = std::make_unique<Collector>(places, ring_events(places.size()));
  try {
    bootstrap_ = std::make_unique<Bootstrap>(ranks_.size(), options_.bootstrap_port);
  } catch (const std::system_error& e) {
    if (options_.bootstrap_port == 0) throw;
    throw UsageError("TCP port " + std::to_string(options_.bootstrap_port) +
                     " on the loopback cannot be used: " + e.code().message() +
                     "; choose another port, or none");
  }

  write_topology();
  plan_real_faults();
  output_ = std::make_unique<OutputCapture>();
  const std::string folder = options_.out_dir + "/" + kLogFolder;
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    throw UsageError("the folder " + folder + " cannot be made: " + std::system_category().message(errno));
  std::vector<int> outputs;
  for (const RankLink& rank : ranks_) {
    log_paths_.push_back(kLogFolder + log_prefix_ + "rank" + std::to_string(rank.rank()) + ".log");
    try {
      outputs.push_back(output_->add(options_.out_dir + "/" + log_paths_.back()));
    } catch (const std::system_error& e) {
      for (int fd : outputs) close(fd);
      throw UsageError(e.what());
    }
  }
  driver_ = std::make_unique<FaultDriver>(
      scenario_, repeats_, seed_, *board_, ranks_, *collector_,
      [this](uint64_t time, const std::string& what, const std::string& text) { note(time, what, text); });
  if (scenario_.arm_at_start) driver_->arm_first();
  control_ = std::make_unique<JobControl>(
      *board_, nodes, "scenario '" + scenario_.name + "' of r2bench run, mode " + mode_.label,
      [this](uint64_t time, const std::string& what, const std::string& text) { note(time, what, text); });

  for (RankLink& rank : ranks_) {
    ProcessSpec spec;
    spec.program = paths_.rank_program(scenario_.workload.engine);
    spec.environment = rank_environment(rank);
    spec.output_fd = outputs[size_t(rank.rank())];
    spec.control_fd = bootstrap_->inherited_fd(size_t(rank.rank()));
    try {
      rank.start(spec);
    } catch (...) {
      for (int fd : outputs) close(fd);
      throw;
    }
  }
  for (int fd : outputs) close(fd);
  bootstrap_->all_started();
  output_->start();
}

/// Before the ranks start: what is going to be done to this machine, or why it cannot be.
void Job::plan_real_faults() {
  if (!has_real_faults(scenario_)) return;
  const auto devices = [this](int node) {
    std::vector<std::string> names;
    const auto environment = fabric_->environment(node);
    const auto list = environment.find("FAULTINJECT_NICS");
    std::istringstream words(list == environment.end() ? "" : list->second);
    for (std::string name; std::getline(words, name, ',');) names.push_back(name);
    return names;
  };
  real_ = std::make_unique<RealFaults>(
      scenario_, devices, paths_.bin_dir + "/r2bench-real-guard",
      [this](uint64_t time, const std::string& what, const std::string& text) { note(time, what, text); });
  for (const std::string& text : real_->in_words()) note(r2ccl::now_ns(), "will_change", text);
}

/// The node's topology beside the result, where the ranks and a curious user can read it.
void Job::write_topology() {
  if (!scenario_.fabric.topology) return;
  topology_path_ = std::filesystem::absolute(options_.out_dir + "/topology.xml").string();
  std::ofstream file(topology_path_);
  file << topology_xml(scenario_.fabric);
  if (!file.flush())
    throw UsageError("the topology cannot be written to " + topology_path_ + ": " +
                     std::system_category().message(errno));
}

std::map<std::string, std::string> Job::rank_environment(const RankLink& rank) const {
  auto environment = current_environment();
  environment["NCCL_SOCKET_IFNAME"] = "lo";
  for (const auto& [variable, value] : shared_environment_) environment[variable] = value;
  for (const auto& [variable, value] : fabric_->environment(rank.node())) environment[variable] = value;
  if (const auto& topology = scenario_.fabric.topology) {
    const std::string memory =
        std::to_string(socket_of_rank(scenario_.fabric, rank.rank() % scenario_.fabric.ranks_per_node));
    environment["VHCA_MEMORY_NODE"] = environment["R2CC_MEMORY_NODE"] = memory;
    environment["R2CC_TOPOLOGY"] = topology_path_;
    environment["R2CC_CROSS_SOCKET"] = std::to_string(topology->cross_percent);
  }
  if (mode_.kind == ModeKind::kAllReduce) {
    environment["NCCL_COLLNET_ENABLE"] = "1";
    // The cpu workload makes a group for each NIC; NCCL may not.
    if (scenario_.workload.engine == Engine::kCpu) environment["R2CC_COLLNET_NICS"] = "1";
  }
  if (scenario_.workload.engine == Engine::kNccl) add_nccl_environment(environment, rank);
  for (const auto& [variable, value] : scenario_.env) environment[variable] = value;
  for (const auto& [variable, value] : mode_.env) environment[variable] = value;
  environment["R2CC_MODE"] = std::to_string(int(mode_.kind));
  environment["R2CC_TRACE"] = collector_->ring_path(size_t(rank.rank()));
  environment["R2BENCH_RANK"] = std::to_string(rank.rank());
  if (bootstrap_) environment["R2BENCH_CONTROL"] = bootstrap_->control(size_t(rank.rank()));
  // The injector is always there, also without faults: its presence must not differ between the modes.
  add_injection(environment, {paths_.lib_dir, fabric_->library_folders(), board_->path(),
                              node_name(rank.node()), rank.label()});
  return environment;
}

nlohmann::json Job::rank_config(const RankLink& rank) const {
  const auto environment = rank_environment(rank);
  RankConfig config;
  config.group = communicator_of(scenario_, rank.rank());
  config.in_step = in_step();
  config.label = rank.label();
  config.plugin = scenario_.workload.plugin;
  config.plugin_abi = scenario_.workload.plugin_abi;
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
  nlohmann::json message = config.to_json();
  if (scenario_.workload.engine == Engine::kNccl)
    message["nccl"] = nccl_options(scenario_, mode_, rank.rank());
  return message;
}

/// Where every thread of every rank is: in one line; in full in hang.txt beside the ranks' logs.
std::string Job::evidence_of_hang() const {
  std::ostringstream text;
  std::vector<Suspect> suspects;
  for (const RankLink& rank : ranks_) {
    suspects.push_back({rank.label(), rank.pid()});
    text << "; " << rank.label() << " has begun " << collector_->begun(size_t(rank.rank())) << " and ended "
         << collector_->ended(size_t(rank.rank())) << " iterations (threads:" << threads_in_brief(rank.pid())
         << ')';
  }
  const std::string path = kLogFolder + log_prefix_ + "hang.txt";
  std::ofstream file(options_.out_dir + "/" + path);
  write_threads_in_full(file, suspects, kBetweenLooks);
  if (file.flush()) text << "; more about each thread in " << path << " of the run's folder";
  return text.str();
}

}  // namespace r2bench
