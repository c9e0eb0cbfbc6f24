// SPDX-License-Identifier: Apache-2.0
// `fabric.topology` — the name of a machine that is known, or its sockets, switches and GPUs.
#include <algorithm>
#include <charconv>

#include "harness/scenario/sections.h"
#include "harness/scenario/suggest.h"

namespace r2bench {
namespace {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const TopologyPreset& preset : topology_presets()) names.push_back(preset.topology.preset);
  return names;
}

const TopologyPreset* find_preset(const std::string& name) {
  for (const TopologyPreset& preset : topology_presets())
    if (preset.topology.preset == name) return &preset;
  return nullptr;
}

int parse_percent(const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const size_t digits = size_t(rest - text.data()), unit = text.find_first_not_of(' ', digits);
  if (error != std::errc() || unit == std::string::npos || text.substr(unit) != "%" || value < 1 ||
      value > 100)
    throw std::invalid_argument("'" + text +
                                "' is not between 1 % and 100 %, in whole percent with the sign");
  return value;
}

/// Its default number of NICs; 0: no preset was named.
int read_map(Document& document, const YAML::Node& node, NodeTopology& topology) {
  MapReader map(document, node, "topology");
  int nics = 0;
  if (const auto preset = map.choice("preset", preset_names(), "topology")) {
    topology = topology_presets()[*preset].topology;
    nics = topology_presets()[*preset].nics;
  }
  for (const char* key : {"sockets", "switches_per_socket", "gpus_per_socket"})
    if (map.has("preset") && map.has(key))
      document.report(map.get(key),
                      "'" + std::string(key) + "' is given by the preset; leave one of them out");
  const auto read = [&](const char* key, int low, int& value) {
    value = int(map.integer(key, low, 8).value_or(value));
  };
  read("sockets", 1, topology.sockets);
  read("switches_per_socket", 0, topology.switches_per_socket);
  if (!map.has("preset")) topology.gpus_per_socket = std::max(1, topology.switches_per_socket);
  read("gpus_per_socket", 1, topology.gpus_per_socket);
  topology.cross_percent = map.parsed<int>("cross_socket", parse_percent).value_or(topology.cross_percent);
  map.finish();
  return nics;
}

}  // namespace

void read_topology(Document& document, const YAML::Node& node, bool nics_are_given, Fabric& fabric) {
  if (!node.IsDefined() || node.IsNull()) return;
  if (fabric.kind != FabricKind::kVhca) {
    document.report(node, "'topology' is for virtual NICs (kind: vhca); those of " +
                              std::string(name(fabric.kind)) + " are where they are");
    return;
  }
  int nics = 0;
  fabric.topology.emplace();
  if (node.IsMap()) {
    nics = read_map(document, node, *fabric.topology);
  } else if (!node.IsScalar()) {
    document.report(node, std::string("'topology' must be a map or one of ") + list_of(preset_names()) +
                              ", but is " + kind_of(node));
    return;
  } else if (const TopologyPreset* preset = find_preset(node.Scalar())) {
    *fabric.topology = preset->topology;
    nics = preset->nics;
  } else {
    const std::string suggestion = did_you_mean(node.Scalar(), preset_names());
    document.report(node,
                    "unknown topology '" + node.Scalar() + "'" +
                        (suggestion.empty() ? "; it is " + list_of(preset_names()) +
                                                  ", or a map such as {sockets: 2, switches_per_socket: 4}"
                                            : suggestion));
    return;
  }
  if (nics > 0 && !nics_are_given) fabric.nics_per_node = nics;
  if (fabric.nic_rate_bits_per_s == 0 && fabric.topology->cross_percent < 100)
    document.report(node,
                    "across sockets a NIC carries " + std::to_string(fabric.topology->cross_percent) +
                        " % of its rate, but 'nic_rate' is unlimited; give a rate, or 'cross_socket: 100 %'");
}

}  // namespace r2bench
