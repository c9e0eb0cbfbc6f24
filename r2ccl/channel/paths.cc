// The set of a channel's paths: opening (both ends make their half, each proves it by a real transfer),
// standing by, dropping; and failback, which is a new path over the home rail that has to work for a settling
// time.
#include <algorithm>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"

namespace r2ccl {
namespace {

constexpr uint64_t kRetryRailNs = 50 * kNsPerMs;      // a rail that failed while another was sought
constexpr uint64_t kRetryStandbyNs = 500 * kNsPerMs;  // doubled with each failure, up to 32 times
constexpr uint64_t kLeaveBuriedNs = 100 * kNsPerMs;   // by then traffic flows again
constexpr size_t kMostBuried = 8;
constexpr size_t kMostMakings = 8;
constexpr uint64_t kProbationProbeNs = 5 * kNsPerMs;
constexpr uint64_t kProveFactor = 4;  // a first probe may take this many probe deadlines

uint64_t nanoseconds(std::chrono::milliseconds m) { return uint64_t(m.count()) * kNsPerMs; }

}  // namespace

Path* Channel::find(uint32_t id) {
  for (auto& path : paths_)
    if (path->id() == id) return path.get();
  return nullptr;
}

void Channel::hand(Path& path, const char* call, Result<void> (Path::*work)()) {
  path.job = core_.workers->give(path.local_nic(), call, [it = &path, work] { it->outcome = (it->*work)(); });
}

// Takes a path out of use. Destroying QPs and taking registrations away can take a driver milliseconds, and a
// migration, or the service thread's other channels, must not wait for it.
void Channel::bury(uint32_t id) {
  const auto it =
      std::find_if(paths_.begin(), paths_.end(), [id](const auto& path) { return path->id() == id; });
  if (it == paths_.end()) return;
  buried_.push_back(std::move(*it));
  buried_since_ = now_ns();
  paths_.erase(it);
}

// A buried path that is still there, to be fenced after all; or one of those in use. nullptr when its queue
// pair is destroyed: then it brings nothing any more.
Path* Channel::exhume(uint32_t id) {
  const auto it =
      std::find_if(buried_.begin(), buried_.end(), [id](const auto& path) { return path->id() == id; });
  if (it == buried_.end()) return find(id);
  paths_.push_back(std::move(*it));
  buried_.erase(it);
  return paths_.back().get();
}

void Channel::dig_one_grave(const Tick& tick) {
  // In a long search they must not pile up until the NIC has no room for new ones.
  const bool now = buried_.size() > kMostBuried ||
                   (end_.phase() == Phase::kRunning && tick.now - buried_since_ >= kLeaveBuriedNs);
  std::erase_if(graves_, [](const Grave& grave) { return grave.job->done() && !grave.refused->load(); });
  if (buried_.empty() || !now) return;
  lay_to_rest(std::move(buried_.back()));
  buried_.pop_back();
}

// Has a path destroyed. A queue pair that the driver will not give up keeps everything it may touch.
void Channel::lay_to_rest(std::unique_ptr<Path> path) {
  Grave grave{path->id(), path->local_nic(), nullptr, std::make_shared<std::atomic<bool>>(false)};
  auto work = [held = std::shared_ptr<Path>(std::move(path)), refused = grave.refused]() mutable {
    if (auto done = held->destroy(); !done) {
      R2_WARN("NET/R2CCL: a queue pair stays: %s", done.error().message.c_str());
      refused->store(true);
      [[maybe_unused]] auto* kept = new std::shared_ptr<Path>(held);
    }
    held.reset();
  };
  grave.job = core_.workers->give_later(grave.nic, "ibv_destroy_qp", std::move(work));
  graves_.push_back(std::move(grave));
}

const Channel::Grave* Channel::grave_of(uint32_t id) const {
  const auto it =
      std::find_if(graves_.begin(), graves_.end(), [id](const Grave& grave) { return grave.path == id; });
  return it == graves_.end() ? nullptr : &*it;
}

void Channel::drop(uint32_t id, bool tell_peer) {
  if (Path* path = find(id)) hand(*path, "ibv_modify_qp to ERR", &Path::give_up);
  if (tell_peer) send(wire::Type::kDrop, wire::PathMessage{id});
  if (id == probation_path_) {
    probation_path_ = 0;
    home_rail_.try_failed(now_ns());
  }
  bury(id);
}

void Channel::add_to(NicLoad& load) const {
  if (active_ && active_->local_nic() != home_nic_) ++load.guests[size_t(active_->local_nic())];
  const auto goes_to = [&](int nic) {
    if (active_) ++load.behind[size_t(active_->local_nic())][size_t(nic)];
  };
  for (const auto& path : paths_)
    if (path->id() != probation_path_ && path->state == PathState::kStandby) goes_to(path->local_nic());
  if (opening_.path == 0) return;
  if (!active_ && opening_.purpose == Purpose::kRescue) ++load.guests[size_t(opening_.local)];
  if (opening_.purpose == Purpose::kStandby) goes_to(opening_.local);
}

int Channel::standbys() const {
  if (!sender_ || !active_) return 0;
  return int(std::count_if(paths_.begin(), paths_.end(),
                           [](const auto& path) { return path->state == PathState::kStandby; })) +
         (opening_.path != 0 && opening_.purpose == Purpose::kStandby);
}

// Straight rails first, beginning with home; then every cross rail. A standby shares no NIC with the active
// path unless there is no other way. Among NICs that are equally near, the one with the fewest guests: those
// that are there already, and those that would leave the active NIC together with this channel.
bool Channel::candidate(Purpose purpose, uint64_t now, int& local, int& remote) const {
  const int locals = int(core_.devices.size()), remotes = peer_hello_.nics;
  std::vector<Backup> order{{home_nic_, -1}};
  order.insert(order.end(), core_.backups[size_t(home_nic_)].begin(), core_.backups[size_t(home_nic_)].end());
  const NicLoad load = core_.load();
  const auto would_carry = [&](int nic) {
    return load.guests[size_t(nic)] + (active_ ? load.behind[size_t(active_->local_nic())][size_t(nic)] : 0);
  };
  std::stable_sort(order.begin(), order.end(), [&](const Backup& a, const Backup& b) {
    return a.distance != b.distance ? a.distance < b.distance : would_carry(a.nic) < would_carry(b.nic);
  });
  const auto usable = [&](int l, int r, bool disjoint) {
    if (core_.nic_unusable[size_t(l)] || core_.nic_down[size_t(l)] || peer_nic_down_[size_t(r)] ||
        core_.workers->stuck(l))
      return false;
    if (now < not_before_[size_t(l)][size_t(r)]) return false;
    if (!core_.resilient() && (l != home_nic_ || r != peer_home_nic_)) return false;
    if (l == home_nic_ && r == peer_home_nic_ && purpose == Purpose::kStandby &&
        home_rail_.state() != health::RailState::kUp)
      return false;
    if (disjoint && active_ && (active_->local_nic() == l || active_->remote_nic() == r)) return false;
    return std::none_of(paths_.begin(), paths_.end(),
                        [&](const auto& path) { return path->local_nic() == l && path->remote_nic() == r; });
  };
  for (const bool disjoint : {true, false}) {
    for (int k = 0; k < locals; ++k) {  // straight
      const int l = order[size_t(k)].nic, r = (peer_home_nic_ + l - home_nic_ + locals * remotes) % remotes;
      if (usable(l, r, disjoint)) {
        local = l, remote = r;
        return true;
      }
    }
    for (int k = 0; k < locals; ++k)  // cross
      for (int j = 0; j < remotes; ++j) {
        const int l = order[size_t(k)].nic, r = (peer_home_nic_ + j) % remotes;
        if (usable(l, r, disjoint)) {
          local = l, remote = r;
          return true;
        }
      }
  }
  return false;
}

bool Channel::is_making(uint32_t id) const {
  return std::any_of(makings_.begin(), makings_.end(),
                     [id](const auto& making) { return making->path == id && !making->unwanted; });
}

// The NIC's worker makes this end's half: the port is read anew, the queue pairs are made, and connected when
// the other half is known.
void Channel::make(std::shared_ptr<Making> making) {
  auto work = [making, &core = core_, memory = memory_] {
    verbs::Device& device = core.devices[size_t(making->local)];
    if (!device.refresh_port(core.config)) {
      making->made = Error{ErrorCode::kVerbs, "its port is not active"};
      return;
    }
    making->made =
        Path::create(making->path, making->local, making->remote, device, memory, core.resilient());
    if (!making->made) return;
    Path& path = **making->made;
    if (making->peer_end)
      if (auto connected = path.connect(device, *making->peer_end, core.config); !connected) {
        making->made = connected.error();
        return;
      }
    making->end = path.describe(device);
  };
  making->job = core_.workers->give(making->local, "ibv_create_qp", std::move(work));
  makings_.push_back(std::move(making));
}

void Channel::step_makings(const Tick& tick) {
  for (size_t i = 0; i < makings_.size();) {
    if (!makings_[i]->job->done()) {
      ++i;
      continue;
    }
    const std::shared_ptr<Making> making = makings_[i];
    makings_.erase(makings_.begin() + std::ptrdiff_t(i));
    if (!making->unwanted && !closing_)
      half_made(*making, tick);
    else if (making->made)
      lay_to_rest(std::move(*making->made));
  }
}

void Channel::start_opening(Purpose purpose, int local, int remote, const Tick& tick) {
  opening_ = {next_path_++, purpose, local, remote, false, false, tick.alive};
  emit(trace::EventType::kPathOpening, local, opening_.path, uint64_t(remote));
  auto making = std::make_shared<Making>();
  making->path = opening_.path;
  making->local = local;
  making->remote = remote;
  make(std::move(making));
}

void Channel::on_open(const wire::Open& open, const Tick& /*tick*/) {
  if (sender_ || find(open.path) || is_making(open.path) || open.receiver_nic >= core_.devices.size() ||
      open.sender_nic >= peer_hello_.nics)
    return;
  if (core_.nic_unusable[open.receiver_nic] || core_.nic_down[open.receiver_nic] ||
      core_.workers->stuck(open.receiver_nic) || makings_.size() >= kMostMakings) {
    wire::Opened answer{};
    answer.path = open.path;
    send(wire::Type::kOpened, answer);
    return;
  }
  auto making = std::make_shared<Making>();
  making->path = open.path;
  making->local = open.receiver_nic;
  making->remote = open.sender_nic;
  making->peer_end = open.end;
  make(std::move(making));
}

void Channel::half_made(Making& making, const Tick& tick) {
  if (making.made) (*making.made)->since = tick.alive;
  if (sender_) {
    if (!making.made) {
      const Error& error = making.made.error();
      const bool scarce = error.code == ErrorCode::kMemoryLock || error.code == ErrorCode::kOutOfResources;
      if (scarce && !std::exchange(resources_told_, true))
        R2_WARN("NET/R2CCL: channel %u: %s. %s", number_, error.message.c_str(), advice(error.code).data());
      return opening_failed(error.message, tick);
    }
    wire::Open open{};
    open.path = making.path;
    open.sender_nic = uint8_t(making.local);
    open.receiver_nic = uint8_t(making.remote);
    open.end = making.end;
    paths_.push_back(std::move(*making.made));
    opening_.waiting_for_peer = true;
    opening_.since = tick.alive;
    send(wire::Type::kOpen, open);
    return;
  }
  wire::Opened answer{};
  answer.path = making.path;
  if (making.made) {
    answer.ok = 1;
    answer.end = making.end;
    (*making.made)->state = core_.resilient() ? PathState::kProving : PathState::kStandby;
    paths_.push_back(std::move(*making.made));
  } else {
    R2_INFO("NET/R2CCL: channel %u: path over %s: %s", number_, nic_name(making.local).c_str(),
            making.made.error().message.c_str());
  }
  send(wire::Type::kOpened, answer);
}

void Channel::on_opened(const wire::Opened& opened, const Tick& tick) {
  Path* path = find(opened.path);
  if (!sender_ || !path || opening_.path != opened.path || !opening_.waiting_for_peer ||
      path->state != PathState::kOpening)
    return;
  if (!opened.ok)
    return opening_failed("the peer's NIC " + peer_nic_name(path->remote_nic()) + " is not available", tick);
  opening_.waiting_for_peer = false;
  opening_.connecting = true;
  opening_.since = tick.alive;
  path->job =
      core_.workers->give(path->local_nic(), "ibv_modify_qp to RTS", [path, &core = core_, end = opened.end] {
        path->outcome = path->connect(core.devices[size_t(path->local_nic())], end, core.config);
      });
}

void Channel::connected(Path& path, const Tick& tick) {
  if (!path.outcome) return opening_failed(path.outcome.error().message, tick);
  opening_.connecting = false;
  if (!core_.resilient()) return opening_succeeded(tick);
  path.state = PathState::kProving;
  path.since = tick.alive;
  path.probe(tick.alive);
}

// It is time to open one.
bool Channel::lacks_standby(const Tick& tick) const {
  return core_.resilient() && end_.phase() == Phase::kRunning && tick.now >= next_standby_ &&
         core_.standbys < core_.config.standbys &&
         std::none_of(paths_.begin(), paths_.end(), [this](const auto& path) {
           return path->state == PathState::kStandby && path->id() != probation_path_;
         });
}

void Channel::step_opening(const Tick& tick) {
  if (opening_.path == 0) {
    int local = 0, remote = 0;
    if (status() == Status::kConnecting) {
      if (candidate(Purpose::kFirst, tick.now, local, remote))
        start_opening(Purpose::kFirst, local, remote, tick);
    } else if (lacks_standby(tick)) {
      if (candidate(Purpose::kStandby, tick.now, local, remote)) {
        ++core_.standbys;
        start_opening(Purpose::kStandby, local, remote, tick);
      } else {
        next_standby_ = tick.now + kRetryStandbyNs;
      }
    }
    return;
  }
  Path* path = find(opening_.path);
  const bool driver_is_late = core_.workers->stuck(opening_.local);
  if (!path) {
    if (!is_making(opening_.path)) return opening_failed("it was dropped", tick);
    if (driver_is_late)
      opening_failed("the driver of NIC " + nic_name(opening_.local) + " does not answer", tick);
    return;
  }
  if (opening_.waiting_for_peer) return;
  if (opening_.connecting) {
    if (!path->in_hand()) return connected(*path, tick);
    if (driver_is_late)
      opening_failed("the driver of NIC " + nic_name(opening_.local) + " does not answer", tick);
    return;
  }
  switch (path->poll_probe(tick.alive)) {
    case ProbeState::kAnswered:
      opening_.waiting_for_peer = true;
      opening_.since = path->since;
      send(wire::Type::kProve, wire::PathMessage{path->id()});
      break;
    case ProbeState::kFailed:
      opening_failed(verbs::describe(path->probe_status), tick);
      break;
    default:
      if (path->probe_age(tick.alive) > kProveFactor * nanoseconds(core_.config.probe_deadline))
        opening_failed("a first transfer did not come back", tick);
  }
}

void Channel::on_prove(uint32_t id, const Tick& tick) {
  Path* path = find(id);
  if (sender_ || !path || path->state != PathState::kProving) return;
  path->since = tick.alive;
  path->probe(tick.alive);
  step_receiver_proofs(tick);
}

void Channel::step_receiver_proofs(const Tick& tick) {
  for (auto& path : paths_) {
    if (path->state != PathState::kProving || path->probe_state() == ProbeState::kIdle) continue;
    switch (path->poll_probe(tick.alive)) {
      case ProbeState::kAnswered:
        path->state = PathState::kStandby;
        path->forget_probe();
        send(wire::Type::kProved, wire::PathMessage{path->id()});
        break;
      case ProbeState::kWaiting:
        if (path->probe_age(tick.alive) <= kProveFactor * nanoseconds(core_.config.probe_deadline)) break;
        [[fallthrough]];
      default:
        return drop(path->id(), true);
    }
  }
}

void Channel::on_proved(uint32_t id, const Tick& tick) {
  if (sender_ && opening_.path == id && find(id)) opening_succeeded(tick);
}

void Channel::opening_succeeded(const Tick& tick) {
  Path* path = find(opening_.path);
  const Purpose purpose = opening_.purpose;
  opening_ = {};
  path->state = PathState::kStandby;
  path->since = tick.alive;
  path->forget_probe();
  emit(trace::EventType::kPathOpened, path->local_nic(), path->id(), uint64_t(path->remote_nic()));
  switch (purpose) {
    case Purpose::kFirst:
      use(*path, tick);
      break;
    case Purpose::kStandby:
      standby_failures_ = 0;
      break;
    case Purpose::kRescue:
      break;  // choose_path() finds it
    case Purpose::kFailback:
      probation_path_ = path->id();
      home_rail_.try_succeeded(tick.now);
      break;
  }
}

void Channel::opening_failed(const std::string& why, const Tick& tick) {
  const Opening opening = opening_;
  opening_ = {};
  R2_INFO("NET/R2CCL: channel %u: no path over %s: %s", number_,
          rail_name(opening.local, opening.remote).c_str(), why.c_str());
  note_failure(opening.local, opening.remote, why);
  not_before_[size_t(opening.local)][size_t(opening.remote)] = tick.now + kRetryRailNs;
  for (auto& making : makings_) making->unwanted |= making->path == opening.path;
  if (find(opening.path)) drop(opening.path, true);
  if (opening.purpose == Purpose::kStandby) {
    next_standby_ =
        tick.now + (standby_failures_ == 0 ? 0 : kRetryStandbyNs << std::min(standby_failures_, 5u));
    ++standby_failures_;
  } else if (opening.purpose == Purpose::kFailback) {
    home_rail_.try_failed(tick.now);
  }
}

void Channel::on_drop(uint32_t id, const Tick& tick) {
  if (!sender_)
    for (auto& making : makings_) making->unwanted |= making->path == id;
  Path* path = find(id);
  if (!path) return;
  if (opening_.path == id) return opening_failed("the peer gave it up", tick);
  switch (after_drop(path->state)) {
    case AfterDrop::kNothing:
      break;
    case AfterDrop::kLeave:
      begin_migration(trace::DetectedBy::kPeer, "the peer gave the path up", tick);
      break;
    case AfterDrop::kDrop:
      drop(id, false);
  }
}

void Channel::nic_changed(int nic, bool up, const Tick& tick) {
  if (!greeted_ || peer_closed_ || closing_ || !core_.resilient() || status() == Status::kFailed) return;
  if (up) {
    send(wire::Type::kNic, wire::Nic{uint32_t(nic), 1});
    if (nic == home_nic_) home_rail_.hint_active(tick.now);
    next_standby_ = std::min(next_standby_, tick.now);
    return;
  }
  if (active_ && active_->local_nic() == nic)
    begin_migration(trace::DetectedBy::kEvent, "port of NIC " + nic_name(nic) + " went down", tick);
  send(wire::Type::kNic, wire::Nic{uint32_t(nic), 0});
  if (opening_.path != 0 && opening_.local == nic) opening_failed("its port went down", tick);
  for (size_t i = 0; i < paths_.size();) {  // those that only stood by
    Path& path = *paths_[i];
    if (path.local_nic() != nic || path.state == PathState::kFencing)
      ++i;
    else
      drop(path.id(), true);
  }
}

void Channel::queue_pair_failed(const ibv_qp* pair, const char* what, const Tick& tick) {
  const auto it = std::find_if(paths_.begin(), paths_.end(),
                               [pair](const auto& path) { return !path->in_hand() && path->data.is(pair); });
  if (it != paths_.end()) path_failed(**it, what, tick);
}

void Channel::completion_queue_failed(const ibv_cq* queue, const Tick& tick) {
  const auto it = std::find_if(paths_.begin(), paths_.end(),
                               [queue](const auto& path) { return path->queue.get() == queue; });
  if (it == paths_.end()) return;
  (*it)->reports_nothing = true;
  path_failed(**it, "its completion queue failed", tick);
}

void Channel::path_failed(Path& path, const char* what, const Tick& tick) {
  if (!greeted_ || peer_closed_ || closing_ || !core_.resilient() || status() == Status::kFailed) return;
  if (path.state == PathState::kFencing) return;
  if (&path == active_)
    begin_migration(trace::DetectedBy::kEvent, what, tick);
  else if (path.id() == opening_.path)
    opening_failed(what, tick);
  else
    drop(path.id(), true);
}

void Channel::on_peer_nic(const wire::Nic& change, const Tick& tick) {
  if (change.nic >= peer_hello_.nics) return;
  peer_nic_down_[change.nic] = change.up == 0;
  if (change.up) {
    if (int(change.nic) == peer_home_nic_) home_rail_.hint_active(tick.now);
    next_standby_ = std::min(next_standby_, tick.now);
  } else if (active_ && active_->remote_nic() == int(change.nic)) {
    begin_migration(trace::DetectedBy::kPeer,
                    "the peer's NIC " + peer_nic_name(int(change.nic)) + " went down", tick);
  }
}

void Channel::step_failback(const Tick& tick) {
  if (end_.phase() != Phase::kRunning || !active_) return;
  if (at_home()) return;
  if (Path* path = probation_path_ ? find(probation_path_) : nullptr) {
    const ProbeState probe = path->poll_probe(tick.alive);
    const uint64_t limit = std::max(nanoseconds(core_.config.probe_deadline), 4 * path->probe_slowest());
    if (probe == ProbeState::kFailed ||
        (probe == ProbeState::kWaiting && path->probe_age(tick.alive) > limit))
      return drop(path->id(), true);
    if (probe == ProbeState::kWaiting) return;
    if (probe == ProbeState::kAnswered && home_rail_.settled(tick.now))
      return begin_migration(trace::DetectedBy::kNone, "its home rail works again", tick, path->id());
    if (probe == ProbeState::kIdle || path->probe_age(tick.alive) >= kProbationProbeNs)
      path->probe(tick.alive);
    return;
  }
  if (opening_.path == 0 && home_rail_.should_try(tick.now) && !peer_nic_down_[size_t(peer_home_nic_)] &&
      !core_.nic_down[size_t(home_nic_)] && !core_.nic_unusable[size_t(home_nic_)] &&
      !core_.workers->stuck(home_nic_)) {
    home_rail_.trying();
    start_opening(Purpose::kFailback, home_nic_, peer_home_nic_, tick);
  }
}

}  // namespace r2ccl
