// SPDX-License-Identifier: Apache-2.0
// How a path comes to be: protocol/opening.h decides, and here its NIC's worker makes this end's half,
// connects it when the receiver's is known, and proves it by a real transfer.
#include <algorithm>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/sender_paths.h"

namespace r2ccl {

void SenderPaths::start_opening(Purpose purpose, const Rail& rail, const Tick& tick) {
  const uint32_t path = opening_.begin(purpose, rail.local, rail.remote, tick.alive);
  context_.load_stale = true;
  emit(trace::EventType::kPathOpening, rail.local, path, uint64_t(rail.remote));
  halves_.make(path, rail.local, rail.remote, false);
}

void SenderPaths::half_made(PathHalf& half, const Tick& tick) {
  if (!half.made) {
    const Error& error = half.made.error();
    const bool scarce = error.code == ErrorCode::kMemoryLock || error.code == ErrorCode::kOutOfResources;
    if (scarce && !std::exchange(resources_told_, true))
      R2_WARN("NET/R2CCL: channel %u: %s. %s", number_, error.message.c_str(), advice(error.code).data());
    return opening_failed(error.message, tick);
  }
  (*half.made)->since = tick.alive;
  wire::Open open{};
  open.path = half.path;
  open.sender_nic = uint8_t(half.local);
  open.receiver_nic = uint8_t(half.remote);
  open.end = half.end;
  paths_.add(std::move(*half.made));
  opening_.half_made(tick.alive);
  send(wire::Type::kOpen, open);
}

void SenderPaths::on_opened(const wire::Opened& opened, const Tick& tick) {
  Path* path = paths_.find(opened.path);
  if (!path || !opening_.peer_answers(opened.path)) return;
  if (!opened.ok)
    return opening_failed("the peer's NIC " + peer_.nic_name(path->remote_nic()) + " is not available", tick);
  opening_.connecting(tick.alive);
  path->job = context_.workers->give(
      path->local_nic(), "ibv_modify_qp to RTR", [path, &context = context_, end = opened.end](Job& job) {
        try {
          path->outcome = path->connect(context.devices[size_t(path->local_nic())], end, context.config, job);
        } catch (const std::bad_alloc&) {
          path->outcome = Error{ErrorCode::kOutOfResources, "no memory"};
        }
      });
}

void SenderPaths::connected(Path& path, const Tick& tick) {
  if (!path.outcome) return opening_failed(path.outcome.error().message, tick);
  if (!context_.resilient()) return opening_succeeded(tick);
  opening_.connected(tick.alive);
  path.state = PathState::kProving;
  path.since = tick.alive;
  path.prove(tick.alive);
}

// It is time to open one.
bool SenderPaths::lacks_standby(const Tick& tick) const {
  StandbySight seen;
  seen.resilient = context_.resilient();
  seen.phase = end_.phase();
  seen.room = context_.standbys < context_.config.standbys;
  seen.has_lanes = !paths_.lanes().empty();
  seen.stands_by = paths_.any([this](const auto& path) { return stands_by(*path); });
  return retries_.standby_due(seen, tick.now);
}

// A sender without a path opens its first one; one without a path that stands by opens that.
void SenderPaths::begin_opening(const Tick& tick) {
  if (setting_up()) {
    if (const auto rail = candidate(Purpose::kFirst, tick.now)) start_opening(Purpose::kFirst, *rail, tick);
  } else if (lacks_standby(tick)) {
    const auto rail = candidate(Purpose::kStandby, tick.now);
    if (!rail) return retries_.no_standby(tick.now);
    ++context_.standbys;
    start_opening(Purpose::kStandby, *rail, tick);
  }
}

void SenderPaths::step_opening(const Tick& tick) {
  if (!opening_.under_way()) return begin_opening(tick);
  Path* path = paths_.find(opening_.path());
  OpeningSight seen;
  seen.exists = path != nullptr;
  seen.makes = halves_.makes(opening_.path());
  seen.worker_busy = path && path->worker_busy();
  seen.driver_late = context_.workers->stuck(opening_.local());
  if (path && opening_.proves())
    seen.probe = see_probe(
        *path, [&] { return first_probe_limit(*path, tick); }, tick);
  switch (opening_.look(seen)) {
    case OpeningAct::kWait:
      break;
    case OpeningAct::kDropped:
      return opening_failed("it was dropped", tick);
    case OpeningAct::kDriverLate:
      return opening_failed("the driver of NIC " + nic_name(opening_.local()) + " does not answer", tick);
    case OpeningAct::kConnect:
      return connected(*path, tick);
    case OpeningAct::kProved:
      opening_.proved(path->since);
      send(wire::Type::kProve, wire::PathMessage{path->id()});
      break;
    case OpeningAct::kUnproved:
      return opening_failed(path->probe_state() == ProbeState::kFailed ? verbs::describe(path->probe_status)
                                                                       : "its test transfer was not answered",
                            tick);
  }
}

void SenderPaths::on_proved(uint32_t id, const Tick& tick) {
  if (opening_.is(id) && paths_.find(id)) opening_succeeded(tick);
}

void SenderPaths::opening_succeeded(const Tick& tick) {
  Path* path = paths_.find(opening_.path());
  opening_.end();
  path->state = PathState::kStandby;
  path->since = tick.alive;
  path->forget_probe();
  emit(trace::EventType::kPathOpened, path->local_nic(), path->id(), uint64_t(path->remote_nic()));
  switch (opening_.purpose()) {
    case Purpose::kFirst:
      use(*path, tick);
      break;
    case Purpose::kStandby:
      retries_.standby_opened();
      rails_.forget_counts();
      break;
    case Purpose::kLane:
      retries_.lane_opened(path->local_nic(), path->remote_nic());
      lane_plan_.look_soon();
      break;
    case Purpose::kRescue:
      break;  // choose() finds it
    case Purpose::kFailback:
      failback_.opened(path->id(), tick.now);
      break;
    case Purpose::kSpread:
      spread_move_.takes(path->id());
      break;
  }
}

void SenderPaths::opening_failed(const std::string& why, const Tick& tick) {
  const uint32_t id = opening_.path();
  const int local = opening_.local(), remote = opening_.remote();
  opening_.end();
  R2_INFO("NET/R2CCL: channel %u: cannot open a path over %s: %s", number_, rail_name(local, remote).c_str(),
          why.c_str());
  note_failure(local, remote, why);
  rails_.failed(local, remote, tick.now + OpeningRetries::kRailNs);
  halves_.unwant(id);
  if (paths_.find(id)) drop(id, true);
  switch (opening_.purpose()) {
    case Purpose::kFirst:
    case Purpose::kRescue:
      break;  // another one is chosen
    case Purpose::kStandby:
      retries_.standby_failed(tick.now);
      break;
    case Purpose::kLane:
      rails_.bar(local, remote, retries_.lane_failed(local, remote, tick.now));
      break;
    case Purpose::kFailback:
      failback_.opening_failed(tick.now);
      break;
    case Purpose::kSpread:
      move_failed(local, tick);
      break;
  }
}

}  // namespace r2ccl
