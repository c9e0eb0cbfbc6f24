// SPDX-License-Identifier: Apache-2.0
// The receiving end's paths: its halves of those that the sender opens, each proved by a real transfer.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"
#include "r2ccl/channel/receiver.h"
#include "r2ccl/protocol/opening.h"

namespace r2ccl {
void Receiver::on_open(const wire::Open& open) {
  const int local = open.receiver_nic;
  OpenSight seen;
  seen.known = paths_.find(open.path) || halves_.makes(open.path);
  seen.nics = size_t(local) < context_.devices.size() && peer_.known_nic(open.sender_nic);
  seen.usable = seen.nics && context_.usable(local);
  seen.under_way = halves_.under_way();
  switch (PeerOpening::on_open(seen)) {
    case OpenAct::kIgnore:
      return;
    case OpenAct::kNoSuchNic:
      return refuse_path(open.path, "there is no such NIC");
    case OpenAct::kRefuse:
      return refuse_path(open.path, "NIC " + nic_name(local) + " is not to be used");
    case OpenAct::kMake:
      return halves_.make(open.path, local, open.sender_nic, context_.flushes(local, home_nic_), open.end);
  }
}

void Receiver::half_made(PathHalf& half, const Tick& tick) {
  if (!half.made) return refuse_path(half.path, half.made.error().message);
  (*half.made)->since = tick.alive;
  wire::Opened answer{};
  answer.path = half.path;
  answer.ok = 1;
  answer.end = half.end;
  (*half.made)->state = PeerOpening::of_new(context_.resilient());
  emit(trace::EventType::kPathAccepted, half.local, half.path, uint64_t(half.remote));
  paths_.add(std::move(*half.made));
  send(wire::Type::kOpened, answer);
}

// A sender that waits for this end's half looks for another rail: it has no bound of its own for that, since
// a process that is stopped does not answer either.
void Receiver::refuse_path(uint32_t id, const std::string& why) {
  R2_INFO("NET/R2CCL: channel %u: this end cannot open path %u: %s", number_, id, why.c_str());
  wire::Opened answer{};
  answer.path = id;
  send(wire::Type::kOpened, answer);
}

void Receiver::on_prove(uint32_t id, const Tick& tick) {
  Path* path = paths_.find(id);
  if (!path || !PeerOpening::proves(path->state)) return;
  path->since = tick.alive;
  path->prove(tick.alive);
  step_proofs(tick);
}

void Receiver::step_proofs(const Tick& tick) {
  for (auto& path : paths_) {
    if (!PeerOpening::proves(path->state)) continue;
    const ProbeSight probe = see_probe(
        *path, [&] { return first_probe_limit(*path, tick); }, tick);
    switch (PeerOpening::look(probe)) {
      case ProofAct::kWait:
        break;
      case ProofAct::kOpen:
        path->state = PathState::kStandby;
        path->forget_probe();
        send(wire::Type::kProved, wire::PathMessage{path->id()});
        break;
      case ProofAct::kDrop:
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
