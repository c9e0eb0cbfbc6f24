// SPDX-License-Identifier: Apache-2.0
// R2CC_METRICS in a real process: what a broken queue pair leaves in the file.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/prometheus_text.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;

std::string read(const std::string& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// In the child, whose service thread writes the file within a second: waits until it tells of a migration.
void expect_a_migration(const std::string& path, bool sender) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (;;) {
    if (const std::string now = read(path);
        !now.empty() && PrometheusText(now).sum("r2ccl_migrations_total") > 0)
      break;
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << path << ":\n" << read(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const PrometheusText text(read(path));
  EXPECT_EQ(text["r2ccl_channels_connected_total"], 1);
  EXPECT_GE(text.sum("r2ccl_path_failures_total"), 1);
  EXPECT_GE(text["r2ccl_path_failures_total{nic=\"vhca0\",detected_by=\"completion\"}"] +
                text["r2ccl_path_failures_total{nic=\"vhca0\",detected_by=\"event\"}"] +
                text["r2ccl_path_failures_total{nic=\"vhca0\",detected_by=\"peer\"}"],
            1);
  EXPECT_GT(text["r2ccl_without_path_seconds_total"], 0);
  EXPECT_EQ(text["r2ccl_duplicates_dropped_total"], 0);
  EXPECT_EQ(text.sum("r2ccl_channels_failed_total"), 0);
  if (sender) {
    EXPECT_GE(text.sum("r2ccl_paths_opened_total"), 2);
  }
}

TEST(Metrics, of_both_ends_tell_of_a_migration_while_the_job_runs) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("r2ccl-metrics-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Environment environment{{"R2CC_METRICS", folder + "/%p.prom"}};
  const auto file = [folder] { return folder + "/" + std::to_string(getpid()) + ".prom"; };
  const Child receiver = start(fabric, 1, environment, [&](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_rounds(n, channel, link); });
    expect_a_migration(file(), false);
  });
  const Child sender = start(fabric, 0, environment, [&](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) { send_rounds(n, channel, link); });
    expect_a_migration(file(), true);
  });
  relay_handle(receiver, sender);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (fabric.counters(0, 0).tx_bytes < 8 << 20 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  faulting_net.strike(0, 0);
  EXPECT_GE(faulting_net.broken(), 1);
  run_rounds(receiver, sender, [rounds = 0]() mutable { return ++rounds >= 3; });
  EXPECT_EQ(sender.wait(std::chrono::seconds(100)), 0);
  EXPECT_EQ(receiver.wait(std::chrono::seconds(100)), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace r2ccl
