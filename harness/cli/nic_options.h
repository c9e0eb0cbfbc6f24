// SPDX-License-Identifier: Apache-2.0
// Which NICs are lost or slow, as a command line says it: --nics, --lost, --slow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace r2bench {

struct NicOptions {
  uint32_t per_node = 0;          ///< 0: not known
  std::vector<std::string> lost;  ///< NODE:NIC, each a number or a range A-B
  std::vector<std::string> slow;  ///< NODE:NIC=C, C from 0.001 to below 1
  std::vector<CLI::Option*> all;

  void add_to(CLI::App& command, const std::string& group);
  bool given() const { return per_node != 0 || !lost.empty() || !slow.empty(); }
  /// What each NIC carries, 0 … 1 of a whole one, those of node 0 first. Throws UsageError: no --nics, what
  /// does not name NICs of `nodes` nodes, a NIC that is named twice, less than a thousandth of a NIC, a node
  /// without any NIC.
  std::vector<double> of(uint32_t nodes) const;
};

}  // namespace r2bench
