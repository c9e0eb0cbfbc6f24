// SPDX-License-Identifier: Apache-2.0
// NCCL's proxy in small: a progress thread that alone calls isend, irecv and test and sleeps while nothing is
// open, and a service thread for everything else (listen, connect, accept, regMr, close).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "harness/workload/cpu/channel.h"

namespace r2bench {

/// Runs closures one after the other on one thread of its own.
class ServiceThread {
 public:
  ServiceThread();
  ~ServiceThread();
  /// Runs `work` there and waits. Exceptions come back to the caller.
  void run(std::function<void()> work);
  /// The same with a bound; false: it was not done in time and goes on in the background.
  bool run_for(std::function<void()> work, std::chrono::milliseconds bound);

 private:
  std::shared_future<void> post(std::function<void()> work);
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::packaged_task<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

class ProgressThread {
 public:
  ProgressThread();
  /// Ends the thread; an open operation is left as it is.
  ~ProgressThread();

  /// Called by the progress thread when everything has finished an operation. Starts the next one and returns
  /// true, or returns false. May change what is polled.
  using Next = std::function<bool()>;

  /// Polls until all have finished the operation that was started on them, and those that `next` adds to it:
  /// they follow back to back, as operations do that are queued on a stream. An error of the plugin ends the
  /// thread's work for good, as it does in NCCL: throws ChannelError, then and on every later call. Returns
  /// false when stop() came first.
  bool run(const std::vector<Polled*>& polled, Next next);
  /// Makes run() return false soon, even while a call of the plugin does not return. Final.
  void stop();
  /// Whether the thread has left the plugin for good within `bound` of stop(). Until it has, nothing that it
  /// polls may be closed: NCCL, too, ends its progress thread first.
  bool has_left_within(std::chrono::milliseconds bound);
  /// Stops polling for `duration`, between two polls: a receiver that sleeps. Asleep since / until, for
  /// `note`.
  void sleep_once(std::chrono::nanoseconds duration,
                  std::function<void(uint64_t from_ns, uint64_t to_ns)> note);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  bool polls_ = false;  ///< the thread is among what it polls, without the mutex
  const std::vector<Polled*>* open_ = nullptr;
  Next next_;
  std::optional<ChannelError> error_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> sleep_wanted_{false};
  std::chrono::nanoseconds sleep_for_{0};
  std::function<void(uint64_t, uint64_t)> sleep_note_;
  std::thread thread_;
};

}  // namespace r2bench
