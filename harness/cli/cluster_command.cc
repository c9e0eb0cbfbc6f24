// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/cluster_command.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>

#include "harness/base/format.h"
#include "harness/cli/resources.h"
#include "harness/cluster/preflight.h"
#include "harness/launch/process.h"
#include "harness/run/runner.h"

namespace r2bench {
namespace {

bool is_this_machine(const std::string& host) {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  const std::string own = name;
  return host == "localhost" || host == own || own.rfind(host + ".", 0) == 0;
}

std::string command_for(const std::string& host, const ClusterArguments& arguments) {
  const std::string here = (program_prefix() / "bin" / "r2bench-port-probe").string();
  const std::string there = arguments.probe.empty() ? here : arguments.probe;
  if (is_this_machine(host)) return shell_quoted(here);
  const auto plain = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(),
                       [](unsigned char c) { return std::isalnum(c) || std::strchr("/._-+", c) != nullptr; });
  };
  if (plain(there)) return arguments.ssh + " " + host + " " + there;
  // ssh hands its words to a shell over there, which takes the quotes off once more. A "~/" or "~user/" at
  // the beginning is for that shell, whose user may have another home.
  size_t home = there[0] == '~' ? there.find('/') + 1 : 0;
  if (home > 0 && !plain(there.substr(1, home - 1))) home = 0;
  return arguments.ssh + " " + host + " " +
         shell_quoted(there.substr(0, home) + shell_quoted(there.substr(home)));
}

void print_finding(const Finding& finding, const Console& console) {
  const bool bad = finding.level == Finding::Level::kBad, good = finding.level == Finding::Level::kGood;
  const char* mark = good ? "✓" : bad ? "✗" : "·";
  const char* colour = good ? "32" : bad ? "1;31" : "2";
  std::string place = finding.host;
  if (!finding.port.empty()) place += (place.empty() ? "" : " ") + finding.port;
  const std::string lead = "   " + left(place, 18) + " " + left(finding.what, 12) + " ";
  console.out << "  " << (console.colour ? std::string("\033[") + colour + "m" + mark + "\033[0m" : mark)
              << lead.substr(2) << wrap(finding.text, console.columns - 1 - width(lead), 1 + width(lead))
              << "\n";
  if (!finding.mend.empty() && !good)
    console.out << std::string(1 + width(lead), ' ') << "→ " << finding.mend << "\n";
}

nlohmann::json as_json(const std::vector<RdmaHostFacts>& hosts, const std::vector<PairResult>& pairs,
                       const std::vector<Finding>& findings, bool ready) {
  nlohmann::json all = {{"cluster_version", 1}, {"ready", ready}, {"hosts", hosts}};
  for (const PairResult& pair : pairs) {
    const auto end = [&](const PortId& id) {
      return nlohmann::json{{"host", hosts[id.host].host}, {"port", hosts[id.host].ports[id.port].name()}};
    };
    all["pairs"].push_back({{"a", end(pair.a)},
                            {"b", end(pair.b)},
                            {"same_network", pair.same_network},
                            {"proved", pair.error.empty()},
                            {"error", pair.error.empty() ? nlohmann::json() : nlohmann::json(pair.error)}});
  }
  for (const Finding& finding : findings)
    all["findings"].push_back({{"level", name(finding.level)},
                               {"host", finding.host},
                               {"port", finding.port},
                               {"what", finding.what},
                               {"text", finding.text},
                               {"mend", finding.mend}});
  return all;
}

}  // namespace

int cluster_command(const ClusterArguments& arguments, const Console& console) {
  std::vector<std::string> names = arguments.hosts;
  if (names.empty()) names.emplace_back("localhost");
  std::vector<std::unique_ptr<ProbeLink>> probes;
  std::vector<RdmaHostFacts> hosts;
  std::vector<Finding> silent;
  for (const std::string& host : names) {
    try {
      auto probe = std::make_unique<ProbeLink>(host, command_for(host, arguments));
      hosts.push_back(probe->ask({{"do", "facts"}}).get<RdmaHostFacts>());
      if (!is_this_machine(host)) hosts.back().host = host;
      probes.push_back(std::move(probe));
    } catch (const std::exception& error) {
      silent.push_back(
          {Finding::Level::kBad, host, "", "reach", error.what(),
           command_for(host, arguments) + " </dev/null; echo $? (0: it is there and can be reached)"});
    }
  }
  const char* ib_hca = std::getenv("NCCL_IB_HCA");
  leave_out(hosts, ib_hca == nullptr ? "" : ib_hca);
  std::vector<PairResult> pairs = pairs_of(hosts);
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (console.live && !arguments.json)
      console.out << "\r  pair " << i + 1 << " of " << pairs.size() << " " << std::flush;
    prove(pairs[i], hosts, probes);
  }
  if (console.live && !arguments.json) console.out << "\r\033[K";
  std::vector<Finding> findings = judge_cluster(hosts, pairs, !arguments.hosts.empty());
  findings.insert(findings.begin(), silent.begin(), silent.end());
  const auto bad = std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.level == Finding::Level::kBad;
  });
  if (arguments.json) {
    console.out << as_json(hosts, pairs, findings, bad == 0).dump(2) << "\n";
    return bad == 0 ? 0 : 1;
  }
  for (const Finding& finding : findings) print_finding(finding, console);
  console.out << (bad == 0
                      ? "Ready for --fabric verbs.\n"
                      : std::to_string(bad) + (bad == 1 ? " thing is missing: see the line with ✗.\n"
                                                        : " things are missing: see the lines with ✗.\n"));
  return bad == 0 ? 0 : 1;
}

}  // namespace r2bench
