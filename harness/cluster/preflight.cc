// SPDX-License-Identifier: Apache-2.0
#include "harness/cluster/preflight.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "r2ccl/base/hca_filter.h"

namespace r2bench {
namespace {

constexpr const char* kControlPort = "the machine's default route leaves by it";

/// "10.10.0.1/24" as network and length.
std::optional<std::pair<uint32_t, int>> network_of(const std::string& address) {
  const size_t slash = address.find('/');
  in_addr parsed{};
  if (slash == std::string::npos || inet_pton(AF_INET, address.substr(0, slash).c_str(), &parsed) != 1)
    return std::nullopt;
  const int length = std::stoi(address.substr(slash + 1));
  const uint32_t mask = length <= 0 ? 0 : ~uint32_t(0) << (32 - length);
  return std::pair(ntohl(parsed.s_addr) & mask, length);
}

nlohmann::json told(ProbeLink& probe, const nlohmann::json& request) {
  nlohmann::json answer = probe.ask(request);
  if (const auto error = answer.find("error"); error != answer.end())
    throw std::runtime_error(probe.host() + ": " + error->get<std::string>());
  return answer;
}

}  // namespace

bool in_one_network(const PortFacts& a, const PortFacts& b) {
  if (a.link_layer == "InfiniBand" && b.link_layer == "InfiniBand") return true;
  for (const std::string& mine : a.addresses)
    for (const std::string& other : b.addresses)
      if (const auto network = network_of(mine); network && network == network_of(other)) return true;
  return false;
}

void leave_out(std::vector<RdmaHostFacts>& hosts, const std::string& ib_hca) {
  const bool lists = !ib_hca.empty() && ib_hca.front() != '^';
  for (RdmaHostFacts& host : hosts) {
    bool another = false;
    for (PortFacts& port : host.ports) {
      port.left_out.clear();
      if (!r2ccl::passes_hca_filter(ib_hca, port.device, port.port)) port.left_out = "NCCL_IB_HCA=" + ib_hca;
      another = another || (port.left_out.empty() && port.state == "ACTIVE" && !port.default_route);
    }
    for (PortFacts& port : host.ports)
      if (another && !lists && port.default_route && port.left_out.empty()) port.left_out = kControlPort;
  }
}

std::vector<PairResult> pairs_of(const std::vector<RdmaHostFacts>& hosts) {
  std::vector<PortId> ports;
  for (size_t h = 0; h < hosts.size(); ++h)
    for (size_t p = 0; p < hosts[h].ports.size(); ++p)
      if (hosts[h].ports[p].state == "ACTIVE" && hosts[h].ports[p].left_out.empty()) ports.push_back({h, p});
  std::vector<PairResult> pairs;
  for (size_t i = 0; i < ports.size(); ++i)
    for (size_t j = i + 1; j < ports.size(); ++j) {
      const PortFacts& a = hosts[ports[i].host].ports[ports[i].port];
      const PortFacts& b = hosts[ports[j].host].ports[ports[j].port];
      pairs.push_back({ports[i], ports[j], in_one_network(a, b), ""});
    }
  return pairs;
}

void prove(PairResult& pair, std::vector<RdmaHostFacts>& hosts,
           std::vector<std::unique_ptr<ProbeLink>>& probes) {
  const PortId ends[2] = {pair.a, pair.b};
  nlohmann::json info[2];
  try {
    for (int end = 0; end < 2; ++end) {
      PortFacts& port = hosts[ends[end].host].ports[ends[end].port];
      const auto gid = port.chosen_gid();
      if (!gid && port.link_layer != "InfiniBand")
        throw std::runtime_error(port.name() + " has no RoCE v2 GID");
      info[end] = told(*probes[ends[end].host], {{"do", "open"},
                                                 {"id", end},
                                                 {"device", port.device},
                                                 {"port", port.port},
                                                 {"gid", gid ? gid->index : -1}})
                      .at("info");
      port.active_mtu = info[end].at("active_mtu");
      port.max_mtu = info[end].at("max_mtu");
    }
    for (int end = 0; end < 2; ++end)
      told(*probes[ends[end].host], {{"do", "connect"}, {"id", end}, {"peer", info[1 - end]}});
    for (int end = 0; end < 2; ++end) {
      const uint64_t seed = 1 + uint64_t(end) + 2 * (ends[0].port + 64 * ends[1].port);
      told(*probes[ends[end].host], {{"do", "write"}, {"id", end}, {"seed", seed}});
      told(*probes[ends[1 - end].host], {{"do", "check"}, {"id", 1 - end}, {"seed", seed}});
    }
  } catch (const std::exception& error) {
    pair.error = error.what();
  }
  for (int end = 0; end < 2; ++end) {
    try {
      probes[ends[end].host]->ask({{"do", "close"}, {"id", end}});
    } catch (const std::exception&) {  // it is told with the next pair
    }
  }
}

const char* name(Finding::Level level) {
  return level == Finding::Level::kGood ? "good" : level == Finding::Level::kNote ? "note" : "bad";
}

}  // namespace r2bench
