// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/scheduler.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

namespace r2ccl::simulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;
bool g_running = false;

}  // namespace

Scheduler g_scheduler;

bool simulating() { return g_running; }

Fiber* Scheduler::spawn(int process, std::function<void()> body) {
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber* fiber = fibers_.back().get();
  fiber->process = process;
  fiber->body = std::move(body);
  if (free_stacks_.empty()) {
    fiber->stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber->stack == MAP_FAILED) std::abort();
  } else {
    fiber->stack = free_stacks_.back();
    free_stacks_.pop_back();
  }
  fiber->context.begin(fiber->stack, kStackBytes, &Scheduler::enter);
  fiber->waiting = true;
  queue_.push({now_, sequence_++, fiber, fiber->turn});
  return fiber;
}

uint32_t Scheduler::free_action() {
  if (free_actions_.empty()) {
    actions_.emplace_back();
    return uint32_t(actions_.size() - 1);
  }
  const uint32_t slot = free_actions_.back();
  free_actions_.pop_back();
  return slot;
}

void Scheduler::enter() {
  Fiber* fiber = scheduler().current_;
  fiber->body();
  fiber->body = nullptr;
  fiber->ended = true;
  for (Fiber* joining : fiber->joining) scheduler().wake(joining);
  fiber->context.switch_to(scheduler().main_);  // which takes its stack
  std::abort();                                 // nobody resumes it
}

// Carries out what comes before the turn of a fiber; nullptr: it is over.
Fiber* Scheduler::next() {
  current_ = nullptr;
  while (!is_over()) {
    Event event = queue_.pop();
    now_ = event.when;
    Fiber* const fiber = event.fiber;
    if (!fiber) {
      Action& action = actions_[event.what];
      action.carry_out(action.what);
      free_actions_.push_back(uint32_t(event.what));
    } else if (fiber->waiting && event.what == fiber->turn) {
      if (const Time stopped = stopped_[size_t(fiber->process)]; stopped > now_) {
        event.when = stopped;
        event.sequence = sequence_++;
        queue_.push(event);
        continue;
      }
      fiber->waiting = false;
      return fiber;
    }
  }
  return nullptr;
}

// `self` waits. The next fiber goes on at once, without a detour over run(): often it is `self` again.
void Scheduler::go_on(Fiber* self) {
  Fiber* const fiber = next();
  current_ = fiber;
  if (fiber != self) self->context.switch_to(fiber ? fiber->context : main_);
}

void Scheduler::sleep(Time ns) {
  Fiber* fiber = current_;
  if (!fiber) return;
  const Event event{now_ + ns, sequence_++, fiber, ++fiber->turn};
  // Nothing happens meanwhile.
  if (!stopping_ && event.when <= limit_ && (queue_.empty() || event < queue_.top()) &&
      stopped_[size_t(fiber->process)] <= event.when) {
    now_ = event.when;
    return;
  }
  fiber->waiting = true;
  queue_.push(event);
  go_on(fiber);
}

bool Scheduler::wait(Time until) {
  Fiber* fiber = current_;
  if (!fiber) {
    std::fprintf(stderr, "simulation: an event waits\n");
    std::abort();
  }
  fiber->waiting = true;
  fiber->woken = false;
  ++fiber->turn;
  if (until != kNever) queue_.push({std::max(until, now_), sequence_++, fiber, fiber->turn});
  go_on(fiber);
  return fiber->woken;
}

void Scheduler::wake(Fiber* fiber) {
  if (!fiber->waiting || fiber->woken) return;
  fiber->woken = true;
  queue_.push({now_, sequence_++, fiber, fiber->turn});
}

void Scheduler::stop_process(int process, Time until) {
  stopped_[size_t(process)] = std::max(stopped_[size_t(process)], until);
}

// Fibers come back here when it is over, and when they have ended.
bool Scheduler::run(Time limit) {
  limit_ = limit;
  g_running = true;
  while (Fiber* const fiber = next()) {
    current_ = fiber;
    main_.switch_to(fiber->context);
    Fiber* const last = current_;
    if (last && last->ended && last->stack) free_stacks_.push_back(std::exchange(last->stack, nullptr));
  }
  g_running = false;
  return stopping_;
}

}  // namespace r2ccl::simulation
