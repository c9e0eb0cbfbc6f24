// SPDX-License-Identifier: Apache-2.0
// What the runner tells a rank of the engine nccl besides RankConfig: the key "nccl" of its first message.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
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
  bool registers = false;
  bool blocking = true;
  int copies = 8;  ///< communicators of each transport, where two take turns
  int job_rank = 0;
  int ranks_per_node = 1;
  std::optional<Renewal> renewal;
  /// NICs that NCCL is told to be beside the GPU (NCCL_TOPO_FILE); empty: it finds out by itself.
  std::vector<std::string> placed_nics;

  int parts() const { return communicators * group_calls; }
  /// Sets of communicators; each operation uses one. A comparison has `copies` of each side, made in
  /// the order 0 1 1 0: communicators of one transport differ from each other by more than the transports do.
  int sets() const { return is_beside(transport) ? 2 * copies : 1; }
  static int side_of_set(int set) { return (set ^ set / 2) & 1; }
  /// Each turn of 16 operations is of the next two sets: four of one, eight of the other, four of the one. A
  /// drift of the machine favours neither, and of four operations three follow one of their own side. When
  /// all sets have had a turn, the other side begins: the first four find other data in the caches.
  static constexpr uint64_t kTurn = NcclSettings::kTurn;
  int side(uint64_t operation) const {
    if (!is_beside(transport)) return 0;
    const uint64_t round = operation / kTurn / uint64_t(copies);
    return int((operation / 4 ^ operation / 8 ^ round) & 1);
  }
  int set(uint64_t operation) const {
    if (!is_beside(transport)) return 0;
    const int pair = int(operation / kTurn % uint64_t(copies)) * 2;
    return pair + (side(operation) != side_of_set(pair));
  }
  /// Warm-ups go through all: the first operation of a communicator connects it.
  int set_of_warmup(uint64_t warmup) const { return int(warmup % uint64_t(sets())); }

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
