// SPDX-License-Identifier: Apache-2.0
// A network that is late: every answer takes longer than the deadline that a probe is given at first.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "r2ccl/tests/testing/prometheus_text.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr auto kOneWay = 25ms;  // a round trip is more than four times the least probe deadline

/// In the child: what its counters say, once they say that the channel is there.
PrometheusText counters_of(const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  for (;;) {
    std::ifstream stream(path);
    std::ostringstream text;
    text << stream.rdbuf();
    if (!text.str().empty()) {
      PrometheusText counters(text.str());
      if (counters["r2ccl_channels_connected_total"] > 0 || std::chrono::steady_clock::now() > deadline)
        return counters;
    }
    std::this_thread::sleep_for(10ms);
  }
}

// The first probes are given up before they are answered; the late answers say how late this network is. From
// then on it is an ordinary network: a connection comes about, and nothing is ever taken for dead.
TEST(Late, a_network_that_answers_late_is_no_dead_one) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("r2ccl-late-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto fabric = make_fabric(2, 2, 0, kOneWay);
  const Environment environment{{"R2CC_METRICS", folder + "/%p.prom"}, {"R2CC_FAILBACK_MS", "50"}};
  const auto check = [folder] {
    std::this_thread::sleep_for(1200ms);  // the file is written once a second
    const auto counters = counters_of(folder + "/" + std::to_string(getpid()) + ".prom");
    EXPECT_EQ(counters["r2ccl_channels_connected_total"], 1);
    EXPECT_EQ(counters.sum("r2ccl_path_failures_total"), 0);
    EXPECT_EQ(counters.sum("r2ccl_channels_failed_total"), 0);
  };
  const auto both = [&](const std::function<void(const Link&)>& carry) {
    return [&check, carry](const Link& link) {
      carry(link);
      check();
    };
  };
  const Child receiver =
      start(fabric, 1, environment, both([](const Link& link) { receive_all(link, 200); }));
  const Child sender = start(fabric, 0, environment, both([](const Link& link) { send_all(link, 200); }));
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace r2ccl
