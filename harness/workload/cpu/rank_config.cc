// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/rank_config.h"

#include <array>
#include <nlohmann/json.hpp>

namespace r2bench {

nlohmann::json RankConfig::to_json() const {
  return {{"type", "config"},
          {"group", {group.size, group.position, group.first, group.step}},
          {"label", label},
          {"plugin", plugin},
          {"plugin_abi", plugin_abi},
          {"op", int(op)},
          {"dtype", int(dtype)},
          {"reduction", int(reduction)},
          {"bytes", bytes},
          {"channels", channels},
          {"devices", devices},
          {"in_step", in_step},
          {"warmup", warmup},
          {"verify", verify},
          {"seed", seed},
          {"registered", registered},
          {"collnet", int(collnet)},
          {"in_place", in_place},
          {"buffer_bytes", buffer_bytes},
          {"p2p_chunk_bytes", p2p_chunk_bytes},
          {"setup_limit_ms", setup_limit_ms},
          {"pairs", pairs},
          {"other_plugin", other_plugin},
          {"other_environment", other_environment},
          {"other_collnet", int(other_collnet)}};
}

RankConfig RankConfig::from_json(const nlohmann::json& json) {
  RankConfig c;
  const auto group = json.at("group").get<std::array<int, 4>>();
  c.group = {group[0], group[1], group[2], group[3]};
  c.label = json.at("label");
  c.plugin = json.at("plugin");
  c.plugin_abi = json.at("plugin_abi");
  c.op = Operation(json.at("op").get<int>());
  c.dtype = DataType(json.at("dtype").get<int>());
  c.reduction = Reduction(json.at("reduction").get<int>());
  c.bytes = json.at("bytes");
  c.channels = json.at("channels");
  c.devices = json.at("devices").get<std::vector<int>>();
  c.in_step = json.at("in_step");
  c.warmup = json.at("warmup");
  c.verify = json.at("verify");
  c.seed = json.at("seed");
  c.registered = json.at("registered");
  c.collnet = CollNet(json.at("collnet").get<int>());
  c.in_place = json.at("in_place");
  c.buffer_bytes = json.at("buffer_bytes");
  c.p2p_chunk_bytes = json.at("p2p_chunk_bytes");
  c.setup_limit_ms = json.at("setup_limit_ms");
  c.pairs = json.at("pairs");
  c.other_plugin = json.at("other_plugin");
  c.other_environment = json.at("other_environment").get<std::map<std::string, std::string>>();
  c.other_collnet = CollNet(json.at("other_collnet").get<int>());
  return c;
}

}  // namespace r2bench
