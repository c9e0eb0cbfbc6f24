// SPDX-License-Identifier: Apache-2.0
// The process's objects and the engine thread that keeps their transfers going while the program does not
// call verbs. Must never make anybody wait for the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/process/objects.h"
#include "harness/vhca/process/process.h"

namespace vhca {

// How often the engine looks for what a killed process did not signal. After an earlier wake-up it sleeps for
// as long once more, so what it finds is up to two of these old.
inline constexpr std::uint64_t kHeartbeatNs = 100'000'000;

class Runtime : public Process {
 public:
  // The process's runtime, made at the first call; nullptr where Process::find_place() finds nothing.
  static Runtime* get();

  // First context opened / last one closed: takes and gives back the process's slot, starts and stops the
  // engine. 0 or an errno.
  int add_user();
  void remove_user();

  void add_qp(Qp& qp);
  void remove_qp(Qp& qp);  // returns when no other thread holds it
  void add_cq(Cq& cq);
  void remove_cq(Cq& cq);
  void add_srq(Srq& srq);
  void remove_srq(Srq& srq);

  struct Objects {
    std::vector<Qp*> qps;
    std::vector<Cq*> cqs;
    std::vector<Srq*> srqs;
  };
  // What was made with the context and not destroyed.
  Objects objects_of(const Context& context);

  // Something is to be done for the QP at that time (kNever: nothing). Caller holds its send_lock.
  void schedule(Qp& qp, std::uint64_t due_ns);

  // The QP has work that may wait until a poller finds nothing to poll, or until that time. Caller holds its
  // send_lock.
  void gather(Qp& qp, std::uint64_t due_ns);

  // Runs what is due, with `gathered` what waits for more as well. Called by the engine and by everybody who
  // polls.
  void progress(std::uint64_t now, bool gathered = false);
  bool gathers() const { return gathers_.load(std::memory_order_relaxed); }
  // For a poller. `goes_on`: it polls again soon, and the engine may leave the work to it.
  void progress_if_due(bool goes_on);
  // The program is going to wait for an event: the engine carries out what it would have.
  void stop_polling();

  // After this returns, no transfer that began before it is still using anything of this process (but those
  // of stopped or dead initiators), our own initiators included. Used when a memory region goes.
  void wait_for_transfers();

 private:
  explicit Runtime(const Place& place) : Process(place) {}
  static void after_fork_in_child();
  void run_engine();
  void look_at_shared_flags(bool heartbeat);
  void activate(Qp& qp);  // due now; the caller holds lock_
  std::uint64_t sleep_until(std::uint64_t now, std::uint64_t woke_ns) const;
  bool polls(std::uint64_t now) const;  // the program does, or did a moment ago

  std::mutex user_lock_;
  int users_ = 0;
  std::thread engine_;
  std::atomic<bool> stop_{false};

  std::mutex lock_;  // the lists below, and is_active, pins, due_ns of each QP
  std::vector<Qp*> qps_;
  std::vector<Qp*> active_;
  std::vector<Cq*> cqs_;
  std::vector<Srq*> srqs_;
  std::atomic<bool> gathers_{false};  // some QP does, or did lately
  std::atomic<std::uint64_t> next_due_{kNever};
  std::atomic<std::uint64_t> engine_wakes_ns_{0};  // when it will look again by itself
  std::atomic<std::uint64_t> polled_ns_{0};        // when the program polled last, roughly
  std::atomic<bool> posted_early_{false};          // … and it posted what is due before the engine wakes
  bool looks_at_poller_ = false;                   // … when the engine slept last; the engine's alone
};

// The context has a port of that number (has_port).
inline const Port& port_of(ibv_context* handle, std::uint32_t number) {
  Context& context = Context::of(handle);
  return context.runtime->fabric().ports[context.first_port + number - 1];
}

}  // namespace vhca
