// SPDX-License-Identifier: Apache-2.0
// The keys of the engine nccl, and what they cannot be combined with.
#include <chrono>
#include <utility>

#include "faultinject/plan/units.h"
#include "harness/scenario/sections.h"

namespace r2bench {
namespace {

constexpr int kMostCommunicators = 16;
constexpr int kMostGroupCalls = 64;

bool needs_trace(const std::string& name) {
  const MetricInfo* metric = find_metric(name);
  return metric != nullptr && metric->needs.trace;
}

bool can_be_in_place(Operation op) { return op != Operation::kSendRecv && op != Operation::kAllToAll; }

std::string with_parts(const NcclSettings& nccl) {
  return std::to_string(nccl.communicators) + " communicators × " + std::to_string(nccl.group_calls) +
         " group_calls";
}

Renewal read_renewal(Document& document, const YAML::Node& node) {
  Renewal renewal;
  MapReader map(document, node, "renew");
  if (const auto by = map.choice("by", {"abort", "shrink", "revoke"}, "way to renew communicators"))
    renewal.by = static_cast<RenewBy>(*by);
  else if (!map.has("by"))
    document.report(node, "'renew' needs 'by': abort, shrink or revoke");
  if (!map.has("iter")) document.report(node, "'renew' needs 'iter': the operation in which it happens");
  renewal.iter = static_cast<int>(map.integer("iter", 0, 1'000'000'000).value_or(0));
  if (map.text("delay") != "none")
    renewal.delay = map.parsed<std::chrono::nanoseconds>("delay", faultinject::parse_duration);
  if (renewal.by == RenewBy::kAbort && map.has("without"))
    document.report(map.get("without"),
                    "'without' is for shrink and revoke: after an abort all ranks continue");
  if (renewal.by != RenewBy::kAbort && !map.has("without"))
    document.report(node, std::string("'by: ") + name(renewal.by) +
                              "' needs 'without': the number of the rank that is left out");
  renewal.without = static_cast<int>(map.integer("without", 0, 1'000'000).value_or(-1));
  map.finish();
  return renewal;
}

/// What needs the number of ranks, and the other keys.
void check_renewal(Document& document, const YAML::Node& workload, const Scenario& scenario, uint64_t parts) {
  const Renewal& renewal = *scenario.workload.nccl.renewal;
  const YAML::Node at = workload["renew"];
  const int ranks = scenario.fabric.ranks();
  if (renewal.iter >= scenario.workload.iters)
    document.report(at, "'iter' is " + std::to_string(renewal.iter) +
                            ", but the job has only operations 0 … " +
                            std::to_string(scenario.workload.iters - 1));
  if (scenario.workload.nccl.graph)
    document.report(at, "a graph belongs to the communicators that it was captured on; leave out 'graph'");
  if (renewal.by == RenewBy::kAbort) return;
  if (scenario.workload.groups != Groups::kAll)
    return document.report(at, "'without' leaves one rank of the job out; write 'groups: all'");
  if (ranks < 3)
    return document.report(
        at, std::to_string(ranks) + " ranks are too few, because one of them leaves; take 3 or more");
  if (renewal.without > 0 && renewal.without != ranks - 1)
    document.report(at["without"], "'without' is " + std::to_string(renewal.without) +
                                       ", but only the first or the last rank can be left out: 0 or " +
                                       std::to_string(ranks - 1));
  const uint64_t left = uint64_t(ranks - 1) * parts;
  if (in_chunks(scenario.workload.op) && scenario.workload.bytes % left != 0)
    document.report(at, std::to_string(scenario.workload.bytes) +
                            " bytes cannot be divided equally among the " + std::to_string(ranks - 1) +
                            " ranks that are left; take a multiple of " +
                            std::to_string(left * uint64_t(ranks)));
}

}  // namespace

std::optional<Transport> read_transport(MapReader& map) {
  const auto transport = map.choice(
      "transport", {"plugin", "ib", "ib_failover", "plugin_beside_ib", "ib_beside_ib"}, "transport");
  if (!transport) return std::nullopt;
  return static_cast<Transport>(*transport);
}

void read_engine_keys(Document& document, MapReader& map, Workload& workload) {
  NcclSettings& nccl = workload.nccl;
  if (workload.engine == Engine::kExec) return read_exec_keys(document, map, workload);
  for (const char* key : {"command", "prints", "begin", "iteration"})
    if (map.has(key))
      document.report(map.get(key), "'" + std::string(key) +
                                        "' is for a command of your own; write 'engine: exec' beside it");
  if (workload.engine == Engine::kCpu) {
    for (const char* key : {"library", "transport", "graph", "communicators", "group_calls", "register",
                            "blocking", "mps", "renew"})
      if (map.has(key))
        document.report(map.get(key),
                        "'" + std::string(key) + "' is for GPUs; write 'engine: nccl' beside it");
    return;
  }
  for (const char* key : {"collnet", "plugin_abi"})
    if (map.has(key))
      document.report(
          map.get(key),
          "'" + std::string(key) +
              "' is for 'engine: cpu'; NCCL decides by itself (its NCCL_* variables go under 'env')");
  nccl.library = map.text("library").value_or(nccl.library);
  if (nccl.library.empty()) document.report(map.get("library"), "'library' is empty");
  nccl.transport = read_transport(map).value_or(nccl.transport);
  nccl.graph = map.boolean("graph").value_or(nccl.graph);
  nccl.communicators =
      static_cast<int>(map.integer("communicators", 1, kMostCommunicators).value_or(nccl.communicators));
  nccl.group_calls =
      static_cast<int>(map.integer("group_calls", 1, kMostGroupCalls).value_or(nccl.group_calls));
  nccl.registers = map.boolean("register").value_or(nccl.registers);
  nccl.blocking = map.boolean("blocking").value_or(nccl.blocking);
  nccl.mps = map.boolean("mps").value_or(nccl.mps);
  if (map.has("renew")) nccl.renewal = read_renewal(document, map.get("renew"));
}

void check_nccl(Document& document, const YAML::Node& root, const Scenario& scenario) {
  const YAML::Node workload = std::as_const(root)["workload"];
  const NcclSettings& nccl = scenario.workload.nccl;
  const auto at = [&](const char* key) {
    return workload[key].IsDefined() ? workload[key] : workload["engine"];
  };
  const uint64_t chunks =
      in_chunks(scenario.workload.op)
          ? uint64_t(scenario.workload.groups == Groups::kLocalRank ? scenario.fabric.nodes
                                                                    : scenario.fabric.ranks())
          : 1;
  const uint64_t unit = uint64_t(nccl.parts()) * chunks * uint64_t(size_of(scenario.workload.dtype));
  if (scenario.workload.bytes % unit != 0)
    document.report(at("bytes"), std::to_string(scenario.workload.bytes) +
                                     " bytes cannot be divided equally among " + with_parts(nccl) +
                                     "; take a multiple of " + std::to_string(unit));
  if (nccl.renewal)
    check_renewal(document, workload, scenario,
                  uint64_t(nccl.parts()) * uint64_t(size_of(scenario.workload.dtype)));
  if (scenario.workload.in_place && !can_be_in_place(scenario.workload.op))
    document.report(at("in_place"),
                    std::string("NCCL has no ") + name(scenario.workload.op) +
                        " in place; leave 'in_place' to allreduce, allgather, reducescatter and broadcast");
  if (!nccl.blocking && (nccl.graph || (nccl.renewal && nccl.renewal->by != RenewBy::kAbort)))
    document.report(at("blocking"),
                    std::string("'blocking: false' is not for ") +
                        (nccl.graph ? "graphs, whose capture has to see all calls; leave out 'graph'"
                                    : "shrink and revoke; write 'by: abort' or leave out 'renew'"));
  check_transports(document, root, scenario);
}

void check_transports(Document& document, const YAML::Node& root, const Scenario& scenario) {
  bool own_transport = false, compared = false;
  for (const Mode& mode : scenario.modes) {
    const Transport transport = scenario.transport_of(mode);
    if (transport == Transport::kPlugin) continue;
    own_transport = true;
    if (is_beside(transport) && !std::exchange(compared, true)) check_beside(document, root, scenario, mode);
    if (has_plugin(transport)) continue;
    if (mode.kind != ModeKind::kBaseline)
      document.report(
          std::as_const(root)["modes"],
          "mode '" + mode.label +
              "' runs on NCCL's IB transport, to which R2CC_MODE means nothing; write 'mode: baseline'");
    for (const Expectation& expectation : scenario.expectations)
      if ((expectation.mode == mode.label || expectation.mode == "all") && needs_trace(expectation.metric))
        document.report_line(expectation.line, expectation.column,
                             "'" + expectation.metric +
                                 "' is read from the plugin's trace, which NCCL's IB transport (mode '" +
                                 mode.label + "') does not write; it could never be judged");
  }
  const YAML::Node workload = std::as_const(root)["workload"];
  if (own_transport && scenario.fabric.kind == FabricKind::kNone)
    document.report(workload["transport"].IsDefined() ? workload["transport"] : workload["engine"],
                    "NCCL's IB transport needs RDMA devices, and 'fabric.kind: none' has none");
}

}  // namespace r2bench
