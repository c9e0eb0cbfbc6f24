// SPDX-License-Identifier: Apache-2.0
// What plans know of the rails that begin at each NIC of this process. Each group plans for itself: what one knows is
// no reason for another one's traffic to stay. The queues of a NIC are for all of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "r2ccl/protocol/wire.h"

namespace r2ccl {

class PlanKnowledge {
 public:
  /// What one group's plan knows.
  class Plan {
   public:
    /// What the rail carries at the least, to any peer, relative to nominal. Any thread.
    double carries(size_t nic) const { return 1 - lacks_[nic].load(std::memory_order_relaxed); }

   private:
    friend class PlanKnowledge;
    std::array<std::atomic<double>, wire::kMaxNics> lacks_{};
    std::array<size_t, wire::kMaxNics> under_way_{};
    bool ended_ = false;
  };

  /// `bytes_per_ns[i]`: of NIC i, nominal. Nobody else calls meanwhile.
  void set_rates(std::span<const double> bytes_per_ns) { rates_.assign(bytes_per_ns.begin(), bytes_per_ns.end()); }

  /// A group begins to plan. Any thread, as what follows. A channel may read the plan after its end, and then reads
  /// what a later group knows: it carries nothing any more.
  Plan* begin() {
    const std::lock_guard lock(mutex_);
    for (const auto& plan : plans_)
      if (plan->ended_) {
        plan->ended_ = false;
        return plan.get();
      }
    return plans_.emplace_back(std::make_unique<Plan>()).get();
  }
  void end(Plan* plan) {
    const std::lock_guard lock(mutex_);
    plan->ended_ = true;
    for (auto& lacks : plan->lacks_) lacks.store(0, std::memory_order_relaxed);
    plan->under_way_.fill(0);
    for (size_t nic = 0; nic < rates_.size(); ++nic) add_up(nic);
  }
  /// By `plan` a rail carries `relative`; so many bytes of its group may stand in the rail's queues at both ends.
  void knows(Plan* plan, size_t nic, double relative, size_t under_way) {
    const std::lock_guard lock(mutex_);
    plan->lacks_[nic].store(1 - relative, std::memory_order_relaxed);
    plan->under_way_[nic] = under_way;
    add_up(nic);
  }

  /// How long what all groups may have under way takes on a rail that one of them knows to be slow, if it carries no
  /// more than any of them knows; 0: none is known to be slow. Any thread.
  uint64_t queue_ns(size_t nic) const { return queue_ns_[nic].load(std::memory_order_relaxed); }

 private:
  static constexpr double kLeast = 0.01;

  void add_up(size_t nic) {
    double least = 1;
    size_t bytes = 0;
    for (const auto& plan : plans_) {
      least = std::min(least, plan->carries(nic));
      bytes += plan->under_way_[nic];
    }
    const double rate = std::max(least, kLeast) * rates_[nic];
    queue_ns_[nic].store(least < 1 ? uint64_t(double(bytes) / rate) : 0, std::memory_order_relaxed);
  }

  std::mutex mutex_;  // guards the following
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<double> rates_;
  std::array<std::atomic<uint64_t>, wire::kMaxNics> queue_ns_{};
};

}  // namespace r2ccl
