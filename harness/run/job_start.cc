// How a job comes up (fabric, board, rings, processes with their environment) and what is said of one that
// does not move.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include "harness/launch/injection.h"
#include "harness/run/job.h"
#include "harness/workload/cpu/rank_config.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

constexpr size_t kRingEvents = 1 << 17;

size_t number_or(const std::map<std::string, std::string>& environment, const char* name, size_t otherwise) {
  const auto found = environment.find(name);
  const long value = found == environment.end() ? 0 : std::atol(found->second.c_str());
  return value > 0 ? size_t(value) : otherwise;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

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
    const int node = r / shape.ranks_per_node, previous = (r + shape.ranks() - 1) % shape.ranks();
    const std::string label = node_name(node) + "/rank" + std::to_string(r % shape.ranks_per_node);
    places.push_back({label, uint16_t(node), uint16_t(previous / shape.ranks_per_node)});
    ranks_.emplace_back(r, node, label);
  }
  collector_ = std::make_unique<Collector>(places, kRingEvents);
  try {
    bootstrap_ = std::make_unique<Bootstrap>(ranks_.size(), options_.bootstrap_port);
  } catch (const std::system_error& e) {
    if (options_.bootstrap_port == 0) throw;
    throw UsageError("TCP port " + std::to_string(options_.bootstrap_port) + " on the loopback cannot be used: " +
                     e.code().message() + "; choose another port, or none");
  }

  output_ = std::make_unique<OutputCapture>();
  const std::string folder = options_.out_dir + "/logs";
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    throw UsageError("the folder " + folder + " cannot be made: " + std::system_category().message(errno));
  std::vector<int> outputs;
  for (const RankLink& rank : ranks_) {
    log_paths_.push_back(folder + "/" + log_prefix_ + "rank" + std::to_string(rank.rank()) + ".log");
    try {
      outputs.push_back(output_->add(log_paths_.back()));
    } catch (const std::system_error& e) {
      for (int fd : outputs) close(fd);
      throw UsageError(e.what());
    }
  }
  driver_ = std::make_unique<FaultDriver>(
      scenario_, repeats_, seed_, *board_, ranks_, *collector_,
      [this](uint64_t time, const std::string& what, const std::string& text) { note(time, what, text); });
  control_ = std::make_unique<JobControl>(
      *board_, nodes, "scenario '" + scenario_.name + "' of r2bench run, mode " + mode_.label,
      [this](uint64_t time, const std::string& what, const std::string& text) { note(time, what, text); });
  ticker_ = std::make_unique<Ticker>();

  for (RankLink& rank : ranks_) {
    ProcessSpec spec;
    spec.program = paths_.rank_program();
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

std::map<std::string, std::string> Job::rank_environment(const RankLink& rank) const {
  auto environment = current_environment();
  environment["NCCL_SOCKET_IFNAME"] = "lo";
  for (const auto& [variable, value] : fabric_->environment(rank.node())) environment[variable] = value;
  for (const auto& [variable, value] : scenario_.env) environment[variable] = value;
  for (const auto& [variable, value] : mode_.env) environment[variable] = value;
  environment["R2CC_MODE"] = std::to_string(int(mode_.kind));
  environment["R2CC_TRACE"] = collector_->ring_path(size_t(rank.rank()));
  environment["R2BENCH_RANK"] = std::to_string(rank.rank());
  if (bootstrap_) environment["R2BENCH_CONTROL"] = bootstrap_->control(size_t(rank.rank()));
  // The injector is always there, also without faults: its presence must not differ between the modes.
  add_injection(environment, {paths_.lib_dir, fabric_->library_folders(), board_->path(), node_name(rank.node()), rank.label()});
  return environment;
}

nlohmann::json Job::rank_config(const RankLink& rank) const {
  const auto environment = rank_environment(rank);
  RankConfig config;
  config.rank = rank.rank();
  config.ranks = int(ranks_.size());
  config.label = rank.label();
  config.plugin = scenario_.workload.plugin;
  config.plugin_abi = scenario_.workload.plugin_abi;
  config.op = scenario_.workload.op;
  config.dtype = scenario_.workload.dtype;
  config.bytes = scenario_.workload.bytes;
  config.channels = scenario_.workload.channels;
  config.warmup = scenario_.workload.warmup;
  config.verify = scenario_.workload.verify;
  config.registered = number_or(environment, "NCCL_LOCAL_REGISTER", 0) != 0;
  config.buffer_bytes = number_or(environment, "NCCL_BUFFSIZE", config.buffer_bytes);
  config.p2p_chunk_bytes = number_or(environment, "NCCL_P2P_NET_CHUNKSIZE", config.p2p_chunk_bytes);
  config.setup_limit_ms = int(std::chrono::duration_cast<std::chrono::milliseconds>(scenario_.timeouts.setup).count());
  return config.to_json();
}

/// Where every thread of every rank is, as far as the kernel tells without special rights.
std::string Job::evidence_of_hang() const {
  std::ostringstream text;
  for (const RankLink& rank : ranks_) {
    text << "; " << rank.label() << " has begun " << collector_->begun(size_t(rank.rank())) << " and ended "
         << collector_->ended(size_t(rank.rank())) << " iterations";
    const std::string tasks = "/proc/" + std::to_string(rank.pid()) + "/task";
    DIR* folder = opendir(tasks.c_str());
    if (!folder) {
      text << " (gone)";
      continue;
    }
    text << " (threads:";
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] == '.') continue;
      const std::string task = tasks + "/" + entry->d_name;
      const std::string status = first_line(task + "/stat");
      const size_t name_end = status.rfind(')');
      const char state = name_end != std::string::npos && name_end + 2 < status.size() ? status[name_end + 2] : '?';
      const std::string waits = first_line(task + "/wchan");
      text << ' ' << first_line(task + "/comm") << ' ' << state;
      if (!waits.empty() && waits != "0") text << ':' << waits;
    }
    closedir(folder);
    text << ')';
  }
  return text.str();
}

}  // namespace r2bench
