// SPDX-License-Identifier: Apache-2.0
// What explores failback: the sender's Failback, its home rail, which fails and works again, and a clock. It
// carries out what Failback decides as channel/sender_paths.cc and channel/openings.cc do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/protocol/failback.h"
#include "r2ccl/tests/model/object.h"

namespace r2ccl::model {

/// A decision that is made wrongly, to show that a property fails then.
enum class WrongFailback : uint8_t {
  kNone,
  kTwoAtOnce,
  kDoesNotSettle,
  kUnansweredCounts,
  kProbesOnce,
  kNeverWaitsLonger,
  kNoCeiling,
  kNeverForgives,
  kTriesAtOnce,
  kBelievesEveryPort,
  kNeverTries,
  kKeepsFailed,
  kAnotherPathDropped,
  kNotNear,
  kNotUpAgain,
};

class TestedFailback : public Failback {
 public:
  static inline WrongFailback wrong = WrongFailback::kNone;

  explicit TestedFailback(const health::RailPolicy& policy)
      : Failback({policy.settle_ns, policy.first_wait_ns,
                  policy.ceiling_ns * (wrong == WrongFailback::kNoCeiling ? 100 : 1)}),
        policy_(policy) {}

  bool is_near(uint64_t now) const { return wrong != WrongFailback::kNotNear && Failback::is_near(now); }
  void rail_failed(uint64_t now) {
    const bool long_ago = last_ != 0 && now - last_ > policy_.settle_ns;
    if (wrong == WrongFailback::kNeverForgives && long_ago) {
      Failback::rail_failed(last_ + policy_.settle_ns);
      return Failback::opening_failed(now);
    }
    Failback::rail_failed(now);
    if (wrong == WrongFailback::kTriesAtOnce) Failback::rail_active(now);
  }
  void rail_active(uint64_t now) {
    if (wrong == WrongFailback::kBelievesEveryPort && path() == 0 && !is_up() && !opens_) anew(now);
    Failback::rail_active(now);
  }
  void opened(uint32_t path, uint64_t now) {
    opens_ = false;
    Failback::opened(path, now);
  }
  void opening_failed(uint64_t now) {
    opens_ = false;
    Failback::opening_failed(now);
    if (wrong == WrongFailback::kNeverWaitsLonger) anew(now);
  }
  void dropped(uint32_t path, uint64_t now) {
    Failback::dropped(wrong == WrongFailback::kAnotherPathDropped ? Failback::path() : path, now);
  }
  void carries(uint32_t path, bool home, uint64_t now) {
    last_ = now;
    Failback::carries(path, home && wrong != WrongFailback::kNotUpAgain, now);
  }
  FailbackAct look(FailbackSight seen, uint64_t now) {
    if (wrong == WrongFailback::kUnansweredCounts && seen.probe == ProbeSight::kAwaited)
      seen.probe = ProbeSight::kAnswered;
    if (wrong == WrongFailback::kKeepsFailed && seen.probe == ProbeSight::kFailed)
      seen.probe = ProbeSight::kAwaited;
    if (wrong == WrongFailback::kProbesOnce) seen.probe_age = 0;
    seen.opens &= wrong != WrongFailback::kTwoAtOnce;
    const Failback before = *this;
    const FailbackAct act = Failback::look(seen, now, [] { return true; });
    opens_ |= act == FailbackAct::kOpen;
    if (wrong == WrongFailback::kTwoAtOnce && act == FailbackAct::kOpen)
      static_cast<Failback&>(*this) = before;
    if (wrong == WrongFailback::kNeverTries && act == FailbackAct::kOpen) {
      static_cast<Failback&>(*this) = before;
      return FailbackAct::kNone;
    }
    if (wrong == WrongFailback::kDoesNotSettle && seen.has_path && seen.probe == ProbeSight::kAnswered)
      return FailbackAct::kReturn;
    return act;
  }

 private:
  // As if it had failed for the first time.
  void anew(uint64_t now) {
    static_cast<Failback&>(*this) = Failback(policy_);
    Failback::rail_failed(now);
  }
  health::RailPolicy policy_;
  uint64_t last_ = 0;
  bool opens_ = false;
};

/// How far the exploration goes; a tick is 5 ms, which is Failback::kProbeEveryNs.
struct FailbackBounds {
  int ticks = 60;    ///< time in one run
  int falls = 2;     ///< how often the home rail fails
  int refusals = 0;  ///< openings that fail, and paths that the receiver drops, although the rail works
  int hints = 0;     ///< a port that is said to be active
  int slow = 0;      ///< a tick that passes before the answer to a probe, or an opening, is there
  int others = 0;    ///< another path is opened, or dropped, meanwhile
  int longs = 0;     ///< a long time passes in which the rail does not fail
};

struct FailbackWorld {
  enum class Traffic : uint8_t { kHome, kAway, kMoves };
  enum class Event : uint8_t {
    kStart,
    kFall,
    kWorksAgain,
    kHint,
    kLook,
    kOpened,
    kNotOpened,
    kAnswered,
    kProbeFailed,
    kDropped,
    kArrives,
    kArrivesElsewhere,
    kOtherOpens,
    kOtherIsOpen,
    kOtherDropped,
    kTick,
    kLongTime,
  };
  TestedFailback failback;
  uint64_t now;
  Traffic traffic = Traffic::kHome;
  bool works = true;
  bool opens = false;        ///< a path over the home rail is being opened
  bool other_opens = false;  ///< another path is
  uint8_t path = 0;          ///< on probation, or the one that traffic moves to
  bool has_path = false;
  ProbeSight probe = ProbeSight::kNone;
  uint64_t probed_at = 0, opened_at = 0;
  uint64_t home_at = 0;       ///< traffic has come home; 0: it has never been away
  uint8_t failures = 0;       ///< of the home rail, since it was last good for long
  uint64_t earliest = 0;      ///< the next try is due
  uint64_t usable_since = 0;  ///< all of the time since then the rail could have been tried

  uint8_t falls = 0, refusals = 0, hints = 0, slow = 0, others = 0, longs = 0;

  const char* violation = nullptr;
  Event event = Event::kStart;
  FailbackAct act = FailbackAct::kNone;
};

class FailbackModel {
 public:
  using State = FailbackWorld;
  static constexpr size_t kMaxBytes = 256;
  static constexpr uint64_t kTick = Failback::kProbeEveryNs;
  static constexpr uint64_t kStart = 1000 * kTick;
  /// It settles for 2 ticks; it waits for one at first, for 16 at most.
  static constexpr health::RailPolicy kPolicy{2 * kTick, kTick, 16 * kTick};
  /// Longer than RailHealth takes a rail that fails for flapping: 50 settling times.
  static constexpr uint64_t kLong = 101 * kTick;

  explicit FailbackModel(const FailbackBounds& bounds) : bounds_(bounds) {}
  State initial() const { return {TestedFailback(kPolicy), kStart}; }
  size_t expand(const State& state, std::vector<State>& next) const;
  size_t bytes(const State& state, uint8_t* out) const;
  /// The time is over.
  const char* at_end(const State&) const { return nullptr; }
  std::string words(const State& state) const;

 private:
  class Run;
  FailbackBounds bounds_;
};

}  // namespace r2ccl::model
