// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/collector.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "harness/measure/affected.h"
#include "harness/measure/trace_rings.h"

namespace r2bench {
namespace {

using r2ccl::trace::DetectedBy;
using r2ccl::trace::EventType;
using r2ccl::trace::Writer;

struct Job {
  TraceRings rings{2, 1 << 10};
  Collector collector{{{"node0/rank0", 0, 1}, {"node1/rank1", 1, 0}},
                      [this](size_t rank, auto& out) { return rings.drain(rank, out); },
                      [this](EventType type) { rings.decline(type); }};
  Writer rank0{rings.path(0)};
  Writer rank1{rings.path(1)};
};

TEST(Collector, prefers_segments_over_messages) {
  Job job;
  job.rank0.emit(EventType::kMessageReceived, 0, 7, 100);
  job.collector.drain();
  EXPECT_EQ(job.collector.delivered_bytes(), 100u);
  job.rank0.emit(EventType::kSegmentDelivered, 2, 3, 60, 0, 9);
  job.rank0.emit(EventType::kSegmentDelivered, 2, 3, 40, 0, 9);
  job.collector.drain();
  EXPECT_EQ(job.collector.delivered_bytes(), 100u);
  const Record record = job.collector.record(UINT64_MAX);
  ASSERT_EQ(record.deliveries.size(), 2u);
  EXPECT_EQ(record.deliveries[0].rx_nic, 2);
  EXPECT_EQ(record.deliveries[0].path, 9u);
  ASSERT_EQ(record.streams.size(), 1u);
  EXPECT_EQ(record.streams[0].tx_node, 1);

  job.rank1.emit(EventType::kMessageReceived, 0, 7, 100);
  EXPECT_EQ(job.collector.drain(), 0u) << "no rank records messages any more";
}

TEST(Collector, knows_both_ends_of_a_path_on_a_cross_rail) {
  Job job;
  job.rank1.emit(EventType::kPathAccepted, 0, 0, /*path*/ 5, /*remote nic*/ 3);
  job.rank1.emit(EventType::kSegmentDelivered, 0, 0, 10, 0, 5);
  job.rank0.emit(EventType::kPathOpened, 3, 7, /*path*/ 5, /*remote nic*/ 0);
  job.rank0.emit(EventType::kFenceStarted, 3, 7, uint64_t(DetectedBy::kCompletion), 5);
  job.rank1.emit(EventType::kFenceStarted, 0, 0, uint64_t(DetectedBy::kPeer), 5);
  job.collector.drain();
  EXPECT_EQ(job.collector.deliveries_on({1, 0}, 0), 1u);
  EXPECT_EQ(job.collector.deliveries_on({0, 3}, 0), 1u);
  EXPECT_EQ(job.collector.deliveries_on({0, 0}, 0), 0u);
  const Record record = job.collector.record(UINT64_MAX);
  ASSERT_EQ(record.deliveries.size(), 1u);
  EXPECT_EQ(record.deliveries[0].tx_nic, 3);
  ASSERT_EQ(record.fences.size(), 2u);
  EXPECT_EQ(record.fences[0].peer_nic, 0) << "the sender's";
  EXPECT_EQ(record.fences[1].peer_nic, 3) << "the receiver's";
}

// Paths are numbered within a channel, and channels within a process, those that send and those that receive.
TEST(Collector, tells_the_paths_of_several_channels_apart) {
  Job job;
  job.rank1.emit(EventType::kPathAccepted, 0, 4, /*path*/ 2, /*remote nic*/ 1);
  job.rank1.emit(EventType::kPathAccepted, 0, 5, /*path*/ 2, /*remote nic*/ 2);
  job.rank1.emit(EventType::kPathOpened, 0, 6, /*path*/ 2, /*remote nic*/ 3);
  job.rank0.emit(EventType::kPathAccepted, 0, 4, /*path*/ 2, /*remote nic*/ 0);
  job.rank1.emit(EventType::kSegmentDelivered, 0, 4, 10, 0, 2);
  job.rank1.emit(EventType::kSegmentDelivered, 0, 5, 10, 0, 2);
  job.collector.drain();
  const Record record = job.collector.record(UINT64_MAX);
  ASSERT_EQ(record.deliveries.size(), 2u);
  EXPECT_EQ(record.deliveries[0].tx_nic, 1);
  EXPECT_EQ(record.deliveries[1].tx_nic, 2);
}

TEST(Collector, does_not_guess_which_nic_is_at_the_sender_s_end) {
  Job job;
  job.rank1.emit(EventType::kChannelUp, 0, 4, 1111);
  job.rank0.emit(EventType::kPathOpened, 3, 7, /*path*/ 1, /*remote nic*/ 0);
  job.rank1.emit(EventType::kSegmentDelivered, 0, 4, 10, 0, 1);
  job.rank1.emit(EventType::kMigrationDone, 1, 4, /*left*/ 0, /*epoch*/ 1, /*path*/ 2);
  job.collector.drain();
  const Record record = job.collector.record(UINT64_MAX);
  ASSERT_EQ(record.deliveries.size(), 1u);
  EXPECT_EQ(record.deliveries[0].tx_nic, kNoNic);
  ASSERT_EQ(record.path_uses.size(), 2u);
  EXPECT_EQ(record.path_uses[0].tx_nic, kNoNic);
  EXPECT_EQ(record.path_uses[0].path, 0u) << "a channel that comes up does not name its path";
  EXPECT_EQ(record.path_uses[1].tx_nic, kNoNic);
  EXPECT_EQ(job.collector.deliveries_on({0, 0}, 0), 0u);
  EXPECT_EQ(job.collector.deliveries_on({1, 0}, 0), 1u);
}

// The workload records messages on the NIC that it chose; a plugin that names no paths does not leave it.
TEST(Collector, takes_messages_to_travel_on_straight_rails) {
  Job job;
  job.rank1.emit(EventType::kMessageReceived, 2, 0, 100);
  job.collector.drain();
  EXPECT_EQ(job.collector.record(UINT64_MAX).deliveries.at(0).tx_nic, 2);
  EXPECT_EQ(job.collector.deliveries_on({0, 2}, 0), 1u);
  EXPECT_EQ(job.collector.deliveries_on({1, 2}, 0), 1u);
}

// In an AlltoAll a rank hears from all others: which stream is whose, the plugin's events say.
TEST(Collector, learns_the_sender_of_a_stream_from_the_names_of_processes) {
  TraceRings rings(3, 1 << 10);
  Collector collector({{"node0/rank0", 0, 2}, {"node1/rank1", 1, 0}, {"node2/rank2", 2, 1}},
                      [&](size_t rank, auto& out) { return rings.drain(rank, out); });
  Writer receiver(rings.path(0)), sender(rings.path(1));
  receiver.emit(EventType::kPathAccepted, 0, 7, /*path*/ 1, /*remote nic*/ 0);
  receiver.emit(EventType::kSegmentDelivered, 0, 7, 10, 0, 1, /*peer*/ 1111);
  receiver.emit(EventType::kSegmentDelivered, 0, 8, 10, 0, 1, /*peer*/ 2222);
  collector.drain();
  sender.emit(EventType::kChannelUp, 0, 3, /*itself*/ 1111);
  collector.drain();
  const Record record = collector.record(UINT64_MAX);
  ASSERT_EQ(record.streams.size(), 2u);
  EXPECT_EQ(record.streams[0].tx_node, 1);
  EXPECT_EQ(record.streams[1].tx_node, 2) << "not known: as in a ring";
  EXPECT_EQ(collector.deliveries_on({1, 0}, 0), 1u);
}

TEST(Collector, knows_the_path_that_a_stream_uses_before_it_delivers_over_it) {
  Job job;
  job.rank1.emit(EventType::kPathAccepted, 0, 4, /*path*/ 1, /*remote nic*/ 2);  // did not work
  job.rank1.emit(EventType::kPathAccepted, 0, 4, /*path*/ 2, /*remote nic*/ 0);
  job.rank1.emit(EventType::kChannelUp, 0, 4, 1111);
  job.rank1.emit(EventType::kPathAccepted, 1, 4, /*path*/ 6, /*remote nic*/ 3);
  job.rank1.emit(EventType::kMigrationDone, 1, 4, /*left*/ 0, /*epoch*/ 1, /*path*/ 6);
  job.rank1.emit(EventType::kSegmentDelivered, 1, 4, 10, 0, 6);
  job.rank0.emit(EventType::kChannelUp, 0, 4, 2222);  // the sending end: no stream
  job.collector.drain();
  const Record record = job.collector.record(UINT64_MAX);
  ASSERT_EQ(record.path_uses.size(), 2u);
  EXPECT_EQ(record.path_uses[0].rx_nic, 0);
  EXPECT_EQ(record.path_uses[0].tx_nic, 0);
  EXPECT_EQ(record.path_uses[0].path, 2u);
  EXPECT_EQ(record.path_uses[1].rx_nic, 1);
  EXPECT_EQ(record.path_uses[1].tx_nic, 3);
  EXPECT_EQ(record.path_uses[1].path, 6u);
  EXPECT_EQ(record.path_uses[1].bytes, 0u);
  EXPECT_EQ(record.path_uses[1].stream, 0u);
  EXPECT_LT(record.path_uses[1].time_ns, record.deliveries.at(0).time_ns);
}

/// Rank 0 sends to rank 1 on channels 0 and 1. Channel 0 has migrated from NIC 0 to the cross rail from NIC 0
/// to NIC 1; channel 1 stays on the straight rail of NIC 1.
struct CrossRail : Job {
  CrossRail() {
    rank0.emit(EventType::kIteration, kNoNic, 0, 0);
    rank1.emit(EventType::kIteration, kNoNic, 0, 0);
    for (uint16_t channel = 0; channel < 2; ++channel) {
      rank1.emit(EventType::kPathAccepted, channel, channel, /*path*/ 1, /*remote nic*/ channel);
      rank1.emit(EventType::kChannelUp, channel, channel, 1111);
      rank1.emit(EventType::kSegmentDelivered, channel, channel, 10, 0, 1);
    }
    rank1.emit(EventType::kPathAccepted, 1, 0, /*path*/ 2, /*remote nic*/ 0);
    rank1.emit(EventType::kMigrationDone, 1, 0, /*left*/ 0, /*epoch*/ 1, /*path*/ 2);
    t0_ns = now();
    rank1.emit(EventType::kSegmentDelivered, 1, 0, 10, 0, 2);
    rank1.emit(EventType::kSegmentDelivered, 1, 1, 10, 0, 1);
    collector.drain();
  }
  static uint64_t now() {
    return uint64_t(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  std::vector<uint32_t> affected_by(NicId target) {
    FaultWindow window;
    window.t0_ns = t0_ns;
    window.end_ns = UINT64_MAX;
    window.targets = {target};
    std::vector<uint32_t> streams;
    for (const auto& [stream, unused] : affected_streams(collector.record(UINT64_MAX), window))
      streams.push_back(stream);
    return streams;
  }
  uint64_t t0_ns = 0;
};

TEST(Collector, a_strike_on_a_nic_concerns_the_streams_whose_path_crosses_it_at_either_end) {
  CrossRail job;
  EXPECT_EQ(job.affected_by({0, 0}), std::vector<uint32_t>{0}) << "the sender's end of the cross rail";
  EXPECT_EQ(job.affected_by({0, 1}), std::vector<uint32_t>{1}) << "only the straight rail";
  EXPECT_EQ(job.affected_by({1, 1}), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(job.affected_by({1, 0}), std::vector<uint32_t>{}) << "it has left it";
}

TEST(Collector, leaves_planned_fences_out_of_the_record) {
  Job job;
  job.rank0.emit(EventType::kFenceStarted, 0, 0, uint64_t(DetectedBy::kNone), 1, /*planned*/ 1);
  job.rank0.emit(EventType::kFenceStarted, 1, 0, uint64_t(DetectedBy::kWatchdog), 1, 0);
  job.collector.drain();
  const Record record = job.collector.record(UINT64_MAX);
  ASSERT_EQ(record.fences.size(), 1u);
  EXPECT_EQ(record.fences[0].nic, 1);
  EXPECT_EQ(record.fences[0].detected_by, "watchdog");
  EXPECT_EQ(job.collector.events().size(), 2u);
}

TEST(Collector, counts_iterations_per_rank_and_events_that_were_overwritten) {
  Job job;
  for (uint64_t i = 0; i < 3; ++i) job.rank0.emit(EventType::kIteration, kNoNic, 0, i);
  job.rank1.emit(EventType::kIteration, kNoNic, 0, 0);
  job.rank1.emit(EventType::kIterationDone, kNoNic, 0, 0);
  job.collector.drain();
  EXPECT_EQ(job.collector.begun_by_any(), 3u);
  EXPECT_EQ(job.collector.ended(1), 1u);
  EXPECT_EQ(job.collector.ended_by_all(), 0u);
  EXPECT_EQ(job.collector.lost(), 0u);
  for (int i = 0; i < 1500; ++i) job.rank0.emit(EventType::kMessageReceived, 0, 0, 1);
  job.collector.drain();
  EXPECT_EQ(job.collector.lost(), 1500u - 1024u);
}

TEST(Describe, says_who_noticed) {
  r2ccl::trace::Event event{};
  event.type = EventType::kFenceStarted;
  event.nic = 2;
  event.a = uint64_t(DetectedBy::kCompletion);
  event.b = 4;
  EXPECT_EQ(describe(event), "nic 2, path 4, by completion");
}

}  // namespace
}  // namespace r2bench
