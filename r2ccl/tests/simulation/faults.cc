// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/faults.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "r2ccl/tests/simulation/system.h"

namespace r2ccl::simulation {

using Kind = Fault::Kind;

Faults::Faults(const Plan& plan, Fabric& fabric, Job& job, Findings& findings)
    : plan_(plan),
      fabric_(fabric),
      job_(job),
      findings_(findings),
      seen_(plan.faults.size()),
      fates_(plan.faults.size()),
      struck_nic_(plan.faults.size(), -1) {}

bool Faults::has_happened(Kind kind) const {
  return std::any_of(applied_.begin(), applied_.end(),
                     [kind](const auto& fault) { return fault.second == kind; });
}

Time Faults::undisturbed_since(Time since) const {
  const Time now = scheduler().now();
  Time counted = since, took = 0;
  for (const auto& [from, until] : kept_) {
    if (from > counted) took += std::min(from, now) - std::min(counted, now);
    counted = std::max(counted, until);
  }
  return counted < now ? took + now - counted : took;
}

void Faults::received() {
  ++received_;
  if (findings_.tell && received_ % 20 == 0)
    std::printf("%12.6f %d messages have been received\n", findings_.seconds(), received_);
  for (size_t i = 0; i < plan_.faults.size(); ++i)
    if (const Fault& fault = plan_.faults[i];
        fault.event == trace::EventType::kNone && fault.after_messages + 1 == received_)
      scheduler().after(fault.delay, [this, i] { happen(i, {}); });
  if (plan_.hopeless && received_ == (plan_.hopeless_at > 0 ? plan_.hopeless_at : plan_.messages() / 2))
    scheduler().after(plan_.hopeless_after, [this] { hopeless(); });
}

void Faults::event(const trace::Event& event, int process) {
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (fault.event != event.type || fault.by != process || seen_[i]++ != fault.after_messages) continue;
    scheduler().after(fault.delay,
                      [this, i, event = std::make_unique<trace::Event>(event)] { happen(i, *event); });
  }
}

// What a fault strikes there: nullptr, nothing just now.
const Path* Faults::path_of(const Fault& fault, const trace::Event& event, int channel) const {
  if (channel < 0) return nullptr;
  const End& end = fault.nic == 0 ? job_.sender(size_t(channel)) : job_.receiver(size_t(channel));
  if (!end.comm || end.stage != Stage::kTraffic) return nullptr;
  const Path* found = nullptr;
  end.comm->for_each_path([&](const Path& path) {
    switch (fault.target) {
      case Fault::Target::kActive:
        if (path.state == PathState::kActive) found = &path;
        break;
      case Fault::Target::kLane:
        if (path.state == PathState::kLane) found = &path;
        break;
      default:
        if (path.id() == event.a) found = &path;
    }
  });
  return found;
}

void Faults::happen(size_t number, const trace::Event& event) {
  Fault fault = plan_.faults[number];
  fates_[number] = Fate::kFound;
  uint32_t pair = 0;
  switch (fault.target) {
    case Fault::Target::kNic:
      break;
    case Fault::Target::kEventPeer:
      fault.nic = (1 - fault.by) * plan_.nics + event.nic;
      break;
    default: {
      const int channel = fault.channel >= 0 ? fault.channel : job_.channel_of(fault.by, event.channel);
      const Path* path = path_of(fault, event, channel);
      if (!path || !path->data) return;
      const End& end = fault.nic == 0 ? job_.sender(size_t(channel)) : job_.receiver(size_t(channel));
      fault.nic = end.process * plan_.nics + path->local_nic();
      pair = path->data.number();
    }
  }
  if (!apply(fault, pair)) return;
  fates_[number] = Fate::kStruck;
  struck_nic_[number] = fault.nic;
}

// What a NIC is to lose has been lost when it is counted down.
std::vector<Fate> Faults::fates() const {
  std::vector<Fate> fates = fates_;
  for (size_t i = 0; i < fates.size(); ++i) {
    if (struck_nic_[i] < 0) continue;
    const Fault& fault = plan_.faults[i];
    const int* left = to_lose(*fabric_.nics[size_t(struck_nic_[i])], fault.kind);
    if (left && *left >= fault.other) fates[i] = Fate::kFound;
  }
  return fates;
}

void Faults::hopeless() {
  hopeless_since_ = scheduler().now();
  if (findings_.tell)
    std::printf("%12.6f fault: every NIC of process 0 is deaf from here on\n", findings_.seconds());
  for (auto& nic : fabric_.nics)
    if (nic->process == 0) nic->deaf = nic->ever_faulty = true;
}

void Faults::note(const Fault& fault) {
  const Time now = scheduler().now();
  if (findings_.tell)
    std::printf("%12.6f fault: %s of %d/%d for %llu us\n", findings_.seconds(), name(fault.kind), fault.nic,
                fault.other, static_cast<unsigned long long>(fault.lasts / kMicrosecond));
  if (is_of_nic(fault.kind)) {
    if (!spares(fault.kind)) fabric_.nics[size_t(fault.nic)]->ever_faulty = true;
    applied_.emplace(fault.nic, fault.kind);
    ++strikes_[size_t(fault.nic)];
  }
  disturbed_until_ = std::max(disturbed_until_, now + (fault.lasts < kHistoryBound ? fault.lasts : 0));
  if (fault.kind >= Kind::kTcpCut && fault.kind <= Kind::kTcpMute)
    kept_.emplace(now, now + fault.lasts + (is_of_control(fault.kind) ? kControlBound : 0));
  if (fault.kind == Kind::kFreeze || (fault.kind >= Kind::kDriverSlow && fault.kind <= Kind::kPretend))
    kept_.emplace(now, now + fault.lasts);
}

// True: it takes effect. (That something is lost shows later.)
bool Faults::apply(const Fault& fault, uint32_t pair) {
  note(fault);
  if (is_of_nic(fault.kind)) return apply_to_nic(fault, pair);
  if (fault.kind == Kind::kStop || fault.kind == Kind::kPause)
    apply_to_process(fault);
  else
    apply_to_control(fault);
  return true;
}

bool Faults::cut_rail(const Fault& fault) {
  const std::pair rail{fault.nic, fault.other};
  const bool spared = (fault.nic % plan_.nics == plan_.spared[fault.nic / plan_.nics]) &&
                      (fault.other % plan_.nics == plan_.spared[fault.other / plan_.nics]);
  if (spared) return false;
  fabric_.cut.insert(rail);
  scheduler().after(fault.lasts, [this, rail] { fabric_.cut.erase(rail); });
  return fabric_.in_flight(fault.nic, fault.other);
}

// How many more of those a NIC loses or refuses; nullptr: that is another kind of fault.
int* Faults::to_lose(Nic& nic, Kind kind) const {
  switch (kind) {
    case Kind::kLoseCompletion:
      return &nic.lose_completions;
    case Kind::kLoseImmediate:
      return &nic.lose_immediates;
    case Kind::kLoseLine:
      return &nic.lose_lines;
    case Kind::kRefusePosts:
      return &nic.refuse_posts;
    default:
      return nullptr;
  }
}

bool Faults::take_device(const Fault& fault) {
  Nic& nic = *fabric_.nics[size_t(fault.nic)];
  if (nic.refuses) return false;
  nic.unstoppable = true;
  if (fault.kind == Kind::kRemove) {
    fabric_.remove(nic, fault.lasts);
    return true;
  }
  nic.pretends = true;
  fabric_.say(nic, IBV_EVENT_DEVICE_FATAL);
  scheduler().after(fault.lasts, [this, &nic] { fabric_.remove(nic, 10 * kMillisecond); });
  return true;
}

bool Faults::apply_to_nic(const Fault& fault, uint32_t pair) {
  Nic& nic = *fabric_.nics[size_t(fault.nic)];
  const Time until = scheduler().now() + fault.lasts;
  const auto later = [&](auto what) { scheduler().after(fault.lasts, what); };
  switch (fault.kind) {
    case Kind::kPortDown:
    case Kind::kPortSilent: {
      const bool told = fault.kind == Kind::kPortDown;
      fabric_.port(nic, false, told);
      later([this, &nic, told] { fabric_.port(nic, true, told); });
      break;
    }
    case Kind::kDeaf:
      nic.deaf = true;
      later([this, &nic] { nic.deaf = plan_.hopeless && hopeless_since_ != 0 && nic.process == 0; });
      break;
    case Kind::kCutRail:
      return cut_rail(fault);
    case Kind::kPairError:
    case Kind::kPairErrorSilent:
      return pair != 0 ? fabric_.pair_error(pair, fault.kind == Kind::kPairError)
                       : fabric_.pair_error(nic, fault.kind == Kind::kPairError);
    case Kind::kFreeze:
      nic.frozen_until = std::max(nic.frozen_until, until);
      break;
    case Kind::kDriverSlow:
    case Kind::kDriverHang:
      if (fault.kind == Kind::kDriverHang && !job_.all_set_up()) hung_in_set_up_ += fault.lasts;
      nic.driver_returns = std::max(nic.driver_returns, until);
      nic.unstoppable = nic.unstoppable || fault.kind == Kind::kDriverHang;
      break;
    case Kind::kRemove:
    case Kind::kPretend:
      return take_device(fault);
    case Kind::kLate:
      nic.late = fabric_.lifetime;
      later([&nic] { nic.late = 0; });
      break;
    case Kind::kSlow:
      nic.bytes_per_ns = 1.25;
      later([&nic] { nic.bytes_per_ns = 12.5; });
      break;
    default:
      *to_lose(nic, fault.kind) += fault.other;
  }
  return true;
}

void Faults::apply_to_control(const Fault& fault) {
  System& system = kernel();
  const auto later = [&](auto what) { scheduler().after(fault.lasts, what); };
  switch (fault.kind) {
    case Kind::kTcpCut:
      system.cut_connections(fabric_.random, 3);
      break;
    case Kind::kTcpHalfOpen:
      system.cut_connections(fabric_.random, fault.other);
      break;
    case Kind::kTcpDrop:
      system.weather.drops = true;
      later([&system] { system.weather.drops = false; });
      break;
    case Kind::kTcpHold:
      system.weather.held_until = scheduler().now() + fault.lasts;
      break;
    case Kind::kTcpSwallow:
      system.swallow_connections(fabric_.random);
      break;
    default:
      system.weather.mutes = true;
      later([&system] { system.weather.mutes = false; });
  }
}

void Faults::apply_to_process(const Fault& fault) {
  const Time until = scheduler().now() + fault.lasts;
  if (fault.kind == Kind::kStop)
    scheduler().stop_process(fault.nic, until);
  else
    job_.pause(fault.nic, until);
}

}  // namespace r2ccl::simulation
