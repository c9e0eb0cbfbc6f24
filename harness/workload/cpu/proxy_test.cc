// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/proxy.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace r2bench {
namespace {

using namespace std::chrono_literals;

/// Like a plugin whose call returns only when it is let go.
class Stuck : public Polled {
 public:
  bool progress() override {
    entered = true;
    while (!let_go) std::this_thread::sleep_for(1ms);
    return true;
  }
  bool finished() const override { return false; }

  std::atomic<bool> entered{false}, let_go{false};
};

// A job that was aborted closed its communicators while its progress thread was still in a call of the
// plugin: some ranks of mode 3 then died of a signal.
TEST(ProgressThread, has_left_what_it_polls_only_once_its_call_has_returned) {
  Stuck stuck;
  const std::vector<Polled*> polled = {&stuck};
  ProgressThread progress;
  EXPECT_FALSE(progress.has_left_within(1ms)) << "nobody has stopped it";
  std::thread aborts([&] {
    while (!stuck.entered) std::this_thread::sleep_for(1ms);
    progress.stop();
  });
  EXPECT_FALSE(progress.run(polled, [] { return false; })) << "it returns, whatever the plugin does";
  aborts.join();
  EXPECT_FALSE(progress.has_left_within(20ms));
  std::thread lets_go([&] {
    std::this_thread::sleep_for(20ms);
    stuck.let_go = true;
  });
  EXPECT_TRUE(progress.has_left_within(30s));
  lets_go.join();
}

TEST(ProgressThread, has_left_at_once_where_nothing_is_polled) {
  ProgressThread progress;
  progress.stop();
  EXPECT_TRUE(progress.has_left_within(10s));
}

/// Finished once somebody says so; something moves at every n-th poll (0: never).
class Waiting : public Polled {
 public:
  explicit Waiting(uint64_t moves_every = 0) : moves_every_(moves_every) {}
  bool progress() override {
    ++polls;
    return moves_every_ != 0 && polls % moves_every_ == 0;
  }
  bool finished() const override { return over; }

  std::atomic<uint64_t> polls{0};
  std::atomic<bool> over{false};

 private:
  uint64_t moves_every_;
};

long times_slept() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_nvcsw;
}

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return double(used.tv_sec) + double(used.tv_nsec) * 1e-9;
}

// A job on NICs that are slow for a CPU: its ranks must leave the cores to each other.
TEST(ProgressThread, that_waits_for_long_leaves_its_core_to_others) {
  Waiting waiting;
  const std::vector<Polled*> polled = {&waiting};
  ProgressThread progress;
  const double before = cpu_seconds();
  const long slept = times_slept();
  std::thread ends([&] {
    std::this_thread::sleep_for(400ms);
    waiting.over = true;
  });
  EXPECT_TRUE(progress.run(polled, [] { return false; }));
  ends.join();
  EXPECT_LT(cpu_seconds() - before, 0.4 * 0.5);
  EXPECT_GT(times_slept() - slept, 100);  // not merely kept from the core by others
}

// In pings a pause would be what is measured.
TEST(ProgressThread, polls_without_a_pause_while_things_move) {
  constexpr uint64_t kPolls = 20'000;
  Waiting moving(20);
  const std::vector<Polled*> polled = {&moving};
  ProgressThread progress;
  const long before = times_slept();
  std::thread ends([&] {
    while (moving.polls < kPolls) std::this_thread::sleep_for(1ms);
    moving.over = true;
  });
  EXPECT_TRUE(progress.run(polled, [] { return false; }));
  ends.join();
  // The other thread sleeps, once in a millisecond; a poll takes a microsecond at most, unless others run.
  EXPECT_LT(uint64_t(times_slept() - before), moving.polls / 10);
}

/// As a plugin that reduces in its test: every other poll works, and nobody is told.
class Working : public Polled {
 public:
  bool progress() override {
    if (++polls_ % 2 == 0) return false;
    const auto until = std::chrono::steady_clock::now() + 50us;
    while (std::chrono::steady_clock::now() < until) {
    }
    return false;
  }
  bool finished() const override { return polls_ > 4'000; }

 private:
  uint64_t polls_ = 0;
};

TEST(ProgressThread, polls_without_a_pause_while_the_plugin_works) {
  Working working;
  const std::vector<Polled*> polled = {&working};
  ProgressThread progress;
  const long before = times_slept();
  EXPECT_TRUE(progress.run(polled, [] { return false; }));
  EXPECT_LT(times_slept() - before, 200);
}

}  // namespace
}  // namespace r2bench
