// SPDX-License-Identifier: Apache-2.0
// One virtual clock, and the threads of all simulated processes as fibers under it. One operating-system
// thread runs everything, so a history depends on its seed alone. Time passes only when every fiber waits.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

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
  uint64_t turn = 0;   ///< counts its waits: a wake-up for an earlier one says nothing
  bool woken = false;  ///< by wake(), not by its deadline
  bool waiting = false;
  bool started = false;
  ucontext_t context;
  jmp_buf registers;
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
  void at(Time when, std::function<void()> what);
  void after(Time ns, std::function<void()> what) { at(now_ + ns, std::move(what)); }

  // --- a fiber ---
  void sleep(Time ns);
  /// Until wake() of this fiber (true), or the time.
  bool wait(Time until = kNever);

  void wake(Fiber* fiber);
  /// The fibers of a process do not run before then (SIGSTOP, SIGCONT).
  void stop_process(int process, Time until);
  Time stopped_until(int process) const { return stopped_[size_t(process)]; }
  /// Until nothing is left to do, `over` says so, or the time is reached. True: `over` said so.
  bool run(Time limit, const std::function<bool()>& over);
  uint64_t events() const { return sequence_; }

 private:
  struct Event {
    Time when;
    uint64_t sequence;
    Fiber* fiber;  // nullptr: `what`
    uint64_t turn;
    uint32_t what;
    bool operator>(const Event& other) const {
      return when != other.when ? when > other.when : sequence > other.sequence;
    }
  };
  void switch_to(Fiber* fiber);
  void switch_back();
  static void enter();

  Time now_ = 0;
  uint64_t sequence_ = 0;
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::vector<std::function<void()>> actions_;
  std::vector<uint32_t> free_actions_;
  std::vector<Time> stopped_ = std::vector<Time>(64, 0);
  jmp_buf main_;
  ucontext_t main_context_;
};

/// The one of this operating-system process: a history has one of its own.
extern Scheduler g_scheduler;
inline Scheduler& scheduler() { return g_scheduler; }
/// A simulated thread or an event runs, so that time is the scheduler's.
bool simulating();

}  // namespace r2ccl::simulation
