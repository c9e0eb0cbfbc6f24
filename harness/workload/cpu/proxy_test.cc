// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/proxy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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

}  // namespace
}  // namespace r2bench
