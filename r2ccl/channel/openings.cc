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
  context_.standbys += opening_.is_for(Purpose::kStandby);
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
  if (!Opening::is_proved(context_.resilient())) return opening_succeeded(tick);
  opening_.connected(tick.alive);
  path.state = PathState::kProving;
  path.since = tick.alive;
  path.prove(tick.alive);
}

// The host of OpeningRetries and is_near().
struct SenderPaths::Near {
  const SenderPaths& c;
  const Tick& tick;

  Phase phase() const { return c.end_.phase(); }
  bool resilient() const { return c.context_.resilient(); }
  bool room() const { return c.context_.standbys < c.context_.config.standbys; }
  bool has_lanes() const { return !c.paths_.lanes().empty(); }
  bool stands_by() const {
    return c.paths_.any([this](const auto& path) { return c.stands_by(*path); });
  }

  bool on_probation() const { return c.failback_.path() != 0; }
  bool opens() const { return c.opening_.under_way(); }
  bool moves() const { return c.spread_move_.path() != 0; }
  bool away() const { return !c.at_home(); }
  bool home_is_near() const { return c.failback_.is_near(tick.now); }
  bool home_may_work() const { return c.home_may_work(tick); }
  bool standby_due() const { return c.retries_.standby_due(*this, tick.now); }
};

bool SenderPaths::looks_soon(const Tick& tick) const { return is_near(Near{*this, tick}); }

void SenderPaths::begin_opening(const Tick& tick) {
  const auto purpose = retries_.due(setting_up(), Near{*this, tick}, tick.now);
  if (!purpose) return;
  if (const auto rail = candidate(*purpose, tick.now)) return start_opening(*purpose, *rail, tick);
  wishes_.no_rail(*purpose, tick.now);
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
  if (opening_.peer_proves(id) && paths_.find(id)) opening_succeeded(tick);
}

void SenderPaths::opening_succeeded(const Tick& tick) {
  Path* path = paths_.find(opening_.path());
  opening_.end();
  path->state = PathState::kStandby;
  path->since = tick.alive;
  path->forget_probe();
  emit(trace::EventType::kPathOpened, path->local_nic(), path->id(), uint64_t(path->remote_nic()));
  switch (wishes_.opened(opening_.purpose(), path->id(), {path->local_nic(), path->remote_nic()}, tick.now)) {
    case Opened::kStandsBy:
      return;
    case Opened::kUse:
      return use(*path, tick);
    case Opened::kLookLanes:
      return lane_plan_.look_soon();
  }
}

void SenderPaths::opening_failed(const std::string& why, const Tick& tick) {
  const uint32_t id = opening_.path();
  const int local = opening_.local(), remote = opening_.remote();
  opening_.end();
  R2_INFO("NET/R2CCL: channel %u: cannot open a path over %s: %s", number_, rail_name(local, remote).c_str(),
          why.c_str());
  note_failure(local, remote, why);
  halves_.unwant(id);
  if (paths_.find(id)) drop(id, true);
  wishes_.failed(opening_.purpose(), {local, remote}, tick.now);
  context_.load_stale = true;
}

}  // namespace r2ccl
