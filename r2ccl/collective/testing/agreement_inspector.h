// SPDX-License-Identifier: Apache-2.0
// Test support: what the agreement's state machines hold, which only an exploration may see.
#pragma once

#include <cstdint>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/report.h"

namespace r2ccl::collective {

/// Canonical bytes of the state machines.
struct AgreementInspector {
  std::vector<uint8_t>& out;

  void put(uint64_t value) { out.push_back(value == kNever ? 255 : uint8_t(value)); }
  void put_code(CapacityCode code) {
    out.push_back(uint8_t(without_reason(code) / 100 + (code == without_reason(code) ? 0 : 128)));
  }
  void put(const NodeCodes& codes) {
    for (const CapacityCode code : codes) put_code(code);
  }
  void put(const AgreementMessage& message) {
    put(uint64_t(message.type));
    put(message.sequences);
    put(message.epoch);
    put(message.heard);
    put_code(message.engine_pace);
    for (const uint64_t point : message.points) put(point);
    put(message.capacities.size());
    for (const CapacityCode code : message.capacities) put_code(code);
  }
  void put(const OwnLinks& links) {
    put(links.now_);
    put(links.told_);
  }
  void put(const Admission& admission) {
    put(admission.next_);
    put(admission.hold_);
    put(admission.views_.size());
    for (const auto& from : admission.views_) {
      put(from.number);
      put(from.view->epoch);
    }
  }
  void put(const Member& member) {
    put(member.pending_);
    put(member.ended_);
    for (const uint64_t point : member.points_) put(point);
    put_code(member.engine_pace_);
    put(member.capacities_.size());
    for (const CapacityCode code : member.capacities_) put_code(code);
    put(member.report_taken_);
    put(member.report_.epoch);
    if (!member.report_taken_) put(member.report_);
  }
  void put(const Coordinator& coordinator) {
    put(uint64_t(coordinator.phase_));
    put(coordinator.epoch_);
    put(coordinator.covered_);
    put(coordinator.reported_);
    for (const auto& rank : coordinator.ranks_) {
      put(rank.report);
      put(rank.told);
      put(rank.links);
      put(rank.codes);
      put_code(rank.engine_pace);
      put(rank.sequences);
      put(uint64_t(rank.answered) | uint64_t(rank.took_decision) << 1);
      for (const uint64_t point : rank.points) put(rank.answered ? point : 0);
    }
    for (const NodeCodes& of_nic : coordinator.named_) put(of_nic);
    for (const uint64_t epoch : coordinator.tried_) put(epoch);
    for (const NodeCodes& codes : coordinator.proposed_) put(codes);
    for (const NodeCodes& codes : coordinator.view_) put(codes);
    put_code(coordinator.proposed_pace_);
    put_code(coordinator.engine_pace_);
    put(coordinator.decision_);
  }

  /// What rank 0 holds true of a node, with the reason.
  static const NodeCodes& codes(const Coordinator& coordinator, int rank) {
    return coordinator.ranks_[size_t(rank)].codes;
  }
  /// Does rank 0 know of other slow links of `rank` than that has found?
  static bool differ(const Coordinator& coordinator, int rank, const OwnLinks& links) {
    return links_differ(coordinator.ranks_[size_t(rank)].links, links.now_);
  }
};

}  // namespace r2ccl::collective
