#include "harness/workload/cpu/rank_config.h"

namespace r2bench {

nlohmann::json RankConfig::to_json() const {
  return {{"type", "config"},
          {"rank", rank},
          {"ranks", ranks},
          {"label", label},
          {"plugin", plugin},
          {"plugin_abi", plugin_abi},
          {"op", int(op)},
          {"dtype", int(dtype)},
          {"bytes", bytes},
          {"channels", channels},
          {"warmup", warmup},
          {"verify", verify},
          {"registered", registered},
          {"buffer_bytes", buffer_bytes},
          {"p2p_chunk_bytes", p2p_chunk_bytes},
          {"setup_limit_ms", setup_limit_ms}};
}

RankConfig RankConfig::from_json(const nlohmann::json& json) {
  RankConfig c;
  c.rank = json.at("rank");
  c.ranks = json.at("ranks");
  c.label = json.at("label");
  c.plugin = json.at("plugin");
  c.plugin_abi = json.at("plugin_abi");
  c.op = Operation(json.at("op").get<int>());
  c.dtype = DataType(json.at("dtype").get<int>());
  c.bytes = json.at("bytes");
  c.channels = json.at("channels");
  c.warmup = json.at("warmup");
  c.verify = json.at("verify");
  c.registered = json.at("registered");
  c.buffer_bytes = json.at("buffer_bytes");
  c.p2p_chunk_bytes = json.at("p2p_chunk_bytes");
  c.setup_limit_ms = json.at("setup_limit_ms");
  return c;
}

}  // namespace r2bench
