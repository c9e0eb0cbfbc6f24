// SPDX-License-Identifier: Apache-2.0
// One virtual clock, and the threads of all simulated processes as fibers under it. One operating-system
// thread runs everything, so a history depends on its seed alone. Time passes only when every fiber waits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "r2ccl/tests/simulation/context.h"
#include "r2ccl/tests/simulation/event_queue.h"

namespace r2ccl::simulation {

using Time = uint64_t;  ///< ns since the history began
inline constexpr Time kNever = ~Time{0};
inline constexpr Time kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;

/// A generator of random numbers (splitmix64): small, fast, the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  uint64_t between(uint64_t least, uint64_t most) { return least + below(most - least + 1); }
  bool chance(uint64_t percent) { return below(100) < percent; }
  /// Small values as often as large ones.
  Time skewed(Time least, Time most) {
    Time value = least;
    while (value < most && chance(75)) value *= 2;
    return between(least, std::min(value, most));
  }

 private:
  uint64_t state_;
};

struct Fiber {
  int process = -1;
  std::function<void()> body;
  bool ended = false;
  std::vector<Fiber*> joining;
  uint32_t number = 0;
  uint32_t waits_since = 0;  ///< the sequence then: what was entered before says nothing to it
  bool woken = false;        ///< by wake(), not by its deadline
  bool waiting = false;
  Context context;
  void* stack = nullptr;
};

class Scheduler {
 public:
  Time now() const { return now_; }
  /// The fiber that runs; nullptr: an event does.
  Fiber* current() const { return current_; }
  /// The simulated process that runs; −1: none.
  int process() const { return current_ ? current_->process : -1; }

  Fiber* spawn(int process, std::function<void()> body);
  /// Calls `what` then, on the stack of any fiber, with no current one.
  template <class What>
  void at(Time when, What what) {
    const uint32_t slot = free_action();
    Action& action = this->action(slot);
    new (action.what) What(std::move(what));
    static_assert(sizeof(What) <= sizeof Action::what && alignof(What) <= alignof(void*));
    action.carry_out = [](void* there) {
      What& what = *static_cast<What*>(there);
      what();
      what.~What();
    };
    enter(std::max(when, now_), slot << 1 | kIsAction);
  }
  template <class What>
  void after(Time ns, What what) {
    at(now_ + ns, std::move(what));
  }

  // --- a fiber ---
  void sleep(Time ns);
  /// Until wake() of this fiber (true), or the time.
  bool wait(Time until = kNever);

  void wake(Fiber* fiber);
  /// The fibers of a process do not run before then (SIGSTOP, SIGCONT).
  void stop_process(int process, Time until);
  Time stopped_until(int process) const { return stopped_[size_t(process)]; }
  /// Until nothing is left to do, stop() is called, or the time is reached. True: stop() was called.
  bool run(Time limit);
  /// run() returns when what runs now waits, or has ended.
  void stop() { stopping_ = true; }
  uint64_t events() const { return sequence_; }

 private:
  struct Action {
    void (*carry_out)(void*);
    alignas(void*) std::byte what[56];
  };
  uint32_t free_action();
  void make_stacks();
  /// Of what is to happen: the lowest bit of its number.
  static constexpr uint32_t kIsFiber = 0, kIsAction = 1;
  void enter(Time when, uint32_t what) { queue_.push({when, sequence_++, what}); }
  bool is_over() const { return stopping_ || queue_.empty() || queue_.first() > limit_; }
  Fiber* next();
  void go_on(Fiber* self);
  static void begin();

  Time now_ = 0, limit_ = 0;
  uint32_t sequence_ = 0;
  bool stopping_ = false;
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  EventQueue queue_;
  static constexpr uint32_t kTogether = 256;
  Action& action(uint32_t slot) { return actions_[slot / kTogether][slot % kTogether]; }
  std::vector<std::unique_ptr<Action[]>> actions_;  // they stay where they are while they run
  std::vector<uint32_t> free_actions_;
  std::vector<void*> free_stacks_;
  std::vector<Time> stopped_ = std::vector<Time>(64, 0);
  Context main_;  // of run()
};

/// The one of this operating-system process: a history has one of its own.
extern Scheduler g_scheduler;
inline Scheduler& scheduler() { return g_scheduler; }
/// A simulated thread or an event runs, so that time is the scheduler's.
bool simulating();

}  // namespace r2ccl::simulation
