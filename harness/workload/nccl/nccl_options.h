// SPDX-License-Identifier: Apache-2.0
// What the runner tells a rank of the engine nccl besides RankConfig: the key "nccl" of its first message.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/scenario/scenario.h"
#include "harness/scenario/turns.h"

namespace r2bench {

struct NcclOptions {
  std::string library;
  Transport transport = Transport::kPlugin;
  bool graph = false;
  int communicators = 1;
  int group_calls = 1;
  bool registers = false;
  bool blocking = true;
  int copies = 8;  ///< communicators of each transport, where two take turns
  int job_rank = 0;
  int ranks_per_node = 1;
  std::optional<Renewal> renewal;
  /// NICs that NCCL is told to be beside the GPU (NCCL_TOPO_FILE); empty: it finds out by itself.
  std::vector<std::string> placed_nics;

  int parts() const { return communicators * group_calls; }
  /// Whose turn an operation is: `copies` communicators of each transport.
  Turns turns() const { return {is_beside(transport) ? copies : 0}; }

  nlohmann::json to_json() const {
    nlohmann::json json = {{"library", library},
                           {"transport", int(transport)},
                           {"graph", graph},
                           {"communicators", communicators},
                           {"group_calls", group_calls},
                           {"registers", registers},
                           {"blocking", blocking},
                           {"copies", copies},
                           {"job_rank", job_rank},
                           {"ranks_per_node", ranks_per_node},
                           {"placed_nics", placed_nics}};
    if (renewal)
      json["renewal"] = {{"by", int(renewal->by)},
                         {"iter", renewal->iter},
                         {"delay_ns", renewal->delay ? int64_t(renewal->delay->count()) : -1},
                         {"without", renewal->without}};
    return json;
  }
  static NcclOptions from_json(const nlohmann::json& json) {
    NcclOptions o;
    o.library = json.at("library");
    o.transport = Transport(json.at("transport").get<int>());
    o.graph = json.at("graph");
    o.communicators = json.at("communicators");
    o.group_calls = json.at("group_calls");
    o.registers = json.at("registers");
    o.blocking = json.at("blocking");
    o.copies = json.at("copies");
    o.job_rank = json.at("job_rank");
    o.ranks_per_node = json.at("ranks_per_node");
    o.placed_nics = json.at("placed_nics").get<std::vector<std::string>>();
    if (json.contains("renewal")) {
      const nlohmann::json& r = json.at("renewal");
      o.renewal = Renewal{RenewBy(r.at("by").get<int>()), r.at("iter"), std::nullopt, r.at("without")};
      if (const int64_t delay = r.at("delay_ns"); delay >= 0)
        o.renewal->delay = std::chrono::nanoseconds(delay);
    }
    return o;
  }
};

}  // namespace r2bench
