// SPDX-License-Identifier: Apache-2.0
// What both ends do with their paths: halves that NICs' workers have made, dropping, lanes, and what becomes
// of them when a NIC or a queue pair fails. Which paths there are the sender decides: sender_paths.h.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"

namespace r2ccl {
void Channel::run_on_worker(Path& path, const char* call, Result<void> (Path::*work)(Job&)) {
  path.job = context_.workers->give(path.local_nic(), call, [it = &path, work](Job& job) {
    try {
      it->outcome = (it->*work)(job);
    } catch (const std::bad_alloc&) {
      it->outcome = Error{ErrorCode::kOutOfResources, "no memory"};
    }
  });
}

void Channel::retire(uint32_t id) { paths_.retire(id, now_ns() + bounds_.retired()); }

void Channel::drop(uint32_t id, bool tell_peer) {
  if (Path* path = paths_.find(id)) run_on_worker(*path, "ibv_modify_qp to ERR", &Path::give_up);
  if (tell_peer) send(wire::Type::kDrop, wire::PathMessage{id});
  dropped(id, now_ns());
  retire(id);
}

// A cable or a switch may come back slower than it went.
void Channel::take_speed(int nic, int mbps) {
  if (!context_.capacities.at_most(size_t(nic), mbps)) return;
  R2_WARN("NET/R2CCL: the port of NIC %s of %s now runs at %d Mbit/s; when this process began it was %.0f",
          context_.devices[size_t(nic)].name().c_str(), context_.host.c_str(), mbps,
          context_.capacities.nominal(size_t(nic)));
}

void Channel::step_halves(const Tick& tick) {
  while (const std::shared_ptr<PathHalf> half = halves_.done()) {
    paths_.reserve();  // what was made must not be lost for lack of memory
    if (half->made) (*half->made)->device_fatals = half->device_fatals;
    if (half->unwanted && half->made) paths_.retired().destroy(*context_.workers, std::move(*half->made));
    halves_.remove(*half);
    if (half->speed_mbps > 0) take_speed(half->local, half->speed_mbps);
    if (!half->unwanted) half_made(*half, tick);
  }
}

RailSight Channel::see_rail(int local, int remote, uint64_t now) const {
  RailSight seen;
  seen.home = is_home(local, remote);
  seen.local_up = context_.is_up(local);
  seen.driver_late = context_.workers->stuck(local);
  seen.remote_up = !peer_.nic_down(remote);
  seen.barred = rails_.barred(local, remote, now);
  seen.home_is_up = failback_.is_up();
  return seen;
}

uint64_t Channel::first_probe_limit(const Path& path, const Tick& tick) const {
  const auto untried = [this] {
    return rails_.untried(int(context_.devices.size()), peer_.nics(),
                          [this](int l, int r) { return rail::is_up(see_rail(l, r, 0)); });
  };
  return search_.first_probe(bounds_, probe_limit(path, tick), lacks_path(end_.phase(), setting_up()),
                             untried);
}

void Channel::on_drop(uint32_t id, const Tick& tick) {
  halves_.unwant(id);
  Actions actions(*this, tick, trace::DetectedBy::kPeer, "the peer abandoned the path");
  ChannelEnd(end_, actions).on_drop(id);
}

void Channel::nic_changed(int nic, bool up, const Tick& tick) {
  if (!turn::minds_paths(sight(tick))) return;
  if (up) {
    Actions actions(*this, tick);
    return ChannelEnd(end_, actions).nic_back(nic);
  }
  const std::string why = context_.device_gone[size_t(nic)] ? "NIC " + nic_name(nic) + " is gone"
                          : context_.nic_down[size_t(nic)]
                              ? "port of NIC " + nic_name(nic) + " went down"
                              : "a buffer cannot be registered on NIC " + nic_name(nic);
  Actions actions(*this, tick, trace::DetectedBy::kEvent, why);
  ChannelEnd(end_, actions).nic_lost(nic);
}

void Channel::device_fatal(int nic) {
  if (!turn::ends_by_device(sight({})) || active()->local_nic() != nic) return;
  fail(Error{ErrorCode::kNicFailed, rail_name(*active()) + ": the device reports a fatal error, on channel " +
                                        std::to_string(number_) + "; R2CC_MODE=0 has no other path"});
}

void Channel::queue_pair_failed(const ibv_qp* pair, const char* what, const Tick& tick) {
  Path* path = paths_.first([pair](const Path* it) { return !it->worker_busy() && it->has(pair); });
  if (path) path_failed(*path, what, tick);
}

void Channel::completion_queue_failed(const ibv_cq* queue, const Tick& tick) {
  Path* path = paths_.first([queue](const Path* it) { return it->queue.get() == queue; });
  if (!path) return;
  path->reports_nothing = true;
  path_failed(*path, "its completion queue failed", tick);
}

void Channel::path_failed(Path& path, const char* what, const Tick& tick) {
  if (!turn::minds_paths(sight(tick))) return;
  Actions actions(*this, tick, trace::DetectedBy::kEvent, what);
  ChannelEnd(end_, actions).path_failed(path.id());
}

void Channel::on_peer_nic(const wire::Nic& change, const Tick& tick) {
  if (!peer_.known_nic(change.nic)) return;
  peer_.nic_changed(change, now_ns());
  if (change.state == wire::NicState::kUp) {
    Actions actions(*this, tick);
    return ChannelEnd(end_, actions).peer_nic_back(int(change.nic));
  }
  Actions actions(*this, tick, trace::DetectedBy::kPeer,
                  "the peer's NIC " + peer_.nic_name(int(change.nic)) +
                      (peer_.nic_left(int(change.nic)) ? " cannot register buffers" : " went down"));
  ChannelEnd(end_, actions).peer_nic_lost(int(change.nic));
}

int Channel::straight(int local) const {
  return rail::straight(local, int(context_.devices.size()), {home_nic_, peer_.home_nic()}, peer_.nics());
}

uint8_t Channel::far_rails() const {
  uint8_t far = 0;
  for (size_t l = 0; l < context_.devices.size(); ++l)
    if (is_far(int(l), straight(int(l)))) far |= uint8_t(1u << l);
  return far;
}

// What it has under way will not be reported.
void Channel::abandon(Path& path, Owned owned) {
  ownership_.check(owned);
  meter_abandon(context_.meters[size_t(path.local_nic())], path.link_meter, std::exchange(path.metered, 0),
                now_ns());
}

// Until the shares are computed anew everything goes over the active path.
void Channel::remove_lane(const Path& path, Owned owned) {
  ownership_.check(owned);
  paths_.remove_lane(path, owned);
  spread({}, owned);
}

void Channel::on_lane(uint32_t id) {
  Actions actions(*this);
  ChannelEnd(end_, actions).on_lane(id);
}

void Channel::on_rest(uint32_t id) {
  Actions actions(*this);
  ChannelEnd(end_, actions).on_rest(id);
}

}  // namespace r2ccl
