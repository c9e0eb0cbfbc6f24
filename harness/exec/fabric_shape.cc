// SPDX-License-Identifier: Apache-2.0
#include "harness/exec/fabric_shape.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "faultinject/plan/units.h"
#include "harness/fabric/device_fabric.h"

namespace r2bench {
namespace {

std::string rate_text(uint64_t bits_per_s) {
  return bits_per_s == 0 ? "unlimited" : faultinject::format_rate(bits_per_s);
}

std::string count_text(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::vector<faultinject::NodeShape> FabricShape::nodes() const {
  std::vector<faultinject::NodeShape> all;
  const uint32_t ports =
      kind == "vhca" ? uint32_t(fabric.ports.per_nic) : 0;  // those of other devices are unknown
  for (int n = 0; n < fabric.nodes; ++n) all.push_back({node_name(n), uint32_t(fabric.nics_per_node), ports});
  return all;
}

FabricShape shape_of(const WantedShape& wanted) {
  FabricShape shape;
  shape.kind = wanted.kind.value_or("vhca");
  if (shape.kind != "vhca" && shape.kind != "none")
    throw std::invalid_argument("there is no fabric '" + shape.kind +
                                "' for exec; choose vhca, or none (the devices that this host has)");
  if (shape.kind == "none" &&
      (wanted.rate_bits_per_s || wanted.latency || wanted.link || wanted.ports || wanted.mtu))
    throw std::invalid_argument(
        "--rate, --latency, --link, --ports and --mtu are those of virtual NICs; with --fabric none the "
        "devices have their own");
  shape.fabric.nodes = wanted.nodes.value_or(2);
  shape.fabric.nics_per_node = wanted.nics.value_or(4);
  shape.fabric.nic_rate_bits_per_s = wanted.rate_bits_per_s.value_or(0);
  shape.fabric.latency = wanted.latency.value_or(std::chrono::nanoseconds(0));
  shape.fabric.ports.link = wanted.link.value_or(shape.fabric.ports.link);
  shape.fabric.ports.per_nic = wanted.ports.value_or(shape.fabric.ports.per_nic);
  shape.fabric.ports.mtu = wanted.mtu.value_or(shape.fabric.ports.mtu);
  shape.seed = wanted.seed.value_or(1);
  return shape;
}

std::string describe(const FabricShape& shape) {
  std::string text = (shape.kind == "none" ? std::string("the host's devices") : shape.kind) + ", " +
                     count_text(shape.fabric.nodes, "node") + " with " +
                     count_text(shape.fabric.nics_per_node, "NIC") + " each";
  if (shape.kind == "none") return text;
  text += ", " + rate_text(shape.fabric.nic_rate_bits_per_s);
  if (shape.fabric.nic_rate_bits_per_s == 0) text += " rate";
  text += ", " + faultinject::format_duration(shape.fabric.latency);
  const VirtualPorts usual;
  if (shape.fabric.ports.link != usual.link) text += std::string(", ") + name(shape.fabric.ports.link);
  if (shape.fabric.ports.per_nic != usual.per_nic)
    text += ", " + count_text(shape.fabric.ports.per_nic, "port") + " each";
  if (shape.fabric.ports.mtu != usual.mtu) text += ", MTU " + std::to_string(shape.fabric.ports.mtu);
  return text;
}

std::string mismatch(const WantedShape& wanted, const FabricShape& there) {
  std::string text;
  const auto differs = [&](const std::string& option, const std::string& asked, const std::string& has) {
    if (asked != has)
      text += (text.empty() ? "" : "; ") + option + " " + asked + " was asked for, but it has " + has;
  };
  if (wanted.kind) differs("--fabric", *wanted.kind, there.kind);
  if (wanted.nodes) differs("--nodes", std::to_string(*wanted.nodes), std::to_string(there.fabric.nodes));
  if (wanted.nics)
    differs("--nics", std::to_string(*wanted.nics), std::to_string(there.fabric.nics_per_node));
  if (wanted.rate_bits_per_s)
    differs("--rate", rate_text(*wanted.rate_bits_per_s), rate_text(there.fabric.nic_rate_bits_per_s));
  if (wanted.latency)
    differs("--latency", faultinject::format_duration(*wanted.latency),
            faultinject::format_duration(there.fabric.latency));
  if (wanted.link) differs("--link", name(*wanted.link), name(there.fabric.ports.link));
  if (wanted.ports)
    differs("--ports", std::to_string(*wanted.ports), std::to_string(there.fabric.ports.per_nic));
  if (wanted.mtu) differs("--mtu", std::to_string(*wanted.mtu), std::to_string(there.fabric.ports.mtu));
  if (wanted.seed) differs("--seed", std::to_string(*wanted.seed), std::to_string(there.seed));
  return text;
}

void check_node(const FabricShape& shape, const std::string& node) {
  std::string known;
  for (const auto& one : shape.nodes()) {
    if (one.name == node) return;
    known += (known.empty() ? "" : ", ") + one.name;
  }
  throw std::invalid_argument("there is no node '" + node + "'; there is " + known);
}

nlohmann::json to_json(const FabricShape& shape) {
  return {{"kind", shape.kind},
          {"nodes", shape.fabric.nodes},
          {"nics", shape.fabric.nics_per_node},
          {"rate_bits_per_s", shape.fabric.nic_rate_bits_per_s},
          {"latency_ns", shape.fabric.latency.count()},
          {"link", name(shape.fabric.ports.link)},
          {"ports", shape.fabric.ports.per_nic},
          {"mtu", shape.fabric.ports.mtu},
          {"seed", shape.seed}};
}

FabricShape shape_from(const nlohmann::json& json) {
  FabricShape shape;
  shape.kind = json.at("kind").get<std::string>();
  shape.fabric.nodes = json.at("nodes").get<int>();
  shape.fabric.nics_per_node = json.at("nics").get<int>();
  shape.fabric.nic_rate_bits_per_s = json.at("rate_bits_per_s").get<uint64_t>();
  shape.fabric.latency = std::chrono::nanoseconds(json.at("latency_ns").get<int64_t>());
  shape.fabric.ports.link = json.at("link").get<std::string>() == name(LinkLayer::kInfiniBand)
                                ? LinkLayer::kInfiniBand
                                : LinkLayer::kEthernet;
  shape.fabric.ports.per_nic = json.at("ports").get<int>();
  shape.fabric.ports.mtu = json.at("mtu").get<int>();
  shape.seed = json.at("seed").get<uint64_t>();
  return shape;
}

}  // namespace r2bench
