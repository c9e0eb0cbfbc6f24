// SPDX-License-Identifier: Apache-2.0
// What the runner tells a rank before anything else, as one message.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/scenario/scenario.h"
#include "harness/workload/cpu/pattern.h"
#include "harness/workload/rank_exit.h"

namespace r2bench {

struct RankConfig {
  Communicator group{2, 0, 0, 1};
  std::string label;   ///< node0/rank0
  std::string plugin;  ///< as in NCCL_NET_PLUGIN
  int plugin_abi = 0;
  Operation op = Operation::kAllReduce;
  DataType dtype = DataType::kFloat32;
  Reduction reduction = Reduction::kSum;
  size_t bytes = 0;
  int channels = 0;  ///< 0: one per device
  /// In the order in which channels take them; empty: as the plugin has them.
  std::vector<int> devices;
  /// An operation begins only when every rank of the job is ready for it: several groups must not run apart,
  /// as they do not where ranks of one node exchange something, too.
  bool in_step = false;
  int warmup = 0;
  bool verify = true;
  uint64_t seed = 0;  ///< of the data
  /// Like NCCL with registered user buffers: SendRecv goes straight from and to the user's memory.
  bool registered = false;
  CollNet collnet = CollNet::kAuto;
  bool in_place = false;                ///< the result goes where the input was
  size_t buffer_bytes = 4u << 20;       ///< NCCL_BUFFSIZE: slots of one connection, 8 steps
  size_t p2p_chunk_bytes = 128u << 10;  ///< NCCL_P2P_NET_CHUNKSIZE: one message of a SendRecv
  int setup_limit_ms = 60'000;
  /// Where two sides take turns (Turns): so many communicators of each, the other side's plugin, what it
  /// finds in the environment, and its CollNet. 0: one side.
  int pairs = 0;
  std::string other_plugin;
  std::map<std::string, std::string> other_environment;
  CollNet other_collnet = CollNet::kOff;

  int rank() const { return group.position; }  ///< within the group
  int ranks() const { return group.size; }
  uint32_t job_rank(int of) const { return uint32_t(group.rank_at(of)); }  ///< of any place in the group

  /// What the buffers hold.
  Data data() const { return {dtype, reduction, uint32_t(group.size)}; }

  nlohmann::json to_json() const;
  static RankConfig from_json(const nlohmann::json& json);
};

}  // namespace r2bench
