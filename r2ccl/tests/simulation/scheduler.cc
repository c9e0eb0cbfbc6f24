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
  fiber->stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fiber->stack == MAP_FAILED) std::abort();
  fiber->waiting = true;
  queue_.push({now_, sequence_++, fiber, fiber->turn, 0});
  return fiber;
}

void Scheduler::at(Time when, std::function<void()> what) {
  uint32_t slot;
  if (free_actions_.empty()) {
    slot = uint32_t(actions_.size());
    actions_.push_back(std::move(what));
  } else {
    slot = free_actions_.back();
    free_actions_.pop_back();
    actions_[slot] = std::move(what);
  }
  queue_.push({std::max(when, now_), sequence_++, nullptr, 0, slot});
}

void Scheduler::enter() {
  Fiber* fiber = scheduler().current_;
  fiber->body();
  fiber->body = nullptr;
  fiber->ended = true;
  for (Fiber* joining : fiber->joining) scheduler().wake(joining);
  scheduler().switch_back();
  std::abort();  // nobody resumes it
}

// The first entry through a context; then jumps, which make no system call.
void Scheduler::switch_to(Fiber* fiber) {
  current_ = fiber;
  if (_setjmp(main_) == 0) {
    if (fiber->started) _longjmp(fiber->registers, 1);
    fiber->started = true;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, &Scheduler::enter, 0);
    setcontext(&fiber->context);
  }
  current_ = nullptr;
  if (fiber->ended && fiber->stack) {
    munmap(fiber->stack, kStackBytes);
    fiber->stack = nullptr;
  }
}

void Scheduler::switch_back() {
  if (_setjmp(current_->registers) == 0) _longjmp(main_, 1);
}

void Scheduler::sleep(Time ns) {
  Fiber* fiber = current_;
  if (!fiber) return;
  fiber->waiting = true;
  ++fiber->turn;
  queue_.push({now_ + ns, sequence_++, fiber, fiber->turn, 0});
  switch_back();
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
  if (until != kNever) queue_.push({std::max(until, now_), sequence_++, fiber, fiber->turn, 0});
  switch_back();
  return fiber->woken;
}

void Scheduler::wake(Fiber* fiber) {
  if (!fiber->waiting || fiber->woken) return;
  fiber->woken = true;
  queue_.push({now_, sequence_++, fiber, fiber->turn, 0});
}

void Scheduler::stop_process(int process, Time until) {
  stopped_[size_t(process)] = std::max(stopped_[size_t(process)], until);
}

bool Scheduler::run(Time limit, const std::function<bool()>& over) {
  g_running = true;
  while (!queue_.empty()) {
    Event event = queue_.top();
    queue_.pop();
    if (event.when > limit) break;
    now_ = event.when;
    if (!event.fiber) {
      const auto what = std::move(actions_[event.what]);
      actions_[event.what] = nullptr;
      free_actions_.push_back(event.what);
      what();
    } else if (event.fiber->waiting && event.turn == event.fiber->turn) {
      if (const Time stopped = stopped_[size_t(event.fiber->process)]; stopped > now_) {
        event.when = stopped;
        event.sequence = sequence_++;
        queue_.push(event);
        continue;
      }
      event.fiber->waiting = false;
      switch_to(event.fiber);
    }
    if (over()) {
      g_running = false;
      return true;
    }
  }
  g_running = false;
  return false;
}

}  // namespace r2ccl::simulation
