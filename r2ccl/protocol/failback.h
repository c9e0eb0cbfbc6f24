// SPDX-License-Identifier: Apache-2.0
// How a sender's traffic comes home: when the home rail is tried again, how long a new path over it has to go
// on answering probes, and when it is taken. Pure; times are CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <cstdint>

#include "r2ccl/health/rail_health.h"
#include "r2ccl/protocol/choice.h"

namespace r2ccl {

enum class FailbackAct : uint8_t {
  kNone,
  kOpen,    ///< a path over the home rail is to be opened
  kProbe,   ///< the one that is on probation is to be probed
  kGiveUp,  ///< … it failed
  kReturn,  ///< … it has worked for long enough: traffic moves there
};

/// Of a channel that carries.
struct FailbackSight {
  bool away = true;       ///< from home
  bool opens = false;     ///< some path is being opened
  bool has_path = false;  ///< the path on probation is there
  ProbeSight probe = ProbeSight::kNone;
  uint64_t probe_age = 0;
};

/// Of a path that carries from here on.
struct CarrySight {
  bool home = true;    ///< it is over the home rail
  bool moved = false;  ///< it is another path than before
  bool first = false;  ///< it is the channel's first
  bool resilient = true;
};

class Failback {
 public:
  static constexpr uint64_t kProbeEveryNs = 5'000'000;
  /// How long a home rail that fails for the first time is left alone.
  static constexpr uint64_t kFirstWaitNs = 100'000'000;
  /// More than the service thread sleeps at a time.
  static constexpr uint64_t kNearNs = 150'000'000;

  explicit Failback(health::RailPolicy policy) : rail_(policy) {}

  /// The home rail has not failed, or is back.
  bool is_up() const { return rail_.state() == health::RailState::kUp; }
  bool is_down() const { return !is_up(); }
  /// On probation; 0: none.
  uint32_t path() const { return path_; }
  bool has(uint32_t path) const { return path_ != 0 && path_ == path; }
  /// The next try is due within kNearNs.
  bool is_near(uint64_t now) const { return rail_.should_try_soon(now, kNearNs); }

  // --- what happens
  void rail_failed(uint64_t now) { rail_.failed(now); }
  /// Traffic has left a path; `home`: over the home rail, which has failed unless that was `planned`.
  void left(bool home, bool planned, uint64_t now) {
    if (home && !planned) rail_failed(now);
  }
  void rail_active(uint64_t now) { rail_.hint_active(now); }
  void opened(uint32_t path, uint64_t now) {
    path_ = path;
    rail_.try_succeeded(now);
  }
  void opening_failed(uint64_t now) { rail_.try_failed(now); }
  void dropped(uint32_t path, uint64_t now) {
    if (!has(path)) return;
    path_ = 0;
    rail_.try_failed(now);
  }
  /// `path` carries the traffic. `home`: over the home rail.
  void carries(uint32_t path, bool home, uint64_t now) {
    if (has(path)) path_ = 0;
    if (home && !is_up()) rail_.restored(now);
  }

  /// `path` carries the traffic from here on. True: it has come home.
  bool carries(uint32_t path, const CarrySight& seen, uint64_t now) {
    const bool comes_home = seen.home && seen.moved && !seen.first;
    carries(path, comes_home, now);
    if (seen.first && !seen.home && seen.resilient) rail_failed(now);  // the way home is looked for at once
    return comes_home;
  }

  // --- what is due
  /// `home_may_work()`: nothing is known to be the matter with the home rail. Asked where it matters.
  template <class HomeMayWork>
  FailbackAct look(const FailbackSight& seen, uint64_t now, HomeMayWork&& home_may_work) {
    if (!seen.away) return FailbackAct::kNone;
    if (seen.has_path) {
      switch (seen.probe) {
        case ProbeSight::kFailed:
          return FailbackAct::kGiveUp;
        case ProbeSight::kAwaited:
          return FailbackAct::kNone;
        case ProbeSight::kNone:
          return FailbackAct::kProbe;
        case ProbeSight::kAnswered:
          if (rail_.settled(now)) return FailbackAct::kReturn;
          return seen.probe_age >= kProbeEveryNs ? FailbackAct::kProbe : FailbackAct::kNone;
      }
    }
    if (seen.opens || !rail_.should_try(now) || !home_may_work()) return FailbackAct::kNone;
    rail_.trying();
    return FailbackAct::kOpen;
  }

 private:
  health::RailHealth rail_;
  uint32_t path_ = 0;
};

}  // namespace r2ccl
