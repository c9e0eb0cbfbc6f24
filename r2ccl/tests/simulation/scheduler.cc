// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/scheduler.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

namespace r2ccl::simulation {
namespace {

constexpr size_t kStackBytes = 256 << 10, kStacks = 24;
bool g_running = false;

}  // namespace

Scheduler g_scheduler;

bool simulating() { return g_running; }

Fiber* Scheduler::spawn(int process, std::function<void()> body) {
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber* fiber = fibers_.back().get();
  fiber->number = uint32_t(fibers_.size() - 1);
  fiber->process = process;
  fiber->body = std::move(body);
  if (free_stacks_.empty()) make_stacks();
  fiber->stack = free_stacks_.back();
  free_stacks_.pop_back();
  fiber->context.begin(fiber->stack, kStackBytes, &Scheduler::begin);
  fiber->waiting = true;
  fiber->waits_since = sequence_;
  enter(now_, fiber->number << 1 | kIsFiber);
  return fiber;
}

// Several at once: most histories need no more, and only what is used of them takes memory.
void Scheduler::make_stacks() {
  void* const stacks = mmap(nullptr, kStacks * kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) std::abort();
  for (size_t i = kStacks; i-- > 0;)
    free_stacks_.push_back(static_cast<std::byte*>(stacks) + i * kStackBytes);
}

uint32_t Scheduler::free_action() {
  if (free_actions_.empty()) {
    const auto first = uint32_t(actions_.size()) * kTogether;
    actions_.emplace_back(new Action[kTogether]);
    for (uint32_t i = kTogether; i-- > 0;) free_actions_.push_back(first + i);
  }
  const uint32_t slot = free_actions_.back();
  free_actions_.pop_back();
  return slot;
}

void Scheduler::begin() {
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
    const EventQueue::Event event = queue_.pop();
    now_ = event.when;
    const uint32_t number = event.what >> 1;
    if (event.what & kIsAction) {
      Action& action = this->action(number);
      action.carry_out(action.what);
      free_actions_.push_back(number);
    } else if (Fiber* const fiber = fibers_[number].get();
               fiber->waiting && event.sequence >= fiber->waits_since) {
      if (const Time stopped = stopped_[size_t(fiber->process)]; stopped > now_) {
        enter(stopped, event.what);
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
  const Time until = now_ + ns;
  // Nothing happens meanwhile.
  if (!stopping_ && until <= limit_ && (queue_.empty() || until < queue_.first()) &&
      stopped_[size_t(fiber->process)] <= until) {
    ++sequence_;
    now_ = until;
    return;
  }
  fiber->waiting = true;
  fiber->waits_since = sequence_;
  enter(until, fiber->number << 1 | kIsFiber);
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
  fiber->waits_since = sequence_;
  if (until != kNever) enter(std::max(until, now_), fiber->number << 1 | kIsFiber);
  go_on(fiber);
  return fiber->woken;
}

void Scheduler::wake(Fiber* fiber) {
  if (!fiber->waiting || fiber->woken) return;
  fiber->woken = true;
  enter(now_, fiber->number << 1 | kIsFiber);
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
