// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/nic_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "harness/base/numbers.h"
#include "harness/cli/commands.h"
#include "harness/cli/list_option.h"
#include "r2ccl/collective/agreement.h"

namespace r2bench {
namespace {

/// Less is no rate that a port reports, and too little to count with. In errors, too.
constexpr double kLeastCarried = 0.001;

using Range = std::pair<uint32_t, uint32_t>;  // from, to, both included

std::optional<Range> range_of(std::string_view text) {
  const size_t dash = text.find('-');
  const auto from = number_of<uint32_t>(text.substr(0, dash));
  const auto to = dash == text.npos ? from : number_of<uint32_t>(text.substr(dash + 1));
  if (!from || !to || *from > *to) return std::nullopt;
  return Range{*from, *to};
}

/// Calls `set` with the number of each NIC that NODE:NIC names.
template <typename Set>
void for_each_nic(const std::string& entry, std::string_view place, const std::string& form, uint32_t nodes,
                  uint32_t per_node, Set set) {
  const size_t colon = place.find(':');
  if (colon == place.npos) throw UsageError(entry + ": write " + form);
  const auto node = range_of(place.substr(0, colon)), nic = range_of(place.substr(colon + 1));
  if (!node || !nic) throw UsageError(entry + ": write " + form);
  const auto within = [&](const Range& range, uint32_t count, const char* what) {
    if (range.second < count) return;
    throw UsageError(entry + ": there is no " + what + " " + std::to_string(range.second) + ", only 0 to " +
                     std::to_string(count - 1));
  };
  within(*node, nodes, "node");
  within(*nic, per_node, "NIC");
  for (uint32_t i = node->first; i <= node->second; ++i)
    for (uint32_t k = nic->first; k <= nic->second; ++k) set(size_t{i} * per_node + k);
}

}  // namespace

void NicOptions::add_to(CLI::App& command, const std::string& group) {
  all.push_back(command
                    .add_option("--nics", per_node,
                                "NICs of each node. Then the NICs count, not only the nodes' capacities")
                    ->check(CLI::Range(1, static_cast<int>(r2ccl::collective::kMostNics)))
                    ->group(group));
  all.push_back(add_lists(command, "--lost", lost,
                          "NODE:NIC: this NIC is lost. Each may be a range: 0-3:1 or 2:0-1; may be repeated")
                    ->group(group));
  all.push_back(
      add_lists(command, "--slow", slow,
                "NODE:NIC=C: this NIC carries the fraction C of its rate, 0.001 to below 1; may be repeated")
          ->group(group));
}

std::vector<double> NicOptions::of(uint32_t nodes) const {
  if (per_node == 0) throw UsageError(std::string(lost.empty() ? "--slow" : "--lost") + " needs --nics");
  std::vector<double> nics(size_t{nodes} * per_node, 1);
  const auto set = [&](const std::string& entry, size_t nic, double carries) {
    if (nics[nic] < 1) throw UsageError(entry + ": another entry names one of these NICs, too");
    nics[nic] = carries;
  };
  for (const std::string& text : lost)
    for_each_nic("--lost " + text, text, "NODE:NIC, such as 1:0 or 0-3:1-2", nodes, per_node,
                 [&](size_t nic) { set("--lost " + text, nic, 0); });
  for (const std::string& text : slow) {
    const std::string entry = "--slow " + text,
                      form =
                          "NODE:NIC=C with the fraction C of its rate that the NIC carries, 0.001 to below 1";
    const size_t equals = std::min(text.find('='), text.size());
    const auto carries = number_of<double>(std::string_view(text).substr(std::min(equals + 1, text.size())));
    if (!carries || !(*carries >= kLeastCarried && *carries < 1)) throw UsageError(entry + ": write " + form);
    for_each_nic(entry, std::string_view(text).substr(0, equals), form, nodes, per_node,
                 [&](size_t nic) { set(entry, nic, *carries); });
  }
  for (uint32_t node = 0; node < nodes; ++node) {
    const auto first = nics.begin() + static_cast<long>(node) * per_node;
    if (std::all_of(first, first + per_node, [](double nic) { return nic <= 0; }))
      throw UsageError("--lost: node " + std::to_string(node) +
                       " has lost all its NICs; leave out nodes that carry no traffic");
  }
  return nics;
}

}  // namespace r2bench
