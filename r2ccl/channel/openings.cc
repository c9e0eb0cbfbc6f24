// SPDX-License-Identifier: Apache-2.0
// How a path comes to be: each end has its NIC's worker make its half, the sender connects when it knows the
// other one, and both prove it by a real transfer.
#include <algorithm>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"

namespace r2ccl {
namespace {

constexpr size_t kMostHalves = 8;
constexpr uint64_t kProveFactor = 4;  // a first probe may take this many probe deadlines

}  // namespace

// A cable or a switch may come back slower than it went.
void Channel::take_speed(int nic, int mbps) {
  if (!context_.capacities.at_most(size_t(nic), mbps)) return;
  R2_WARN("NET/R2CCL: the port of NIC %s of %s now runs at %d Mbit/s; when this process began it was %.0f",
          context_.devices[size_t(nic)].name().c_str(), context_.host.c_str(), mbps,
          context_.capacities.nominal(size_t(nic)));
}

void Channel::step_halves(const Tick& tick) {
  if (!sender_)
    halves_.unwant_stuck([this](const PathHalf& half) {
      refuse_path(half.path, "the driver of NIC " + nic_name(half.local) + " does not answer");
    });
  while (const std::shared_ptr<PathHalf> half = halves_.done()) {
    paths_.reserve();  // what was made must not be lost for lack of memory
    if (half->made) (*half->made)->device_fatals = half->device_fatals;
    const bool wanted = !half->unwanted && !closing_.begun();
    if (!wanted && half->made) paths_.retired().destroy(*context_.workers, std::move(*half->made));
    halves_.remove(*half);
    if (half->speed_mbps > 0) take_speed(half->local, half->speed_mbps);
    if (wanted) half_made(*half, tick);
  }
}

void Channel::start_opening(Purpose purpose, const Rail& rail, const Tick& tick) {
  const uint32_t path = opening_.begin(purpose, rail.local, rail.remote, tick.alive);
  context_.load_stale = true;
  emit(trace::EventType::kPathOpening, rail.local, path, uint64_t(rail.remote));
  halves_.make(path, rail.local, rail.remote, false);
}

void Channel::on_open(const wire::Open& open) {
  if (sender_ || paths_.find(open.path) || halves_.makes(open.path) ||
      open.receiver_nic >= context_.devices.size() || !peer_.known_nic(open.sender_nic))
    return;
  if (!context_.usable(open.receiver_nic) || halves_.under_way() >= kMostHalves)
    return refuse_path(open.path, "NIC " + nic_name(open.receiver_nic) + " is not to be used");
  halves_.make(open.path, open.receiver_nic, open.sender_nic, context_.flushes(open.receiver_nic, home_nic_),
               open.end);
}

void Channel::half_made(PathHalf& half, const Tick& tick) {
  if (half.made) (*half.made)->since = tick.alive;
  if (sender_) {
    if (!half.made) {
      const Error& error = half.made.error();
      const bool scarce = error.code == ErrorCode::kMemoryLock || error.code == ErrorCode::kOutOfResources;
      if (scarce && !std::exchange(resources_told_, true))
        R2_WARN("NET/R2CCL: channel %u: %s. %s", number_, error.message.c_str(), advice(error.code).data());
      return opening_failed(error.message, tick);
    }
    wire::Open open{};
    open.path = half.path;
    open.sender_nic = uint8_t(half.local);
    open.receiver_nic = uint8_t(half.remote);
    open.end = half.end;
    paths_.add(std::move(*half.made));
    opening_.half_made(tick.alive);
    send(wire::Type::kOpen, open);
    return;
  }
  if (!half.made) return refuse_path(half.path, half.made.error().message);
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
void Channel::refuse_path(uint32_t id, const std::string& why) {
  R2_INFO("NET/R2CCL: channel %u: this end makes no path %u: %s", number_, id, why.c_str());
  wire::Opened answer{};
  answer.path = id;
  send(wire::Type::kOpened, answer);
}

void Channel::on_opened(const wire::Opened& opened, const Tick& tick) {
  Path* path = paths_.find(opened.path);
  if (!sender_ || !path || !opening_.peer_answers(opened.path) || path->state != PathState::kOpening) return;
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

void Channel::connected(Path& path, const Tick& tick) {
  if (!path.outcome) return opening_failed(path.outcome.error().message, tick);
  if (!context_.resilient()) return opening_succeeded(tick);
  opening_.connected(tick.alive);
  path.state = PathState::kProving;
  path.since = tick.alive;
  path.prove(tick.alive);
}

// In a search the rails that have not been seen to fail share the time that is left.
uint64_t Channel::first_probe_limit(const Path& path, const Tick& tick) const {
  const uint64_t least = kProveFactor * nanoseconds(context_.config.probe_deadline);
  const uint64_t limit = std::max(least, probe_limit(path, tick));
  if (end_.phase() == Phase::kRunning && status() != Status::kConnecting) return limit;
  uint64_t untried = 1;
  for (size_t l = 0; l < context_.devices.size(); ++l)
    for (int r = 0; r < peer_.nics(); ++r)
      untried += rails_.count(int(l), r) == 0 && !context_.nic_down[l] && !peer_.nic_down(r);
  return std::max(least, std::min(limit, search_.left() / untried));
}

// It is time to open one.
bool Channel::lacks_standby(const Tick& tick) const {
  return context_.resilient() && end_.phase() == Phase::kRunning && retries_.standby_due(tick.now) &&
         context_.standbys < context_.config.standbys && paths_.lanes().empty() &&
         !paths_.any([this](const auto& path) { return stands_by(*path); });
}

// A sender without a path opens its first one; one without a path that stands by opens that.
void Channel::begin_opening(const Tick& tick) {
  if (setting_up()) {
    if (const auto rail = candidate(Purpose::kFirst, tick.now)) start_opening(Purpose::kFirst, *rail, tick);
  } else if (lacks_standby(tick)) {
    const auto rail = candidate(Purpose::kStandby, tick.now);
    if (!rail) return retries_.no_standby(tick.now);
    ++context_.standbys;
    start_opening(Purpose::kStandby, *rail, tick);
  }
}

void Channel::step_opening(const Tick& tick) {
  if (!opening_.under_way()) return begin_opening(tick);
  Path* path = paths_.find(opening_.path());
  OpeningSight seen;
  seen.exists = path != nullptr;
  seen.makes = halves_.makes(opening_.path());
  seen.worker_busy = path && path->worker_busy();
  seen.driver_late = context_.workers->stuck(opening_.local());
  if (path && path->state == PathState::kProving)
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
                                                                       : "a first transfer did not come back",
                            tick);
  }
}

void Channel::on_prove(uint32_t id, const Tick& tick) {
  Path* path = paths_.find(id);
  if (sender_ || !path || path->state != PathState::kProving) return;
  path->since = tick.alive;
  path->prove(tick.alive);
  step_receiver_proofs(tick);
}

void Channel::step_receiver_proofs(const Tick& tick) {
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

void Channel::on_proved(uint32_t id, const Tick& tick) {
  if (sender_ && opening_.is(id) && paths_.find(id)) opening_succeeded(tick);
}

void Channel::opening_succeeded(const Tick& tick) {
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
      next_balance_ = tick.now;
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

void Channel::opening_failed(const std::string& why, const Tick& tick) {
  const uint32_t id = opening_.path();
  const int local = opening_.local(), remote = opening_.remote();
  opening_.end();
  R2_INFO("NET/R2CCL: channel %u: no path over %s: %s", number_, rail_name(local, remote).c_str(),
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
