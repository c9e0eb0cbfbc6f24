// SPDX-License-Identifier: Apache-2.0
// The receiving end's paths: its halves of those that the sender opens, each proved by a real transfer.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"
#include "r2ccl/channel/receiver.h"

namespace r2ccl {
namespace {

constexpr size_t kMostHalves = 8;

}  // namespace

void Receiver::on_open(const wire::Open& open) {
  if (paths_.find(open.path) || halves_.makes(open.path)) return;
  if (open.receiver_nic >= context_.devices.size() || !peer_.known_nic(open.sender_nic))
    return refuse_path(open.path, "there is no such NIC");
  if (!context_.usable(open.receiver_nic) || halves_.under_way() >= kMostHalves)
    return refuse_path(open.path, "NIC " + nic_name(open.receiver_nic) + " is not to be used");
  halves_.make(open.path, open.receiver_nic, open.sender_nic, context_.flushes(open.receiver_nic, home_nic_),
               open.end);
}

void Receiver::half_made(PathHalf& half, const Tick& tick) {
  if (!half.made) return refuse_path(half.path, half.made.error().message);
  (*half.made)->since = tick.alive;
  wire::Opened answer{};
  answer.path = half.path;
  answer.ok = 1;
  answer.end = half.end;
  (*half.made)->state = context_.resilient() ? PathState::kProving : PathState::kStandby;
  paths_.add(std::move(*half.made));
  send(wire::Type::kOpened, answer);
}

// A sender that waits for this end's half looks for another rail: it has no bound of its own for that, since
// a process that is stopped does not answer either.
void Receiver::refuse_path(uint32_t id, const std::string& why) {
  R2_INFO("NET/R2CCL: channel %u: this end makes no path %u: %s", number_, id, why.c_str());
  wire::Opened answer{};
  answer.path = id;
  send(wire::Type::kOpened, answer);
}

void Receiver::on_prove(uint32_t id, const Tick& tick) {
  Path* path = paths_.find(id);
  if (!path || path->state != PathState::kProving) return;
  path->since = tick.alive;
  path->prove(tick.alive);
  step_proofs(tick);
}

void Receiver::step_proofs(const Tick& tick) {
  for (auto& path : paths_) {
    if (path->state != PathState::kProving) continue;
    switch (see_probe(
        *path, [&] { return first_probe_limit(*path, tick); }, tick)) {
      case ProbeSight::kNone:
      case ProbeSight::kAwaited:
        break;
      case ProbeSight::kAnswered:
        path->state = PathState::kStandby;
        path->forget_probe();
        send(wire::Type::kProved, wire::PathMessage{path->id()});
        break;
      case ProbeSight::kFailed:
        return drop(path->id(), true);
    }
  }
}

void Receiver::step_paths(const Tick& tick) {
  halves_.unwant_stuck([this](const PathHalf& half) {
    refuse_path(half.path, "the driver of NIC " + nic_name(half.local) + " does not answer");
  });
  step_proofs(tick);
}

}  // namespace r2ccl
