// SPDX-License-Identifier: Apache-2.0
// What other threads tell the agreement of a node: its capacity, its links, who counts the tuner's
// operations. The agreement's thread takes it from here when it has the time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/attribution.h"
#include "r2ccl/collective/host/plan_agreement.h"

namespace r2ccl::collective {

/// Any thread may call it, but for what is for the agreement's thread alone.
class AgreementInputs {
 public:
  /// `nics`: of the node in a view.
  explicit AgreementInputs(size_t nics) : nics_(nics) {
    for (auto& code : capacity_) code = kNominal;
  }

  /// True: it is another one.
  bool take(const NodeCapacity& capacity) {
    bool changed = take(capacity_[0], capacity.whole) | take(engine_pace_, pace_of(capacity.engine_pace));
    for (size_t i = 0; i < nics_; ++i) changed |= take(capacity_[1 + i], capacity.nics[i]);
    return changed;
  }
  NodeCodes capacity() const {
    NodeCodes codes;
    for (size_t i = 0; i < 1 + nics_; ++i) codes.push_back(capacity_[i].load(std::memory_order_relaxed));
    return codes;
  }

  CapacityCode engine_pace() const { return engine_pace_.load(std::memory_order_relaxed); }

  void watch(std::function<NodeCapacity()> look) {
    const std::lock_guard lock(look_mutex_);
    look_ = std::move(look);
  }
  /// Takes the capacity of what watch() was given, if that was anything. For the agreement's thread.
  void look() {
    const std::lock_guard lock(look_mutex_);
    if (look_) take(look_());
  }
  bool watches() {
    const std::lock_guard lock(look_mutex_);
    return bool(look_);
  }

  /// What is said of links that are tried, and have not been taken, is passed over.
  void set_links(const LinkCodes& links) {
    {
      const std::lock_guard lock(links_mutex_);
      links_ = links;
      for (const size_t link : tried_) links_[link] = kLinkUnknown;
    }
    links_changed_ = true;
  }
  /// If set_links() has been called since. For the agreement's thread.
  std::optional<LinkCodes> changed_links() {
    if (!links_changed_.exchange(false)) return {};
    const std::lock_guard lock(links_mutex_);
    return links_;
  }
  /// What was measured of them no longer holds. For the agreement's thread.
  void try_links(std::span<const size_t> tried) {
    const std::lock_guard lock(links_mutex_);
    for (const size_t link : tried)
      if (!links_.empty()) links_[link] = kLinkUnknown;
    tried_.insert(tried_.end(), tried.begin(), tried.end());
    any_tried_ = true;
  }
  std::vector<size_t> take_tried() {
    if (!any_tried_.load(std::memory_order_relaxed)) return {};
    const std::lock_guard lock(links_mutex_);
    any_tried_ = false;
    return std::exchange(tried_, {});
  }

  void count_tuner(std::shared_ptr<OperationCounter> counter, bool leads) {
    {
      const std::lock_guard lock(tuner_mutex_);
      tuner_ = std::move(counter);
      leads_ = leads;
    }
    tuner_changed_ = true;
  }
  std::shared_ptr<OperationCounter> tuner() {
    const std::lock_guard lock(tuner_mutex_);
    return tuner_;
  }
  bool leads() {
    const std::lock_guard lock(tuner_mutex_);
    return leads_;
  }
  /// If count_tuner() has been called since; true at first. For the agreement's thread.
  bool take_tuner_changed() { return tuner_changed_.exchange(false); }

 private:
  /// What travels is never 0, and never anything but a number: the others would hang up.
  static double pace_of(double pace) { return pace > 0 ? std::max(pace, 0.001) : 1; }
  static bool take(std::atomic<CapacityCode>& of, double relative) {
    const CapacityCode code = code_of(relative);
    return of.load(std::memory_order_relaxed) != code && of.exchange(code, std::memory_order_relaxed) != code;
  }

  const size_t nics_;
  std::array<std::atomic<CapacityCode>, 1 + kMostNics> capacity_;
  std::atomic<CapacityCode> engine_pace_{kNominal};
  std::atomic<bool> links_changed_{false}, any_tried_{false}, tuner_changed_{true};
  std::mutex links_mutex_;
  LinkCodes links_;            // links_mutex_
  std::vector<size_t> tried_;  // links_mutex_
  std::mutex look_mutex_;
  std::function<NodeCapacity()> look_;  // look_mutex_
  std::mutex tuner_mutex_;
  std::shared_ptr<OperationCounter> tuner_;  // tuner_mutex_
  bool leads_ = false;                       // tuner_mutex_
};

}  // namespace r2ccl::collective
