// SPDX-License-Identifier: Apache-2.0
// Migration: fence, exchange of ledgers, choice of another path (protocol/PROTOCOL.md). One epoch is one
// migration. The end that detects the failure starts it; if both ends do, that is one migration.
#include <algorithm>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"

namespace r2ccl {
namespace {

constexpr size_t kFailuresTold = 8;

}  // namespace

void Channel::look_for_suspects(Owned owned) {
  ownership_.check(owned);
  const bool any =
      paths_.any([](const auto& path) { return is_suspect(path->state, path->failure.has_value()); });
  suspected_.store(any, std::memory_order_release);
}

void Channel::begin_migration(Path& path, trace::DetectedBy by, const std::string& why, const Tick& tick,
                              uint32_t planned_target) {
  Actions actions(*this, tick, by, why);
  actions.planned = planned_target != 0;
  ChannelEnd(end_, actions).leave(path.id(), planned_target);
}

// What is on record of a failure, before its path is left.
void Channel::note_leaving(const Path& path, trace::DetectedBy by, const std::string& why, const Tick& tick) {
  watchdog_.left(by == trace::DetectedBy::kWatchdog, activity_.progress());
  note_failure(path.local_nic(), path.remote_nic(), why);
  R2_INFO("NET/R2CCL: channel %u: %s failed, detected by %s: %s; migrating its traffic", number_,
          rail_name(path).c_str(), trace::name(by).data(), why.c_str());
  context_.failure_log.left(this, path.local_nic(), rail_name(path), std::string(trace::name(by)), why,
                            tick.now);
}

void Channel::note_told(const Path& path, trace::DetectedBy by, const std::string& why) {
  R2_INFO("NET/R2CCL: channel %u: %s reports that %s failed (detected by %s); migrating its traffic", number_,
          peer_.name().c_str(), rail_name(path).c_str(), trace::name(by).data());
  note_failure(path.local_nic(), path.remote_nic(), why);
}

// Whatever the phase: how long an answer took is counted up to this look.
void Channel::look_at_probes(const Tick& tick) {
  for (auto& path : paths_) {
    if (look_at_probe(*path, tick) == ProbeState::kWaiting)
      path->push_probe(wants_push_unasked(path->state, path->probe_age(tick.alive), probe_limit(*path, tick)),
                       tick.alive);
    else if (is_stale(sender_, end_.phase(), path->state,
                      failback_.has(path->id()) || is_for_move(path->id())))
      path->forget_probe();
  }
}

void Channel::on_migrate(const wire::Migrate& migrate, const Tick& tick) {
  const auto by = trace::DetectedBy(migrate.detected_by);
  Actions actions(*this, tick, trace::DetectedBy::kPeer,
                  "the peer detected it by " + std::string(trace::name(by)));
  actions.planned = migrate.planned != 0;
  actions.detected_there = by;
  ChannelEnd(end_, actions).on_migrate(migrate.epoch, migrate.path, actions.planned);
}

void Channel::begin_search(const Tick& tick) {
  if (!search_.begin(tick.alive, activity_.progress())) return;
  rails_.forget_counts();
  rails_.forget_older_notes();
}

void Channel::note_failure(int local, int remote, const std::string& why) {
  rails_.note({local, remote, rail_name(local, remote) + ": " + why, now_ns()});
}

std::string Channel::what_failed() const {
  std::string text;
  const uint64_t now = now_ns();
  const auto add = [&](const std::string& what, uint64_t at) {
    text += (text.empty() ? "" : "; ") + what + " (" + std::to_string((now - at) / kNsPerMs) + " ms ago)";
  };
  const auto& failures = rails_.notes();
  for (size_t i = failures.size() > kFailuresTold ? failures.size() - kFailuresTold : 0; i < failures.size();
       ++i)
    add(failures[i].what, failures[i].at);
  const auto add_if = [&](bool is_so, const std::string& what, uint64_t at) {
    if (is_so) add(what, at);
  };
  for (size_t nic = 0; nic < context_.devices.size(); ++nic)
    add_if(context_.nic_down[nic],
           "the port of NIC " + nic_name(int(nic)) + " of " + context_.host + " went down",
           context_.nic_down_at[nic]);
  for (int nic = 0; nic < peer_.nics(); ++nic)
    add_if(peer_.nic_down(nic),
           (peer_.nic_left(nic) ? "NIC " : "the port of NIC ") + peer_.nic_name(nic) + " of " + peer_.name() +
               (peer_.nic_left(nic) ? " cannot register buffers" : " went down"),
           peer_.nic_changed_at(nic));
  return text.empty() ? "nothing" : text;
}

void Channel::use(Path& path, const Tick& tick) {
  Actions actions(*this, tick);
  ChannelEnd(end_, actions).use(path.id());
}

// True: its traffic has come home.
bool Channel::activate(Path& path, bool first, bool moved, const Tick& tick, Owned owned) {
  ownership_.check(owned);
  paths_.activate(path, owned);
  spread({}, owned);
  path.forget_probe();
  retire_unfenced();
  activity_.has_a_path();
  search_.carries(tick.alive);
  watchdog_.carries_on(activity_.progress());
  return failback_.carries(path.id(), {is_home(path), moved, first, context_.resilient()}, tick.now);
}

void Channel::note_carried(const Path& path, bool first, uint64_t moving_since, bool comes_home) {
  if (first) {
    emit(trace::EventType::kChannelUp, path.local_nic(), uint32_t(context_.process));
    return;
  }
  emit(trace::EventType::kMigrationDone, path.local_nic(), uint64_t(left_nic_), end_.epoch(), path.id());
  context_.failure_log.went_on(this, rail_name(path), now_ns());
  R2_INFO("NET/R2CCL: channel %u: its traffic migrated to %s after %llu us", number_, rail_name(path).c_str(),
          static_cast<unsigned long long>((now_ns() - moving_since) / 1000));
  if (comes_home) {
    emit(trace::EventType::kFailback, path.local_nic());
    emit(trace::EventType::kNicUp, path.local_nic());
  }
}

void Channel::on_use(const wire::Use& message, const Tick& tick) {
  Actions actions(*this, tick, trace::DetectedBy::kPeer);
  ChannelEnd(end_, actions).on_use(message.epoch, message.path);
}

}  // namespace r2ccl
