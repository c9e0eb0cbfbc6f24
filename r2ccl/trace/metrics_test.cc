// SPDX-License-Identifier: Apache-2.0
// The counters for Prometheus: what each event adds, that the text is what a collector takes, and when the
// file is written.
#include "r2ccl/trace/metrics.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "r2ccl/base/log.h"
#include "r2ccl/base/result.h"
#include "r2ccl/tests/testing/prometheus_text.h"
#include "r2ccl/trace/ring.h"

namespace r2ccl::trace {
namespace {

using testing_support::PrometheusText;

constexpr uint64_t kSecond = 1'000'000'000;

Event event(EventType type, uint16_t nic = 0, uint32_t channel = 0, uint64_t at = 0, uint64_t a = 0,
            uint64_t b = 0, uint64_t c = 0) {
  return {0, at, type, nic, channel, a, b, c, 0, 0, 0};
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/r2ccl-metrics-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

std::string read(const std::string& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(Metrics, begin_with_every_series_at_zero) {
  const Metrics metrics("unused", {"mlx5_0", "mlx5_1"});
  const PrometheusText text(metrics.text(0));
  EXPECT_EQ(text.sum("r2ccl_path_failures_total"), 0);
  EXPECT_EQ(text["r2ccl_path_failures_total{nic=\"mlx5_1\",detected_by=\"watchdog\"}"], 0);
  EXPECT_EQ(text["r2ccl_migrations_total{nic=\"mlx5_0\"}"], 0);
  EXPECT_EQ(text["r2ccl_without_path_seconds_total"], 0);
  EXPECT_EQ(text["r2ccl_nic_gray{nic=\"mlx5_1\"}"], 0);
  EXPECT_EQ(text["r2ccl_gray_failures_total{nic=\"mlx5_0\"}"], 0);
  EXPECT_GE(text.types().size(), 19u);
}

TEST(Metrics, tell_one_migration_as_it_happened) {
  Metrics metrics("unused", {"a", "b"});
  metrics.count(event(EventType::kChannelUp, 0, 7));
  metrics.count(event(EventType::kProbeFailed, 0, 7, kSecond));
  metrics.count(event(EventType::kFenceStarted, 0, 7, kSecond, uint64_t(DetectedBy::kWatchdog), 1, 0));
  EXPECT_EQ(PrometheusText(metrics.text(3 * kSecond / 2))["r2ccl_channels_without_path"], 1);
  EXPECT_EQ(PrometheusText(metrics.text(3 * kSecond / 2))["r2ccl_without_path_seconds_total"], 0.5);
  metrics.count(event(EventType::kReplayed, 1, 7, 2 * kSecond, 3, 4096));
  metrics.count(event(EventType::kMigrationDone, 1, 7, 3 * kSecond));
  const PrometheusText text(metrics.text(9 * kSecond));
  EXPECT_EQ(text["r2ccl_channels_connected_total"], 1);
  EXPECT_EQ(text["r2ccl_path_failures_total{nic=\"a\",detected_by=\"watchdog\"}"], 1);
  EXPECT_EQ(text.sum("r2ccl_path_failures_total"), 1);
  EXPECT_EQ(text["r2ccl_probe_failures_total{nic=\"a\"}"], 1);
  EXPECT_EQ(text["r2ccl_migrations_total{nic=\"b\"}"], 1);
  EXPECT_EQ(text["r2ccl_replayed_bytes_total"], 4096);
  EXPECT_EQ(text["r2ccl_replayed_segments_total"], 3);
  EXPECT_EQ(text["r2ccl_channels_without_path"], 0);
  EXPECT_EQ(text["r2ccl_without_path_seconds_total"], 2);
}

TEST(Metrics, a_planned_failback_is_no_failure) {
  Metrics metrics("unused", {"a"});
  metrics.count(event(EventType::kFenceStarted, 0, 1, kSecond, 0, 2, 1));
  metrics.count(event(EventType::kMigrationDone, 0, 1, 2 * kSecond));
  metrics.count(event(EventType::kFailback, 0, 1, 2 * kSecond));
  const PrometheusText text(metrics.text(2 * kSecond));
  EXPECT_EQ(text.sum("r2ccl_path_failures_total"), 0);
  EXPECT_EQ(text["r2ccl_failbacks_total{nic=\"a\"}"], 1);
  EXPECT_EQ(text["r2ccl_without_path_seconds_total"], 1);
}

TEST(Metrics, a_channel_that_ends_without_a_path_waits_for_none_any_more) {
  Metrics metrics("unused", {"a"});
  metrics.count(event(EventType::kFenceStarted, 0, 1, kSecond, uint64_t(DetectedBy::kPeer)));
  metrics.count(event(EventType::kFenceStarted, 0, 2, kSecond, uint64_t(DetectedBy::kEvent)));
  metrics.count(event(EventType::kChannelFailed, 0, 1, 2 * kSecond, uint64_t(ErrorCode::kAllPathsDown)));
  metrics.count(event(EventType::kChannelClosing, 0, 2, 3 * kSecond));
  const PrometheusText text(metrics.text(100 * kSecond));
  EXPECT_EQ(text["r2ccl_channels_failed_total{reason=\"all paths down\"}"], 1);
  EXPECT_EQ(text["r2ccl_channels_without_path"], 0);
  EXPECT_EQ(text["r2ccl_without_path_seconds_total"], 3);
}

TEST(Metrics, tell_which_nic_is_gray_and_what_balance_did) {
  Metrics metrics("unused", {"a", "b"});
  metrics.count(event(EventType::kNicGray, 1, 0, kSecond, 250));
  metrics.count(event(EventType::kLaneUp, 0, 3, kSecond, 1, 0, 300));
  metrics.count(event(EventType::kLaneUp, 0, 4, kSecond, 2, 0, 300));
  metrics.count(event(EventType::kLaneRests, 0, 3, 2 * kSecond, 1));
  PrometheusText text(metrics.text(2 * kSecond));
  EXPECT_EQ(text["r2ccl_gray_failures_total{nic=\"b\"}"], 1);
  EXPECT_EQ(text.sum("r2ccl_gray_failures_total"), 1);
  EXPECT_EQ(text["r2ccl_nic_gray{nic=\"b\"}"], 1);
  EXPECT_EQ(text.sum("r2ccl_nic_gray"), 1);
  EXPECT_EQ(text["r2ccl_lanes_started_total{nic=\"a\"}"], 2);
  EXPECT_EQ(text["r2ccl_lanes_rested_total{nic=\"a\"}"], 1);
  EXPECT_EQ(text["r2ccl_lanes_rested_total{nic=\"b\"}"], 0);
  EXPECT_EQ(text.sum("r2ccl_path_failures_total"), 0) << "being slow is no failure of a path";
  metrics.count(event(EventType::kNicWell, 1, 0, 3 * kSecond, 1000));
  text = PrometheusText(metrics.text(3 * kSecond));
  EXPECT_EQ(text["r2ccl_gray_recoveries_total{nic=\"b\"}"], 1);
  EXPECT_EQ(text["r2ccl_gray_failures_total{nic=\"b\"}"], 1);
  EXPECT_EQ(text.sum("r2ccl_nic_gray"), 0);
}

TEST(Metrics, a_port_that_was_away_is_gray_no_more) {
  for (const EventType type : {EventType::kNicDown, EventType::kNicUp}) {
    Metrics metrics("unused", {"a", "b"});
    metrics.count(event(EventType::kNicGray, 0, 0, kSecond, 250));
    metrics.count(event(EventType::kNicGray, 1, 0, kSecond, 250));
    metrics.count(event(EventType::kNicUp, 0, 5, 2 * kSecond));  // a channel's failback: it may well be gray
    EXPECT_EQ(PrometheusText(metrics.text(0))["r2ccl_nic_gray{nic=\"a\"}"], 1);
    metrics.count(event(type, 0, 0, 2 * kSecond, uint64_t(DetectedBy::kEvent)));
    const PrometheusText text(metrics.text(2 * kSecond));
    EXPECT_EQ(text["r2ccl_nic_gray{nic=\"a\"}"], 0);
    EXPECT_EQ(text["r2ccl_nic_gray{nic=\"b\"}"], 1);
    EXPECT_EQ(text.sum("r2ccl_gray_recoveries_total"), 0);
  }
}

TEST(Metrics, tell_how_many_plans_there_were_and_what_holds_now) {
  Metrics metrics("unused", {"a"});
  const auto agreed = [&](uint64_t epoch, uint64_t thousandths) {
    metrics.count(event(EventType::kPlanAgreed, 0xffff, 0, kSecond, epoch, 40, thousandths));
  };
  const auto chosen = [&](uint64_t epoch, uint64_t bytes, PlannedAlgorithm algorithm) {
    metrics.count(event(EventType::kAlgorithmChosen, 0xffff, 0, kSecond, epoch, bytes, uint64_t(algorithm)));
  };
  PrometheusText text(metrics.text(kSecond));
  EXPECT_EQ(text["r2ccl_plans_total"], 0);
  EXPECT_EQ(text["r2ccl_plan_capacity"], 1);
  EXPECT_EQ(text["r2ccl_plan_algorithm{algorithm=\"mix\"}"], 0);
  EXPECT_EQ(text.sum("r2ccl_plan_algorithm"), 0) << "there is no plan yet";
  agreed(1, 625);
  chosen(1, 4 << 20, PlannedAlgorithm::kMix);
  chosen(1, 64 << 10, PlannedAlgorithm::kRing);  // small operations are always a ring
  text = PrometheusText(metrics.text(kSecond));
  EXPECT_EQ(text["r2ccl_plans_total"], 1);
  EXPECT_EQ(text["r2ccl_plan_capacity"], 0.625);
  EXPECT_EQ(text["r2ccl_plan_algorithm{algorithm=\"mix\"}"], 1);
  EXPECT_EQ(text.sum("r2ccl_plan_algorithm"), 1);
  agreed(2, 1000);
  chosen(2, 0, PlannedAlgorithm::kNccl);
  text = PrometheusText(metrics.text(kSecond));
  EXPECT_EQ(text["r2ccl_plans_total"], 2);
  EXPECT_EQ(text["r2ccl_plan_capacity"], 1);
  EXPECT_EQ(text["r2ccl_plan_algorithm{algorithm=\"nccl\"}"], 1);
  EXPECT_EQ(text.sum("r2ccl_plan_algorithm"), 1);
  chosen(2, 0, static_cast<PlannedAlgorithm>(200));  // of a later version
  EXPECT_EQ(PrometheusText(metrics.text(kSecond)).sum("r2ccl_plan_algorithm"), 0);
}

// Each counts its epochs and its largest operation for itself.
TEST(Metrics, tell_what_holds_in_each_of_several_groups) {
  Metrics metrics("unused", {"a"});
  const auto agreed = [&](uint32_t group, uint64_t epoch, uint64_t thousandths) {
    metrics.count(event(EventType::kPlanAgreed, 0xffff, group, kSecond, epoch, 40, thousandths));
  };
  const auto chosen = [&](uint32_t group, uint64_t epoch, uint64_t bytes, PlannedAlgorithm algorithm) {
    metrics.count(event(EventType::kAlgorithmChosen, 0xffff, group, kSecond, epoch, bytes, uint64_t(algorithm)));
  };
  const auto now = [&] { return PrometheusText(metrics.text(kSecond)); };
  agreed(1, 1, 625);
  chosen(1, 1, 4 << 20, PlannedAlgorithm::kMix);
  agreed(2, 1, 750);
  chosen(2, 1, 1 << 20, PlannedAlgorithm::kFourStage);  // a smaller one, of another group
  EXPECT_EQ(now()["r2ccl_plan_algorithm{algorithm=\"mix\"}"], 1);
  EXPECT_EQ(now()["r2ccl_plan_algorithm{algorithm=\"four_stage\"}"], 1);
  EXPECT_EQ(now()["r2ccl_plan_capacity"], 0.625) << "the weakest of both, whoever spoke last";
  chosen(2, 2, 1 << 20, PlannedAlgorithm::kMix);
  chosen(1, 1, 64 << 10, PlannedAlgorithm::kRing);  // group 1 has a larger one, though another epoch came between
  EXPECT_EQ(now()["r2ccl_plan_algorithm{algorithm=\"mix\"}"], 2);
  EXPECT_EQ(now().sum("r2ccl_plan_algorithm"), 2);
  metrics.count(event(EventType::kPlansEnded, 0xffff, 1, kSecond));
  EXPECT_EQ(now()["r2ccl_plan_algorithm{algorithm=\"mix\"}"], 1);
  EXPECT_EQ(now()["r2ccl_plan_capacity"], 0.75);
  metrics.count(event(EventType::kPlansEnded, 0xffff, 2, kSecond));
  EXPECT_EQ(now().sum("r2ccl_plan_algorithm"), 0);
  EXPECT_EQ(now()["r2ccl_plan_capacity"], 1);
  EXPECT_EQ(now()["r2ccl_plans_total"], 2);
}

TEST(Metrics, name_what_they_cannot_know_and_escape_what_they_must) {
  Metrics metrics("unused", {"odd\"na\\me\n"});
  metrics.count(event(EventType::kNicDown, 0));
  metrics.count(event(EventType::kPeerSlow, 0xffff));
  metrics.count(event(EventType::kDuplicateDropped, 0));
  const PrometheusText text(metrics.text(0));
  EXPECT_EQ(text["r2ccl_port_failures_total{nic=\"odd\\\"na\\\\me\\n\"}"], 1);
  EXPECT_EQ(text["r2ccl_slow_peer_waits_total{nic=\"none\"}"], 1);
  EXPECT_EQ(text["r2ccl_duplicates_dropped_total"], 1);
}

TEST(Metrics, the_writer_counts_with_and_without_a_ring_and_leaves_hot_events_out) {
  Metrics metrics("unused", {"a"});
  Reader ring = Reader::create(64);
  for (const std::string& path : {std::string(), ring.path()}) {
    Writer writer(path);
    writer.feed(metrics);
    writer.emit(EventType::kPathOpened, 0, 0);
    writer.emit(EventType::kSegmentDelivered, 0, 0, 4096);
    writer.emit(EventType::kIteration, 0, 0);
  }
  const PrometheusText text(metrics.text(0));
  EXPECT_EQ(text["r2ccl_paths_opened_total{nic=\"a\"}"], 2);
  EXPECT_FALSE(text.has("segment_delivered"));
}

TEST(MetricsFile, is_written_when_something_changed_at_most_once_a_second_and_at_the_end) {
  const Folder folder;
  Metrics metrics(folder.path + "/r2ccl-%p-100%%.prom", {"a"});
  ASSERT_EQ(metrics.path(), folder.path + "/r2ccl-" + std::to_string(getpid()) + "-100%.prom");
  const auto opened = [&] {
    return PrometheusText(read(metrics.path()))["r2ccl_paths_opened_total{nic=\"a\"}"];
  };
  uint64_t now = 5 * kSecond;
  metrics.write(now);  // at once, so that it is there
  EXPECT_EQ(opened(), 0);
  metrics.count(event(EventType::kPathOpened));
  metrics.write(now + kSecond / 2);
  EXPECT_EQ(opened(), 0) << "twice within a second";
  metrics.write(now += kSecond);
  EXPECT_EQ(opened(), 1);
  std::filesystem::remove(metrics.path());
  metrics.write(now += 10 * kSecond);
  EXPECT_FALSE(std::filesystem::exists(metrics.path())) << "nothing had changed";
  metrics.count(event(EventType::kPathOpened));
  metrics.write(now);
  EXPECT_EQ(opened(), 2);
  metrics.count(event(EventType::kPathOpened));
  metrics.write(now, true);
  EXPECT_EQ(opened(), 3) << "the last word";
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    EXPECT_EQ(entry.path().string(), metrics.path()) << "left behind";
}

TEST(MetricsFile, an_outage_that_goes_on_is_a_change) {
  const Folder folder;
  Metrics metrics(folder.path + "/m.prom", {"a"});
  metrics.count(event(EventType::kFenceStarted, 0, 1, kSecond, uint64_t(DetectedBy::kPeer)));
  metrics.write(2 * kSecond);
  metrics.write(5 * kSecond);
  EXPECT_EQ(PrometheusText(read(metrics.path()))["r2ccl_without_path_seconds_total"], 4);
}

TEST(MetricsFile, is_whole_whenever_it_is_read) {
  const Folder folder;
  Metrics metrics(folder.path + "/m.prom", {"a", "b"});
  metrics.write(0, true);
  std::thread counting([&] {
    for (int i = 0; i < 60; ++i) {
      metrics.count(event(EventType::kPathOpened, uint16_t(i % 2)));
      metrics.write(0, true);
    }
  });
  double last = 0;
  do {
    const PrometheusText text(read(metrics.path()));
    const double now = text.sum("r2ccl_paths_opened_total");
    EXPECT_GE(now, last);
    last = now;
  } while (last < 60 && !testing::Test::HasFailure());
  counting.join();
  EXPECT_EQ(last, 60);
}

TEST(MetricsFile, that_cannot_be_written_is_said_once) {
  static int said;
  said = 0;
  set_log_sink([](LogLevel level, const char*, int, const char* text) {
    said += level == LogLevel::kWarn && std::string(text).find("R2CC_METRICS: '/no/such/folder/m'") == 0;
  });
  Metrics metrics("/no/such/folder/m", {"a"});
  for (uint64_t i = 0; i < 5; ++i) {
    metrics.count(event(EventType::kPathOpened));
    metrics.write(i * 2 * kSecond, true);
  }
  set_log_sink(nullptr);
  EXPECT_EQ(said, 1);
}

}  // namespace
}  // namespace r2ccl::trace
