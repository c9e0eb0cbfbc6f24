// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/proxy.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

/// After polling for so long without progress the thread sleeps for a moment between two polls. What keeps
/// NICs busy that are slow for a CPU then needs a part of a core only, also where ranks outnumber cores.
/// Whoever waits for the answer to a short message, or for a CollNet operation, polls without a pause.
constexpr double kPollingNs = 200'000;
constexpr std::chrono::microseconds kPause{50};
constexpr unsigned long kTimerSlackNs = 1'000;  // the kernel's default doubles the pause

/// Whether nothing has moved for long. A plugin that reduces or copies does so within a poll and tells
/// nobody: a poll that takes clearly longer than the shortest ones counts as progress. What others do with
/// the core between two polls does not count.
class Idleness {
 public:
  void moved() { polled_ns_ = 0; }
  /// A poll that has moved nothing took so long. True: it is time for a pause.
  bool lasts(double took_ns) {
    shortest_ = std::min(took_ns, shortest_ * kForgets);
    const bool worked = took_ns > 2 * shortest_ + kShortNs || took_ns > kLongNs;
    polled_ns_ = worked ? 0 : polled_ns_ + took_ns + kYieldNs;
    return polled_ns_ >= kPollingNs;
  }

 private:
  static constexpr double kForgets = 1.001;  // more requests are open, and each poll takes longer
  static constexpr double kShortNs = 20'000;
  static constexpr double kLongNs = 150'000;
  static constexpr double kYieldNs = 500;  // where nobody else wants the core
  double shortest_ = kLongNs;
  double polled_ns_ = 0;  // since something moved
};

}  // namespace

ServiceThread::ServiceThread()
    : thread_([this] {
        std::unique_lock lock(mutex_);
        while (true) {
          wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
          if (queue_.empty()) return;
          auto task = std::move(queue_.front());
          queue_.erase(queue_.begin());
          lock.unlock();
          task();
          lock.lock();
        }
      }) {}

ServiceThread::~ServiceThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_future<void> ServiceThread::post(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  std::shared_future<void> result = task.get_future().share();
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wake_.notify_all();
  return result;
}

void ServiceThread::run(std::function<void()> work) { post(std::move(work)).get(); }

bool ServiceThread::run_for(std::function<void()> work, std::chrono::milliseconds bound) {
  auto result = post(std::move(work));
  if (result.wait_for(bound) != std::future_status::ready) return false;
  result.get();
  return true;
}

ProgressThread::ProgressThread() : thread_([this] { loop(); }) {}

ProgressThread::~ProgressThread() {
  stop();
  thread_.join();
}

void ProgressThread::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  done_.notify_all();
}

bool ProgressThread::has_left_within(std::chrono::milliseconds bound) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, bound, [&] { return stop_ && !polls_; });
}

bool ProgressThread::run(const std::vector<Polled*>& polled, Next next) {
  std::unique_lock lock(mutex_);
  if (error_) throw ChannelError(*error_);
  open_ = &polled;
  next_ = std::move(next);
  wake_.notify_all();
  done_.wait(lock, [&] { return open_ == nullptr || stop_; });
  if (error_) throw ChannelError(*error_);
  return open_ == nullptr;
}

void ProgressThread::sleep_once(std::chrono::nanoseconds duration,
                                std::function<void(uint64_t, uint64_t)> note) {
  std::lock_guard lock(mutex_);
  sleep_for_ = duration;
  sleep_note_ = std::move(note);
  sleep_wanted_.store(true, std::memory_order_release);
}

void ProgressThread::loop() {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || (open_ && !error_); });
    if (stop_) return;
    const std::vector<Polled*>& open = *open_;
    polls_ = true;
    lock.unlock();
    std::optional<ChannelError> error;
    bool all_finished = false;
    Idleness idle;
    try {
      while (!all_finished && !stop_.load(std::memory_order_relaxed)) {
        if (sleep_wanted_.load(std::memory_order_acquire)) {
          const uint64_t from = r2ccl::now_ns();
          std::function<void(uint64_t, uint64_t)> note;
          std::chrono::nanoseconds duration;
          {
            std::lock_guard guard(mutex_);
            sleep_wanted_ = false;
            duration = sleep_for_;
            note = std::move(sleep_note_);
          }
          std::this_thread::sleep_for(duration);
          if (note) note(from, r2ccl::now_ns());
        }
        bool moved = false, computes = false;
        all_finished = true;
        const uint64_t from = r2ccl::now_ns();
        for (Polled* polled : open) {
          if (polled->finished()) continue;
          moved |= polled->progress();
          all_finished = all_finished && polled->finished();
          computes |= polled->computes();
        }
        if (moved || all_finished || computes) idle.moved();
        if (all_finished && next_())
          all_finished = false;
        else if (!moved && !all_finished && !computes && idle.lasts(double(r2ccl::now_ns() - from)))
          std::this_thread::sleep_for(kPause);
        else if (!moved)
          sched_yield();
      }
    } catch (const ChannelError& e) {
      error = e;
    } catch (const std::exception& e) {
      error = ChannelError(e.what());
    }
    lock.lock();
    polls_ = false;
    error_ = error;
    if (all_finished || error) open_ = nullptr;
    done_.notify_all();
    if (stop_) return;
  }
}

}  // namespace r2bench
