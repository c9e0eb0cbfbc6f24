// SPDX-License-Identifier: Apache-2.0
// The preflight of `r2bench doctor --cluster`: every pair of ports proved by transfers both ways, and what
// the facts and the pairs mean: what is well, what is worth knowing, what is missing and which command mends
// it. Judging is pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/cluster/facts.h"
#include "harness/cluster/probe_link.h"

namespace r2bench {

struct PortId {
  size_t host = 0, port = 0;  ///< index into the hosts, and into the host's ports
};

/// Two ports, and whether each could write into the other's memory.
struct PairResult {
  PortId a, b;
  bool same_network = false;  ///< they have addresses of one network, or both are InfiniBand
  std::string error;          ///< empty: proved both ways
};

struct Finding {
  enum class Level { kGood, kNote, kBad };
  Level level = Level::kNote;
  std::string host;  ///< empty: of the whole cluster
  std::string port;  ///< empty: of the whole host
  std::string what;  ///< a word: "memlock", "MTU" …
  std::string text;
  std::string mend;  ///< a command; empty only where all is well
};

/// They have addresses of one network, or both are InfiniBand.
bool in_one_network(const PortFacts& a, const PortFacts& b);

/// Marks the ports that no run takes: those that NCCL_IB_HCA (`ib_hca`) leaves out; and a host's control
/// ports (default_route), unless it lists them or the host has no other active port.
void leave_out(std::vector<RdmaHostFacts>& hosts, const std::string& ib_hca);

/// Pairs of all ports that are active and not left out, in an order that does not depend on results.
std::vector<PairResult> pairs_of(const std::vector<RdmaHostFacts>& hosts);

/// Fills in `error` of a pair: opens both ends, writes both ways, compares. Also learns the ports' MTUs.
void prove(PairResult& pair, std::vector<RdmaHostFacts>& hosts,
           std::vector<std::unique_ptr<ProbeLink>>& probes);

/// What it all means. `hosts_named`: the user named several hosts.
std::vector<Finding> judge_cluster(const std::vector<RdmaHostFacts>& hosts,
                                   const std::vector<PairResult>& pairs, bool hosts_named);

const char* name(Finding::Level level);

}  // namespace r2bench
