// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/path/nic_workers.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"

namespace r2ccl {
namespace {

constexpr std::chrono::milliseconds kLookForStuck{5};
constexpr int kPatience = 7;

// Does the thread run, or want to? (proc_pid_stat(5): the state follows the name in brackets.)
bool is_runnable(pid_t tid) {
  char path[64], text[256];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", int(tid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return false;
  text[got] = '\0';
  const char* bracket = std::strrchr(text, ')');
  return bracket && bracket[1] == ' ' && bracket[2] == 'R';
}

}  // namespace

// Outlives NicWorkers in the hands of a thread that does not come back.
struct NicWorkers::Worker {
  std::string name;
  std::string thread_name;
  NicWorkers* owner = nullptr;  // while not `stopping`

  std::mutex mutex;                  // guards the following
  std::condition_variable changed;   // something to do, or to stop
  std::condition_variable finished;  // a job is done
  std::deque<JobPtr> jobs, later, waiting;
  std::deque<JobPtr>* next(std::unique_lock<std::mutex>& lock);
  bool ending = false;  // what waits is done now, and nothing else is begun
  JobPtr current;
  uint64_t count = 0;          // of jobs begun
  uint64_t current_since = 0;  // now
  std::vector<std::shared_ptr<void>> kept;
  bool keeps = true;
  std::thread thread;
  pid_t tid = 0;
  bool stopping = false;
  bool ended = false;

  std::atomic<bool> stuck{false};
  std::atomic<int> open{0};  // jobs that are not done
  // the service thread's
  uint64_t seen_count = 0;
  uint32_t seen_calls = 0;
  uint64_t seen_since = 0;
  int patience = 0;
};

NicWorkers::NicWorkers(const char* thread_name, std::vector<std::string> names,
                       std::function<void()> when_done)
    : thread_name_(thread_name), when_done_(std::move(when_done)) {
  for (size_t nic = 0; nic < names.size(); ++nic) {
    workers_.push_back(std::make_shared<Worker>());
    workers_.back()->name = std::move(names[nic]);
    workers_.back()->thread_name = thread_name_ + std::to_string(nic);
    workers_.back()->owner = this;
  }
}

JobPtr NicWorkers::give(int nic, const char* call, std::function<void(Job&)> work) {
  return enqueue(nic, call, std::move(work), false);
}

JobPtr NicWorkers::give_later(int nic, const char* call, std::function<void(Job&)> work) {
  return enqueue(nic, call, std::move(work), true);
}

JobPtr NicWorkers::enqueue(int nic, const char* call, std::function<void(Job&)> work, bool later) {
  const std::shared_ptr<Worker>& worker = workers_[size_t(nic)];
  auto job = std::make_shared<Job>();
  job->call_.store(call, std::memory_order_relaxed);
  job->work_ = std::move(work);
  std::unique_lock lock(worker->mutex);
  if (worker->stopping) return job;  // the process ends: never done, and nobody waits
  if (!worker->thread.joinable()) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the application's
    try {
      worker->thread = std::thread([worker] { run(worker); });
    } catch (const std::bad_alloc&) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    } catch (const std::system_error& error) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      R2_WARN("NET/R2CCL: cannot start the worker of NIC %s (%s); its driver calls block the calling thread",
              worker->name.c_str(), error.what());
      lock.unlock();  // the work may give this worker more
      carry_out(*job);
      return job;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  (later ? worker->later : worker->jobs).push_back(job);
  open_.fetch_add(1, std::memory_order_relaxed);
  worker->open.fetch_add(1, std::memory_order_relaxed);
  worker->changed.notify_one();
  return job;
}

void NicWorkers::carry_out(Job& job) noexcept {
  try {
    job.work_(job);
  } catch (const std::bad_alloc&) {
  }
  job.work_ = nullptr;  // what it holds is let go here, not by whoever asks
  job.done_.store(true, std::memory_order_release);
}

void NicWorkers::give_after(int nic, uint64_t ns, const char* call, std::function<void(Job&)> work) {
  auto job = std::make_shared<Job>();
  job->call_.store(call, std::memory_order_relaxed);
  job->work_ = std::move(work);
  job->due_ = now_ns() + ns;
  Worker& worker = *workers_[size_t(nic)];
  std::unique_lock lock(worker.mutex);
  if (worker.thread.joinable() && !worker.stopping) return worker.waiting.push_back(std::move(job));
  lock.unlock();
  carry_out(*job);
}

// The queue whose first job is to be done now; nullptr: all are to end.
std::deque<JobPtr>* NicWorkers::Worker::next(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (stopping) return nullptr;
    if (!ending && !jobs.empty()) return &jobs;
    if (!ending && !later.empty()) return &later;
    if (waiting.empty()) {
      changed.wait(lock);
      continue;
    }
    const uint64_t now = now_ns(), due = waiting.front()->due_;
    if (ending || now >= due) {
      owner->open_.fetch_add(1, std::memory_order_relaxed);
      open.fetch_add(1, std::memory_order_relaxed);
      return &waiting;
    }
    changed.wait_for(lock, std::chrono::nanoseconds(due - now));
  }
}

void NicWorkers::run(const std::shared_ptr<Worker>& worker) {
  pthread_setname_np(pthread_self(), worker->thread_name.c_str());
  std::unique_lock lock(worker->mutex);
  worker->tid = pid_t(syscall(SYS_gettid));
  while (std::deque<JobPtr>* const queue = worker->next(lock)) {
    const JobPtr job = std::move(queue->front());
    queue->pop_front();
    worker->current = job;
    ++worker->count;
    worker->current_since = now_ns();
    job->begun_.store(true, std::memory_order_relaxed);
    lock.unlock();
    carry_out(*job);
    lock.lock();
    worker->current = nullptr;
    worker->open.fetch_sub(1, std::memory_order_relaxed);
    worker->finished.notify_all();
    if (worker->stopping) break;
    worker->owner->open_.fetch_sub(1, std::memory_order_relaxed);
    worker->owner->when_done_();
  }
  worker->ended = true;
  worker->finished.notify_all();
}

bool NicWorkers::wait(int nic, const Job& job, uint64_t longest_ns) {
  const std::shared_ptr<Worker>& worker = workers_[size_t(nic)];
  std::unique_lock lock(worker->mutex);
  while (!job.done()) {
    if (worker->stopping || worker->stuck.load(std::memory_order_relaxed)) return false;
    if (worker->current && now_ns() - worker->current_since > longest_ns) return false;
    worker->finished.wait_for(lock, kLookForStuck);
  }
  return true;
}

void NicWorkers::look(uint64_t alive, const std::function<uint64_t(int)>& bound_ns) {
  for (size_t nic = 0; nic < workers_.size(); ++nic) {
    const auto& worker = workers_[nic];
    if (worker->open.load(std::memory_order_relaxed) == 0 && !worker->stuck.load(std::memory_order_relaxed))
      continue;
    const std::lock_guard lock(worker->mutex);
    const uint32_t calls = worker->current ? worker->current->calls_.load(std::memory_order_relaxed) : 0;
    if (!worker->current || worker->count != worker->seen_count || calls != worker->seen_calls) {
      worker->seen_count = worker->count;
      worker->seen_calls = calls;
      worker->seen_since = alive;
      worker->patience = kPatience;
      if (worker->stuck.exchange(false, std::memory_order_relaxed))
        R2_WARN("NET/R2CCL: the driver of NIC %s answers again", worker->name.c_str());
    } else if (alive - worker->seen_since > bound_ns(int(nic)) &&
               !worker->stuck.load(std::memory_order_relaxed)) {
      if (worker->patience > 0 && is_runnable(worker->tid)) {
        --worker->patience;
        worker->seen_since = alive;
        continue;
      }
      worker->stuck.store(true, std::memory_order_relaxed);
      R2_WARN(
          "NET/R2CCL: the driver of NIC %s has not returned from %s for %llu ms; the NIC is not used until "
          "it returns",
          worker->name.c_str(), worker->current->call_.load(std::memory_order_relaxed),
          static_cast<unsigned long long>((alive - worker->seen_since) / kNsPerMs));
    }
  }
}

bool NicWorkers::stuck(int nic) const noexcept {
  return workers_[size_t(nic)]->stuck.load(std::memory_order_relaxed);
}

void NicWorkers::keep(int nic, std::shared_ptr<void> object) {
  Worker& worker = *workers_[size_t(nic)];
  const std::lock_guard lock(worker.mutex);
  if (worker.keeps) worker.kept.push_back(std::move(object));
}

void NicWorkers::let_go(int nic) {
  std::vector<std::shared_ptr<void>> kept;
  {
    Worker& worker = *workers_[size_t(nic)];
    const std::lock_guard lock(worker.mutex);
    worker.keeps = false;
    kept.swap(worker.kept);
  }
  if (!kept.empty())
    give_later(nic, "ibv_dereg_mr", [kept = std::move(kept)](Job&) mutable { kept.clear(); });
}

std::string NicWorkers::explain(int nic, const Job& job, uint64_t alive) const {
  const std::shared_ptr<Worker>& worker = workers_[size_t(nic)];
  const std::lock_guard lock(worker->mutex);
  const std::string call = worker->current.get() == &job || !worker->current
                               ? std::string(job.call_.load())
                               : std::string(worker->current->call_.load()) + ", before " + job.call_.load();
  return "the driver of NIC " + worker->name + " has not returned from " + call + " for " +
         std::to_string((alive - worker->seen_since) / kNsPerMs) + " ms";
}

void NicWorkers::stop() {
  for (const auto& worker : workers_) {
    const std::lock_guard lock(worker->mutex);
    worker->ending = true;
    worker->changed.notify_all();
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kStopBoundMs);
  for (const auto& worker : workers_) {
    std::unique_lock lock(worker->mutex);
    worker->finished.wait_until(lock, until, [&] { return worker->stopping || worker->waiting.empty(); });
    worker->stopping = true;
    worker->changed.notify_all();
  }
  for (const auto& worker : workers_) {
    if (!worker->thread.joinable()) continue;
    {
      std::unique_lock lock(worker->mutex);
      worker->finished.wait_for(lock, std::chrono::milliseconds(kStopBoundMs),
                                [&] { return worker->ended || !worker->current; });
      if (worker->current) {  // its driver has it
        worker->thread.detach();
        continue;
      }
    }
    worker->thread.join();
  }
}

}  // namespace r2ccl
