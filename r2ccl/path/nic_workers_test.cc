// SPDX-License-Identifier: Apache-2.0
// NicWorkers: whose driver does not answer, and whose answers again.
#include "r2ccl/path/nic_workers.h"

#include <gtest/gtest.h>

#include <new>

#include <atomic>
#include <cerrno>
#include <future>
#include <thread>

#if !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)  // which have a pthread_create of their own
#include <dlfcn.h>
#include <pthread.h>
#define NO_THREADS 1
static std::atomic<bool> no_threads{false};  // none can be started, as where a limit of processes is reached
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) {
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return no_threads ? EAGAIN : real(thread, attributes, body, argument);
}
#endif

namespace r2ccl {
namespace {

using namespace std::chrono_literals;
constexpr uint64_t kBound = 100;

/// One NIC, and a driver call that returns when it is let.
struct Nic {
  std::promise<void> let;
  NicWorkers workers{"worker", {"nic0"}, [] {}};
  JobPtr hangs() {
    return workers.give(0, "ibv_modify_qp", [returns = let.get_future().share()](Job&) { returns.wait(); });
  }
  void looks(uint64_t alive) {
    workers.look(alive, [](int) { return kBound; });
  }
  static void until(const auto& holds) {
    for (int ms = 0; ms < 20'000 && !holds(); ++ms) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(holds());
  }
  /// It has begun, and sleeps in the call.
  void asleep(const JobPtr& job) {
    until([&] { return job->begun(); });
    std::this_thread::sleep_for(20ms);
  }
};

TEST(NicWorkers, a_nic_is_stuck_when_one_call_outlasts_the_bound_and_no_more_when_it_has_returned) {
  Nic nic;
  const JobPtr job = nic.hangs();
  nic.asleep(job);
  nic.looks(1000);
  nic.looks(1000 + kBound);
  EXPECT_FALSE(nic.workers.stuck(0));
  // Eight times as long where the thread merely wants a CPU.
  for (uint64_t i = 1; i <= 8 && !nic.workers.stuck(0); ++i) nic.looks(1000 + i * (kBound + 1));
  ASSERT_TRUE(nic.workers.stuck(0));
  EXPECT_FALSE(nic.workers.wait(0, *job));
  nic.let.set_value();
  Nic::until([&] { return !nic.workers.open_jobs(); });
  EXPECT_TRUE(nic.workers.stuck(0)) << "until somebody looks";
  nic.looks(3000);
  EXPECT_FALSE(nic.workers.stuck(0));
}

TEST(NicWorkers, who_waits_briefly_is_not_kept_by_a_driver_that_does_not_return) {
  Nic nic;
  const JobPtr hanging = nic.hangs();
  nic.asleep(hanging);
  const JobPtr next = nic.workers.give(0, "ibv_dereg_mr", [](Job&) {});
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(nic.workers.wait(0, *hanging, 1'000'000));
  EXPECT_FALSE(nic.workers.wait(0, *next, 1'000'000)) << "nor by one that is before its own";
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
  nic.let.set_value();
  EXPECT_TRUE(nic.workers.wait(0, *next, 10'000'000'000));
}

TEST(NicWorkers, a_job_that_is_to_wait_is_done_after_that_time_and_keeps_no_other) {
  Nic nic;
  std::atomic<int> done{0};
  const auto began = std::chrono::steady_clock::now();
  std::atomic<int64_t> took_ms{0};
  const JobPtr first = nic.workers.give(0, "ibv_destroy_qp", [&](Job&) {
    nic.workers.give_after(0, 50'000'000, "ibv_dereg_mr", [&](Job&) {
      took_ms = (std::chrono::steady_clock::now() - began) / 1ms;
      ++done;
    });
  });
  const JobPtr next = nic.workers.give(0, "ibv_query_port", [&](Job&) { EXPECT_EQ(done, 0); });
  EXPECT_TRUE(nic.workers.wait(0, *next));
  Nic::until([&] { return done == 1; });
  EXPECT_GE(took_ms, 50);
}

TEST(NicWorkers, a_job_that_is_to_wait_is_done_at_once_when_all_ends) {
  std::atomic<int> done{0};
  const auto began = std::chrono::steady_clock::now();
  {
    Nic nic;
    const JobPtr first = nic.workers.give(0, "ibv_destroy_qp", [&](Job&) {
      nic.workers.give_after(0, 60'000'000'000, "ibv_dereg_mr", [&](Job&) { ++done; });
    });
    EXPECT_TRUE(nic.workers.wait(0, *first));
  }
  EXPECT_EQ(done, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
}

TEST(NicWorkers, no_other_job_is_begun_when_all_ends) {
  std::atomic<int> waited{0}, others{0};
  {
    Nic nic;
    const JobPtr first = nic.workers.give(0, "ibv_destroy_qp", [&](Job&) {
      nic.workers.give_after(0, 60'000'000'000, "ibv_dereg_mr", [&](Job&) {
        std::this_thread::sleep_for(50ms);  // the others are given meanwhile
        ++waited;
      });
    });
    EXPECT_TRUE(nic.workers.wait(0, *first));
    std::thread ends([&] { nic.workers.stop(); });
    std::this_thread::sleep_for(20ms);
    nic.workers.give(0, "ibv_modify_qp", [&](Job&) { ++others; });
    ends.join();
  }
  EXPECT_EQ(waited, 1);
  EXPECT_EQ(others, 0);
}

TEST(NicWorkers, the_time_without_a_call_is_no_call_s) {
  Nic nic;
  const JobPtr first = nic.workers.give(0, "ibv_query_port", [](Job&) {});
  EXPECT_TRUE(nic.workers.wait(0, *first));
  Nic::until([&] { return !nic.workers.open_jobs(); });
  nic.looks(1000);
  const JobPtr job = nic.hangs();
  nic.asleep(job);
  nic.looks(1'000'000);
  EXPECT_FALSE(nic.workers.stuck(0));
  nic.looks(1'000'000 + kBound);
  EXPECT_FALSE(nic.workers.stuck(0));
  nic.let.set_value();
  EXPECT_TRUE(nic.workers.wait(0, *job));
}

TEST(NicWorkers, each_call_of_a_job_has_the_bound) {
  Nic nic;
  std::promise<void> next;
  const JobPtr job =
      nic.workers.give(0, "ibv_create_cq", [&, returns = nic.let.get_future().share()](Job& it) {
        it.calls("ibv_create_qp");
        next.set_value();
        returns.wait();
      });
  next.get_future().wait();
  nic.looks(1000);
  nic.looks(1000 + kBound);
  EXPECT_FALSE(nic.workers.stuck(0));
  job->calls("ibv_modify_qp");
  nic.looks(1001 + kBound);
  EXPECT_FALSE(nic.workers.stuck(0));
  nic.let.set_value();
  EXPECT_TRUE(nic.workers.wait(0, *job));
}

TEST(NicWorkers, jobs_are_done_in_order_and_later_ones_last) {
  Nic nic;
  std::vector<int> done;
  const JobPtr job = nic.hangs();
  const JobPtr last = nic.workers.give_later(0, "ibv_dereg_mr", [&](Job&) { done.push_back(3); });
  const JobPtr one = nic.workers.give(0, "ibv_create_qp", [&](Job&) { done.push_back(1); });
  nic.workers.give(0, "ibv_create_qp", [&](Job&) { done.push_back(2); });
  nic.asleep(job);
  EXPECT_TRUE(nic.workers.queued(0, *one));
  EXPECT_FALSE(nic.workers.queued(0, *job));
  nic.let.set_value();
  EXPECT_TRUE(nic.workers.wait(0, *last));
  EXPECT_EQ(done, (std::vector<int>{1, 2, 3}));
}

#ifdef NO_THREADS
TEST(NicWorkers, without_a_thread_the_caller_does_what_there_is_also_what_a_job_gives) {
  std::vector<int> done;
  NicWorkers workers("worker", {"nic0"}, [] {});
  no_threads = true;
  const JobPtr job = workers.give(0, "ibv_create_qp", [&](Job&) {
    workers.give_later(0, "ibv_destroy_qp", [&](Job&) { done.push_back(1); });
    workers.give_after(0, 1'000'000, "ibv_dereg_mr", [&](Job&) { done.push_back(2); });
    workers.keep(0, std::make_shared<int>(3));
    done.push_back(4);
  });
  no_threads = false;
  EXPECT_TRUE(job->done());
  EXPECT_EQ(done, (std::vector<int>{1, 2, 4}));
  EXPECT_FALSE(workers.open_jobs());
}
#endif

TEST(NicWorkers, a_job_that_runs_out_of_memory_is_done_and_others_follow) {
  NicWorkers workers("test-nic", {"mlx5_0"}, [] {});
  const JobPtr job = workers.give(0, "ibv_query_port", [](Job&) { throw std::bad_alloc(); });
  EXPECT_TRUE(workers.wait(0, *job));
  bool done = false;
  const JobPtr next = workers.give(0, "ibv_query_port", [&](Job&) { done = true; });
  EXPECT_TRUE(workers.wait(0, *next));
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace r2ccl
