// SPDX-License-Identifier: Apache-2.0
// Puts schedules together: parts, connections and operations, from which the algorithms' builders are made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/collective/schedule.h"

namespace r2ccl::collective {

/// An operation that others of the same rank may wait for; lane Wait::kNone: none.
struct OpRef {
  uint16_t lane = Wait::kNone;
  uint32_t op = 0;

  Wait same() const { return Wait{lane, false, op}; }
  Wait last() const { return Wait{lane, true, op}; }
};

class ScheduleBuilder {
 public:
  static constexpr uint32_t kCredits = 4;

  ScheduleBuilder(std::string name, Collective collective, uint32_t ranks);

  /// A part of the data; equal chunks, or of these relative sizes.
  uint16_t add_part(double fraction, uint32_t segments, uint32_t chunks);
  uint16_t add_part(double fraction, uint32_t segments, std::vector<double> chunks);
  uint16_t add_group(std::string name, uint16_t rail_class = 0);
  /// Returns the connection's number.
  uint32_t connect(uint32_t from, uint32_t to, uint16_t part, uint16_t group, uint32_t credits = kCredits);

  /// Room for `ops` operations at both ends.
  void reserve(uint32_t connection, size_t ops);
  OpRef send(uint32_t connection, uint32_t chunk, Wait first = {}, Wait second = {});
  OpRef recv(uint32_t connection, OpKind kind, uint32_t chunk, Wait first = {}, Wait second = {});

  const Schedule& schedule() const { return schedule_; }
  Schedule& schedule() { return schedule_; }
  /// Sets the weights and hands the schedule over.
  Schedule finish();

 private:
  OpRef append(uint32_t rank, uint16_t lane, Op op);
  Schedule schedule_;
};

}  // namespace r2ccl::collective
