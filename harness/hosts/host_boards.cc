// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/host_boards.h"

#include <algorithm>
#include <utility>

namespace r2bench {

using faultinject::FaultSpec;
using faultinject::FaultState;
using faultinject::Witness;

namespace {

void earlier(uint64_t& time_ns, uint64_t other_ns) {
  if (other_ns != 0 && (time_ns == 0 || other_ns < time_ns)) time_ns = other_ns;
}

}  // namespace

HostBoards::HostBoards(std::vector<Part> parts, const std::vector<faultinject::NodeShape>& nodes,
                       uint64_t seed)
    : parts_(std::move(parts)), checked_(faultinject::BoardHost::create(nodes, seed)) {}

bool HostBoards::strikes_at(const FaultSpec& spec, const Part& part) const {
  for (int node = part.nodes.first; node < part.nodes.first + part.nodes.count; ++node)
    if (faultinject::pattern_matches(spec.target.node, node_name(node))) return true;
  return false;
}

void HostBoards::forward() {
  for (uint32_t id = 1; id <= armed(); ++id) {
    uint32_t rounds = 0;
    for (const Part& part : parts_) rounds = std::max(rounds, part.board->state(id).rounds);
    if (rounds == 0) continue;
    for (const Part& part : parts_) {
      if (!strikes_at(spec(id), part)) continue;
      const FaultState state = part.board->state(id);
      if (state.phase == FaultState::Phase::kArmed && state.rounds < rounds) part.board->fire(id);
    }
  }
}

void HostBoards::restart_clock() {
  for (const Part& part : parts_) part.board->restart_clock();
}

uint32_t HostBoards::arm(const FaultSpec& spec, faultinject::TimeOrigin origin) {
  const uint32_t id = checked_.arm(spec, origin);
  for (const Part& part : parts_) part.board->arm(spec, origin);
  return id;
}

void HostBoards::fire(uint32_t id) {
  for (const Part& part : parts_)
    if (strikes_at(spec(id), part)) part.board->fire(id);
}

void HostBoards::heal(uint32_t id) {
  for (const Part& part : parts_) part.board->heal(id);
}

void HostBoards::heal_all() {
  for (const Part& part : parts_) part.board->heal_all();
}

FaultState HostBoards::state(uint32_t id) const {
  std::vector<FaultState> states;
  for (const Part& part : parts_)
    if (strikes_at(spec(id), part)) states.push_back(part.board->state(id));
  if (states.size() == 1) return states[0];
  FaultState all;
  bool healed = !states.empty();
  for (const FaultState& one : states) {
    earlier(all.armed_ns, one.armed_ns);
    earlier(all.triggered_ns, one.triggered_ns);
    earlier(all.t0_ns, one.t0_ns);
    all.healed_ns = std::max(all.healed_ns, one.healed_ns);
    all.witnesses += one.witnesses;
    if (one.rounds > all.rounds) all.rounds = one.rounds, all.recent_ns = one.recent_ns;
    healed = healed && one.phase == FaultState::Phase::kHealed;
    if (one.phase == FaultState::Phase::kFired) all.phase = one.phase;
  }
  if (healed)
    all.phase = FaultState::Phase::kHealed;
  else
    all.healed_ns = 0;
  return all;
}

std::vector<Witness> HostBoards::witnesses() const {
  std::vector<Witness> all;
  for (const Part& part : parts_)
    for (Witness& witness : part.board->witnesses()) all.push_back(std::move(witness));
  std::stable_sort(all.begin(), all.end(),
                   [](const Witness& a, const Witness& b) { return a.time_ns < b.time_ns; });
  return all;
}

uint64_t HostBoards::witnesses_lost() const {
  uint64_t lost = 0;
  for (const Part& part : parts_) lost += part.board->witnesses_lost();
  return lost;
}

}  // namespace r2bench
