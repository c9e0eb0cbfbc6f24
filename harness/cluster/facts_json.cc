// SPDX-License-Identifier: Apache-2.0
// Facts as JSON, on their way from one host to another and to the user.
#include "harness/cluster/facts.h"

namespace r2bench {
namespace {

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

template <typename T>
std::optional<T> maybe(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return found->get<T>();
}

nlohmann::json port_json(const PortFacts& p) {
  nlohmann::json gids = nlohmann::json::array(), bridges = nlohmann::json::array();
  for (const GidFacts& gid : p.gids)
    gids.push_back({{"index", gid.index}, {"gid", gid.gid}, {"type", gid.type}});
  for (const BridgeFacts& bridge : p.bridges)
    bridges.push_back({{"address", bridge.address}, {"acs_control", or_null(bridge.acs_control)}});
  return {{"device", p.device},
          {"port", p.port},
          {"state", p.state},
          {"link_layer", p.link_layer},
          {"rate", p.rate},
          {"active_mtu", p.active_mtu},
          {"max_mtu", p.max_mtu},
          {"gids", gids},
          {"interface", p.interface},
          {"interface_mtu", p.interface_mtu},
          {"addresses", p.addresses},
          {"firmware", p.firmware},
          {"board", p.board},
          {"driver", p.driver},
          {"pci", p.pci},
          {"pci_speed", p.pci_speed},
          {"pci_speed_max", p.pci_speed_max},
          {"pci_width", p.pci_width},
          {"pci_width_max", p.pci_width_max},
          {"numa_node", p.numa_node},
          {"bridges", bridges},
          {"dpu_mode", p.dpu_mode},
          {"pfc", or_null(p.pfc)},
          {"rate_limit", or_null(p.rate_limit)},
          {"ecn", or_null(p.ecn)},
          {"soft", p.soft},
          {"default_route", p.default_route},
          {"left_out", p.left_out}};
}

PortFacts port_from(const nlohmann::json& json) {
  PortFacts p;
  json.at("device").get_to(p.device);
  json.at("port").get_to(p.port);
  json.at("state").get_to(p.state);
  json.at("link_layer").get_to(p.link_layer);
  json.at("rate").get_to(p.rate);
  json.at("active_mtu").get_to(p.active_mtu);
  json.at("max_mtu").get_to(p.max_mtu);
  for (const auto& gid : json.at("gids")) p.gids.push_back({gid.at("index"), gid.at("gid"), gid.at("type")});
  json.at("interface").get_to(p.interface);
  json.at("interface_mtu").get_to(p.interface_mtu);
  json.at("addresses").get_to(p.addresses);
  json.at("firmware").get_to(p.firmware);
  json.at("board").get_to(p.board);
  json.at("driver").get_to(p.driver);
  json.at("pci").get_to(p.pci);
  json.at("pci_speed").get_to(p.pci_speed);
  json.at("pci_speed_max").get_to(p.pci_speed_max);
  json.at("pci_width").get_to(p.pci_width);
  json.at("pci_width_max").get_to(p.pci_width_max);
  json.at("numa_node").get_to(p.numa_node);
  for (const auto& bridge : json.at("bridges"))
    p.bridges.push_back({bridge.at("address"), maybe<int>(bridge, "acs_control")});
  json.at("dpu_mode").get_to(p.dpu_mode);
  p.pfc = maybe<std::string>(json, "pfc");
  p.rate_limit = maybe<std::string>(json, "rate_limit");
  p.ecn = maybe<bool>(json, "ecn");
  json.at("soft").get_to(p.soft);
  json.at("default_route").get_to(p.default_route);
  json.at("left_out").get_to(p.left_out);
  return p;
}

}  // namespace

void to_json(nlohmann::json& json, const RdmaHostFacts& facts) {
  nlohmann::json ports = nlohmann::json::array();
  for (const PortFacts& port : facts.ports) ports.push_back(port_json(port));
  json = {{"host", facts.host},
          {"kernel", facts.kernel},
          {"memlock_bytes", facts.memlock_bytes == UINT64_MAX ? nlohmann::json("unlimited")
                                                              : nlohmann::json(facts.memlock_bytes)},
          {"root", facts.root},
          {"gpus", facts.gpus},
          {"peer_memory", facts.peer_memory},
          {"missing_tools", facts.missing_tools},
          {"ports", ports}};
}

void from_json(const nlohmann::json& json, RdmaHostFacts& facts) {
  json.at("host").get_to(facts.host);
  json.at("kernel").get_to(facts.kernel);
  const auto& memlock = json.at("memlock_bytes");
  facts.memlock_bytes = memlock.is_string() ? UINT64_MAX : memlock.get<uint64_t>();
  json.at("root").get_to(facts.root);
  json.at("gpus").get_to(facts.gpus);
  json.at("peer_memory").get_to(facts.peer_memory);
  json.at("missing_tools").get_to(facts.missing_tools);
  facts.ports.clear();
  for (const auto& port : json.at("ports")) facts.ports.push_back(port_from(port));
}

}  // namespace r2bench
