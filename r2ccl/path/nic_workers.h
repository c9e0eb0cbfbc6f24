// SPDX-License-Identifier: Apache-2.0
// One thread per NIC makes the calls that a driver may take long over, or never return from: making,
// connecting, stopping and destroying queue pairs, and reading the port. The service thread gives it jobs and
// looks at what became of them, so a NIC whose driver does not answer holds up nobody but the channels that
// need its answer. Posting and polling are not calls of this kind.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace r2ccl {

/// One driver call, or a few in a row.
class Job {
 public:
  /// True: the work is over, and what it has written may be read.
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// The worker has taken it up: until then what passes is the time of other jobs of the same NIC.
  bool begun() const noexcept { return begun_.load(std::memory_order_relaxed); }
  /// Its work, before the next driver call: from here on the bound is that call's. `call` is a literal.
  void calls(const char* call) noexcept {
    call_.store(call, std::memory_order_relaxed);
    calls_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  friend class NicWorkers;
  std::atomic<const char*> call_{""};
  std::atomic<uint32_t> calls_{0};
  std::function<void(Job&)> work_;  // gone once it is done
  uint64_t due_ = 0;                // CLOCK_MONOTONIC, ns
  std::atomic<bool> begun_{false};
  std::atomic<bool> done_{false};
};
using JobPtr = std::shared_ptr<Job>;

class NicWorkers {
 public:
  /// `names`: of the NICs, for the log. `thread_name`: up to 12 letters. `when_done` is called by a worker
  /// after each job; it must not block.
  NicWorkers(const char* thread_name, std::vector<std::string> names, std::function<void()> when_done);
  ~NicWorkers() { stop(); }
  NicWorkers(const NicWorkers&) = delete;
  NicWorkers& operator=(const NicWorkers&) = delete;

  /// Any thread. The jobs of one NIC are done one at a time and in order, by a thread that starts with the
  /// first of them. Where none can be started, whoever gives a job does it. `call` is a literal that names
  /// the first driver call of `work`. If that throws std::bad_alloc, it is done, and its result is what it
  /// was before.
  JobPtr give(int nic, const char* call, std::function<void(Job&)> work);
  /// The same, after all jobs of give().
  JobPtr give_later(int nic, const char* call, std::function<void(Job&)> work);
  /// A job of this NIC: the same, when `ns` have passed, the same for all; or when everything ends.
  void give_after(int nic, uint64_t ns, const char* call, std::function<void(Job&)> work);

  /// Any thread but a worker and the service thread: waits for a job of this NIC. False: the NIC is stuck,
  /// its driver has kept the job that it is at for more than `longest_ns`, or the process ends; the job may
  /// still be done at any time.
  bool wait(int nic, const Job& job, uint64_t longest_ns = ~uint64_t{0});
  /// The service thread, again and again while open_jobs(): finds out which NICs do not answer. `alive` is a
  /// clock that stands while this process does; a NIC is stuck after `bound_ns(nic)` of it with one call, or
  /// eight times as much while the worker merely wants a CPU.
  void look(uint64_t alive, const std::function<uint64_t(int)>& bound_ns);
  /// Any thread.
  bool open_jobs() const noexcept { return open_.load(std::memory_order_relaxed) > 0; }
  /// Any thread: the driver of this NIC has kept a call for longer than the bound, and still does.
  bool stuck(int nic) const noexcept;
  /// Any thread: `job`, which is not done, has not begun, and the NIC is not stuck: others' jobs are done
  /// before it, one after the other.
  bool queued(int nic, const Job& job) const noexcept { return !job.begun() && !stuck(nic); }
  /// Of a NIC that is stuck: "the driver of NIC mlx5_0 has not returned from ibv_modify_qp for 503 ms", or
  /// "… from ibv_create_qp, before ibv_modify_qp …" where `job` has not begun. The service thread.
  std::string explain(int nic, const Job& job, uint64_t alive) const;

  /// Any thread: what a NIC may still touch and its driver would not destroy. It is kept until let_go(), for
  /// good without one.
  void keep(int nic, std::shared_ptr<void> object);
  /// The NIC is known to touch nothing any more: all that is kept, and will be, is given up by its worker.
  void let_go(int nic);

  /// No more jobs are begun, but for those of give_after(), which have `kStopBoundMs`. A thread that its
  /// driver does not let go is left behind after as long again.
  void stop();

 private:
  static constexpr int kStopBoundMs = 1000;
  struct Worker;
  JobPtr enqueue(int nic, const char* call, std::function<void(Job&)> work, bool later);
  static void run(const std::shared_ptr<Worker>& worker);
  static void carry_out(Job& job) noexcept;

  const char* thread_name_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::atomic<int> open_{0};
  std::function<void()> when_done_;
};

}  // namespace r2ccl
