// SPDX-License-Identifier: Apache-2.0
// The engine exec in a job: what a command is told, and what its output tells of operations.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "harness/hosts/cluster.h"
#include "harness/run/exec_job.h"
#include "harness/run/job.h"
#include "harness/workload/exec/exec_options.h"

namespace r2bench {

using r2ccl::trace::EventType;

uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool found = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (fd >= 0) close(fd);
  return found ? ntohs(address.sin_port) : 29500;  // torchrun's own
}

nlohmann::json Job::exec_options(const RankLink& rank) const {
  const ExecSettings& exec = scenario_.workload.exec;
  const Fabric& shape = scenario_.fabric;
  ExecOptions options;
  options.arguments = exec.arguments;
  options.nccl_tests = exec.nccl_tests;
  options.begin = exec.begin;
  options.iteration = exec.iteration;
  options.network = scenario_.transport_of(mode_) == Transport::kPlugin ? "R2CCL in a command"
                                                                        : "IB transport of NCCL in a command";
  if (scenario_.workload.plugin != Workload{}.plugin && scenario_.transport_of(mode_) == Transport::kPlugin)
    options.network = scenario_.workload.plugin + " in a command";
  options.place = {{"RANK", std::to_string(rank.rank())},
                   {"WORLD_SIZE", std::to_string(shape.ranks())},
                   {"LOCAL_RANK", std::to_string(rank.rank() % shape.ranks_per_node)},
                   {"LOCAL_WORLD_SIZE", std::to_string(shape.ranks_per_node)},
                   {"NODE_RANK", std::to_string(rank.node())},
                   {"NNODES", std::to_string(shape.nodes)},
                   {"MASTER_ADDR", options_.cluster ? options_.cluster->master_address() : "127.0.0.1"},
                   {"MASTER_PORT", std::to_string(exec_port_)},
                   {"PYTHONUNBUFFERED", "1"}};
  for (const auto* own : {&scenario_.env, &mode_.env})
    for (const auto& [variable, value] : *own)
      if (options.place.contains(variable)) options.place[variable] = value;
  return options.to_json();
}

void Job::take_printed() {
  for (RankLink& rank : ranks_) {
    for (; !rank.printed.empty(); rank.printed.pop_front()) {
      const RankLink::Printed& line = rank.printed.front();
      if (line.begun && collector_->begun_by_any() == 0)
        collector_->mark_all(EventType::kIteration, 0, line.time_ns);
      if (!line.iteration || (printing_ && printing_ != &rank)) continue;
      printing_ = &rank;
      collector_->mark_all(EventType::kIterationDone, printed_, line.time_ns);
      collector_->mark_all(EventType::kIteration, ++printed_, line.time_ns);
    }
  }
  if (printed_over_ || !all_commands_ended()) return;
  printed_over_ = true;
  if (printing_) return collector_->drop_open();
  uint64_t last_ns = 0;
  for (const RankLink& rank : ranks_) last_ns = std::max(last_ns, rank.command_ended_ns);
  if (collector_->begun_by_all() > 0) collector_->mark_all(EventType::kIterationDone, 0, last_ns);
}

bool Job::all_commands_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const RankLink& rank) { return rank.command.has_value(); });
}

}  // namespace r2bench
