// SPDX-License-Identifier: Apache-2.0
#include "harness/sim/fair_shares.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace r2bench {

FairShares::FairShares(std::vector<double> capacities, std::vector<Flow> flows)
    : capacity_(std::move(capacities)),
      flows_(std::move(flows)),
      flows_of_(capacity_.size()),
      left_(capacity_.size()),
      weight_(capacity_.size()),
      open_(capacity_.size(), 0),
      pending_(flows_.size(), false) {
  for (uint32_t i = 0; i < flows_.size(); ++i) {
    flows_of_[flows_[i].from].push_back(i);
    flows_of_[flows_[i].to].push_back(i);
  }
}

void FairShares::compute(const std::vector<uint32_t>& active, std::vector<double>& rates,
                         std::span<const double> factors) {
  constexpr double kTogether = 1 + 1e-9;
  ports_.clear();
  const auto weight_of = [&](uint32_t i) { return flows_[i].weight * (factors.empty() ? 1 : factors[i]); };
  const auto enter = [&](uint32_t port, double weight) {
    if (open_[port]++ == 0) {
      ports_.push_back(port);
      left_[port] = capacity_[port];
      weight_[port] = 0;
    }
    weight_[port] += weight;
  };
  for (const uint32_t i : active) {
    pending_[i] = true;
    enter(flows_[i].from, weight_of(i));
    enter(flows_[i].to, weight_of(i));
  }
  const auto leave = [&](uint32_t port, double weight, double rate) {
    left_[port] = std::max(0.0, left_[port] - rate);
    weight_[port] -= weight;
    --open_[port];
  };
  while (!ports_.empty()) {
    double level = std::numeric_limits<double>::infinity();
    size_t kept = 0;
    for (const uint32_t port : ports_) {
      if (open_[port] == 0) continue;
      ports_[kept++] = port;
      level = std::min(level, left_[port] / weight_[port]);
    }
    ports_.resize(kept);
    for (const uint32_t port : ports_) {
      if (open_[port] == 0 || left_[port] / weight_[port] > level * kTogether) continue;
      for (const uint32_t i : flows_of_[port]) {
        if (!pending_[i]) continue;
        pending_[i] = false;
        const double weight = weight_of(i);
        rates[i] = level * weight;
        leave(flows_[i].from, weight, rates[i]);
        leave(flows_[i].to, weight, rates[i]);
      }
    }
  }
}

size_t FairShares::memory_bytes() const {
  size_t bytes =
      capacity_.size() * (3 * sizeof(double) + 2 * sizeof(uint32_t)) + flows_.size() * sizeof(Flow);
  for (const auto& list : flows_of_) bytes += list.capacity() * sizeof(uint32_t) + sizeof(list);
  return bytes;
}

}  // namespace r2bench
