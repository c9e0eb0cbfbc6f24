// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/sections.h"

#include <algorithm>
#include <cctype>

#include "faultinject/plan/units.h"
#include "harness/scenario/suggest.h"

namespace r2bench {
namespace {

constexpr int kMaxNodes = 64;
constexpr int kMaxRanksPerNode = 16;
constexpr int kMaxNics = 16;
constexpr int kMaxPorts = 4;
constexpr int kMostCopies = 16;

}  // namespace

bool good_name(const std::string& text) {
  return !text.empty() && text.size() <= 64 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
         });
}

Scenario read_sections(Document& document, const YAML::Node& root, const std::string& default_name,
                       const LoadOptions& options) {
  Scenario scenario;
  MapReader map(document, root, "the scenario");
  if (!map.has("version")) {
    document.report_line(1, 0, "'version' is missing; start the file with 'version: 1'");
  } else if (const auto version = map.text("version"); version && *version != "1") {
    document.report(map.get("version"),
                    "version " + *version + " is not known; this program reads version 1");
  }

  scenario.name = map.text("name").value_or(default_name);
  if (!good_name(scenario.name)) {
    const std::string rule = "'" + scenario.name + "' is no good name; use " + kNameRule;
    map.has("name") ? document.report(map.get("name"), rule)
                    : document.report_line(0, 0, rule + " (it is the file's name; 'name:' gives another)");
  }
  scenario.description = map.text("description").value_or("");
  scenario.seed = map.seed("seed").value_or(scenario.seed);
  scenario.repeats = static_cast<int>(map.integer("repeats", 1, 10000).value_or(scenario.repeats));
  scenario.pairs = static_cast<int>(map.integer("pairs", 0, 1000).value_or(scenario.pairs));
  if (options.seed) scenario.seed = *options.seed;
  if (options.repeats) scenario.repeats = *options.repeats;

  read_fabric(document, map.get("fabric"), scenario.fabric);
  read_workload(document, map.get("workload"), scenario.workload);
  scenario.timeouts.stall = default_stall(scenario.workload);
  read_timeouts(document, map.get("timeouts"), scenario.timeouts);
  scenario.env = map.string_map("env");
  check_env(document, map.get("env"), scenario.env);

  std::vector<std::string> file_labels;
  if (!map.has("modes")) {
    document.report_line(1, 0, "'modes' is missing; write for example 'modes: [baseline, migrate]'");
  }
  read_modes(document, map.get("modes"), options, scenario, file_labels);
  read_faults(document, map.get("faults"), scenario);
  scenario.arm_at_start = map.choice("arm", {"warm", "start"}, "moment to arm faults at").value_or(0) == 1;
  read_expectations(document, map.get("expect"), file_labels, scenario);
  map.finish();
  if (document.ok()) check_whole(document, root, scenario);
  return scenario;
}

void read_fabric(Document& document, const YAML::Node& node, Fabric& fabric) {
  MapReader map(document, node, "fabric");
  if (const auto kind = map.choice("kind", {"vhca", "rxe", "verbs", "none"}, "fabric"))
    fabric.kind = static_cast<FabricKind>(*kind);
  fabric.nodes = static_cast<int>(map.integer("nodes", 1, kMaxNodes).value_or(fabric.nodes));
  fabric.ranks_per_node =
      static_cast<int>(map.integer("ranks_per_node", 1, kMaxRanksPerNode).value_or(fabric.ranks_per_node));
  fabric.nics_per_node =
      static_cast<int>(map.integer("nics_per_node", 1, kMaxNics).value_or(fabric.nics_per_node));
  fabric.nic_rate_bits_per_s =
      map.parsed<uint64_t>("nic_rate", faultinject::parse_rate).value_or(fabric.nic_rate_bits_per_s);
  fabric.latency =
      map.parsed<std::chrono::nanoseconds>("latency", faultinject::parse_duration).value_or(fabric.latency);
  if (const auto link = map.choice("link", {"ethernet", "infiniband"}, "link layer"))
    fabric.ports.link = static_cast<LinkLayer>(*link);
  fabric.ports.per_nic =
      static_cast<int>(map.integer("ports_per_nic", 1, kMaxPorts).value_or(fabric.ports.per_nic));
  fabric.ports.mtu = static_cast<int>(map.integer("mtu", 256, 4096).value_or(fabric.ports.mtu));
  if ((fabric.ports.mtu & (fabric.ports.mtu - 1)) != 0)
    document.report(map.get("mtu"), "'mtu' is " + std::to_string(fabric.ports.mtu) +
                                        ", but a port has 256, 512, 1024, 2048 or 4096 bytes");
  for (const char* key : {"link", "ports_per_nic", "mtu"})
    if (fabric.kind != FabricKind::kVhca && map.has(key))
      document.report(map.get(key), "'" + std::string(key) + "' is for virtual NICs (kind: vhca); those of " +
                                        name(fabric.kind) + " have their own");
  read_topology(document, map.get("topology"), map.has("nics_per_node"), fabric);
  if (fabric.ranks() < 2 && node.IsDefined()) {
    document.report(map.has("nodes") ? map.get("nodes") : node,
                    "one rank alone sends nothing; 'nodes' times 'ranks_per_node' must be at least 2");
  }
  map.finish();
}

void read_workload(Document& document, const YAML::Node& node, Workload& workload) {
  MapReader map(document, node, "workload");
  if (const auto engine = map.choice("engine", {"cpu", "nccl", "exec"}, "engine"))
    workload.engine = static_cast<Engine>(*engine);
  if (const auto op =
          map.choice("op", {"allreduce", "sendrecv", "allgather", "reducescatter", "broadcast", "alltoall"},
                     "operation")) {
    workload.op = static_cast<Operation>(*op);
  }
  if (const auto type = map.choice("dtype",
                                   {"int8", "int32", "int64", "float32", "float64", "uint8", "uint32",
                                    "uint64", "float16", "bfloat16", "float8e4m3", "float8e5m2"},
                                   "data type")) {
    workload.dtype = static_cast<DataType>(*type);
  }
  if (const auto reduction =
          map.choice("redop", {"sum", "prod", "min", "max", "avg", "premulsum"}, "reduction"))
    workload.reduction = static_cast<Reduction>(*reduction);
  if (const auto bytes = map.parsed<uint64_t>("bytes", faultinject::parse_bytes)) {
    workload.bytes = *bytes;
    const auto element = static_cast<uint64_t>(size_of(workload.dtype));
    if (*bytes == 0 || *bytes % element != 0) {
      document.report(map.get("bytes"), "'bytes' is " + std::to_string(*bytes) +
                                            ", but must be a positive multiple of the " +
                                            std::to_string(element) + " bytes of a " + name(workload.dtype));
    }
  }
  workload.iters = static_cast<int>(map.integer("iters", 1, 100'000'000).value_or(workload.iters));
  workload.warmup = static_cast<int>(map.integer("warmup", 0, 1'000'000).value_or(workload.warmup));
  workload.channels = static_cast<int>(map.integer("channels", 1, 64).value_or(workload.channels));
  if (const auto groups = map.choice("groups", {"all", "local_rank"}, "way to group ranks"))
    workload.groups = static_cast<Groups>(*groups);
  if (const auto collnet = map.choice("collnet", {"auto", "force", "off"}, "way to choose CollNet"))
    workload.collnet = static_cast<CollNet>(*collnet);
  workload.in_place = map.boolean("in_place").value_or(workload.in_place);
  workload.verify = map.boolean("verify").value_or(workload.verify);
  workload.copies = static_cast<int>(map.integer("copies", 1, kMostCopies).value_or(workload.copies));
  workload.plugin = map.text("plugin").value_or(workload.plugin);
  if (workload.plugin.empty()) document.report(map.get("plugin"), "'plugin' is empty");
  workload.plugin_abi = static_cast<int>(map.integer("plugin_abi", 8, 12).value_or(workload.plugin_abi));
  read_engine_keys(document, map, workload);
  map.finish();
}

void read_timeouts(Document& document, const YAML::Node& node, Timeouts& timeouts) {
  MapReader map(document, node, "timeouts");
  const auto read = [&](const char* key, std::chrono::nanoseconds& value) {
    const auto given = map.parsed<std::chrono::nanoseconds>(key, faultinject::parse_duration);
    if (!given) return;
    if (given->count() <= 0)
      document.report(map.get(key), std::string("'") + key + "' must be longer than 0");
    value = *given;
  };
  read("setup", timeouts.setup);
  read("stall", timeouts.stall);
  read("job", timeouts.job);
  read("close", timeouts.close);
  map.finish();
}

void check_env(Document& document, const YAML::Node& node, const std::map<std::string, std::string>& env) {
  for (const auto& [variable, value] : env) {
    // What kind of device the virtual HCA is, which r2bench leaves alone.
    if (variable == "VHCA_DMABUF" || variable == "VHCA_DELAY_VISIBILITY" || variable == "VHCA_MOVE") continue;
    const bool own = variable == "LD_PRELOAD" || variable == "LD_LIBRARY_PATH" || variable == "R2CC_MODE" ||
                     variable == "R2CC_TRACE" || variable.rfind("FAULTINJECT_", 0) == 0 ||
                     variable.rfind("VHCA_", 0) == 0;
    if (!own) continue;
    for (const auto& entry : node) {
      if (entry.first.Scalar() != variable) continue;
      document.report(entry.first, "'" + variable + "' is set by r2bench itself" +
                                       (variable == "R2CC_MODE" ? "; choose the mode under 'modes'" : ""));
    }
  }
}

}  // namespace r2bench
