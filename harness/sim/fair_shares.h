// SPDX-License-Identifier: Apache-2.0
// Weighted max-min rates of flows that each use one sending and one receiving port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace r2bench {

class FairShares {
 public:
  static constexpr uint32_t kNoPort = UINT32_MAX;
  struct Flow {
    uint32_t from = kNoPort, to = kNoPort;
    double weight = 1;
  };

  FairShares(std::vector<double> capacities, std::vector<Flow> flows);

  /// Rates of the active flows, so that no flow's rate / weight can grow but at the cost of one with less.
  /// Progressive filling: the port that is full first fixes its flows' rates, and the rest share what is
  /// left. `rates[i]` of others is not written. `factors`: of each flow's weight; empty: all 1.
  void compute(const std::vector<uint32_t>& active, std::vector<double>& rates,
               std::span<const double> factors = {});

  size_t memory_bytes() const;

 private:
  std::vector<double> capacity_;
  std::vector<Flow> flows_;
  std::vector<std::vector<uint32_t>> flows_of_;  // by port
  std::vector<double> left_, weight_;            // by port, while computing
  std::vector<uint32_t> open_;                   // by port: flows whose rate is not known yet
  std::vector<uint32_t> ports_;                  // with open flows
  std::vector<bool> pending_;                    // by flow
};

}  // namespace r2bench
