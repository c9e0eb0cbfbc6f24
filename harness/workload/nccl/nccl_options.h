// What the runner tells a rank of the engine nccl besides RankConfig: the key "nccl" of its first message.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/scenario/scenario.h"

namespace r2bench {

struct NcclOptions {
  std::string library;
  Transport transport = Transport::kPlugin;
  bool graph = false;
  int communicators = 1;
  int group_calls = 1;
  int job_rank = 0;
  int ranks_per_node = 1;
  /// NICs that NCCL is told to be beside the GPU (NCCL_TOPO_FILE); empty: it finds out by itself.
  std::vector<std::string> placed_nics;

  int parts() const { return communicators * group_calls; }

  nlohmann::json to_json() const {
    return {{"library", library},
            {"transport", int(transport)},
            {"graph", graph},
            {"communicators", communicators},
            {"group_calls", group_calls},
            {"job_rank", job_rank},
            {"ranks_per_node", ranks_per_node},
            {"placed_nics", placed_nics}};
  }
  static NcclOptions from_json(const nlohmann::json& json) {
    NcclOptions o;
    o.library = json.at("library");
    o.transport = Transport(json.at("transport").get<int>());
    o.graph = json.at("graph");
    o.communicators = json.at("communicators");
    o.group_calls = json.at("group_calls");
    o.job_rank = json.at("job_rank");
    o.ranks_per_node = json.at("ranks_per_node");
    o.placed_nics = json.at("placed_nics").get<std::vector<std::string>>();
    return o;
  }
};

}  // namespace r2bench
