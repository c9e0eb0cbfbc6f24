// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/proxy.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "harness/workload/cpu/coll_channel.h"

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

/// Of the calling thread.
long times_slept_here() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

/// Finished once somebody says so; something moves at every n-th poll (0: never).
class Waiting : public Polled {
 public:
  explicit Waiting(uint64_t moves_every = 0) : moves_every_(moves_every) {}
  bool progress() override {
    if (polls++ == 0) slept_before_ = times_slept_here();
    slept = times_slept_here() - slept_before_;
    return moves_every_ != 0 && polls % moves_every_ == 0;
  }
  bool finished() const override { return over; }

  std::atomic<uint64_t> polls{0};
  std::atomic<long> slept{0};  // of the thread that polls, since its first poll
  std::atomic<bool> over{false};

 private:
  uint64_t moves_every_;
  long slept_before_ = 0;
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
  std::thread ends([&] {
    while (moving.polls < kPolls) std::this_thread::sleep_for(1ms);
    moving.over = true;
  });
  EXPECT_TRUE(progress.run(polled, [] { return false; }));
  ends.join();
  EXPECT_LT(moving.slept, 20);
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

/// CollNet in steps as those of messages of a few KiB: every other test takes a microsecond or two, which
/// does not tell it from an idle one on a busy machine.
class SmallSteps : public CollPlugin {
 public:
  int abi() const override { return 8; }
  Status init(uint64_t, r2ccl::nccl_abi::ncclDebugLogger_t) override { return {}; }
  Status devices(int* count) override { return *count = 1, Status{}; }
  std::string properties(int, size_t*) override { return "small"; }
  Status listen(int, void*, void** listener) override { return *listener = this, Status{}; }
  Status connect(void**, int, int, void*, void** group) override { return *group = this, Status{}; }
  Status reduce_support(int, int, int* supported) override { return *supported = 1, Status{}; }
  Status reg(void*, void*, size_t, void** registration) override { return *registration = this, Status{}; }
  Status dereg(void*, void*) override { return {}; }
  Status all_reduce(void*, void*, void*, size_t, int, int, void*, void*, void** request) override {
    return *request = this, Status{};
  }
  Status test(void*, bool* done, size_t*) override {
    if (tests == 0) slept_before = times_slept_here();
    if (++tests % 2 != 0) {
      const auto until = std::chrono::steady_clock::now() + 1500ns;
      while (std::chrono::steady_clock::now() < until) {
      }
    }
    *done = tests >= 4'000;
    slept = times_slept_here() - slept_before;
    return {};
  }
  Status close_group(void*) override { return {}; }
  Status close_listen(void*) override { return {}; }
  Status finalize() override { return {}; }

  uint64_t tests = 0;
  long slept_before = 0, slept = 0;  // of the thread that tests
};

// Each step of such an operation could otherwise wait for a pause.
TEST(ProgressThread, polls_a_collective_operation_without_a_pause) {
  SmallSteps plugin;
  RankConfig config;
  CollChannel channel(plugin, config, 0, "small", {0, 1024});
  std::vector<std::vector<unsigned char>> handles(2, std::vector<unsigned char>(128));
  channel.listen(handles[0].data());
  ASSERT_TRUE(channel.connect(handles));
  channel.register_memory();
  std::vector<float> input(1024), output(1024);
  channel.start({reinterpret_cast<char*>(input.data()), reinterpret_cast<char*>(output.data())});
  const std::vector<Polled*> polled = {&channel};
  ProgressThread progress;
  EXPECT_TRUE(progress.run(polled, [] { return false; }));
  EXPECT_EQ(plugin.tests, 4'000u);
  EXPECT_LT(plugin.slept, 20);
  channel.close();
}

}  // namespace
}  // namespace r2bench
