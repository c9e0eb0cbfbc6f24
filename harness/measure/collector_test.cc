// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/collector.h"

#include <gtest/gtest.h>

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

TEST(Collector, knows_both_ends_of_a_path) {
  Job job;
  job.rank1.emit(EventType::kPathOpened, 0, 0, /*path*/ 5, /*remote nic*/ 3);
  job.rank1.emit(EventType::kSegmentDelivered, 0, 0, 10, 0, 5);
  job.collector.drain();
  EXPECT_EQ(job.collector.deliveries_on({1, 0}, 0), 1u);
  EXPECT_EQ(job.collector.deliveries_on({0, 3}, 0), 1u);
  EXPECT_EQ(job.collector.deliveries_on({0, 0}, 0), 0u);
}

// In an AlltoAll a rank hears from all others: which stream is whose, the plugin's events say.
TEST(Collector, learns_the_sender_of_a_stream_from_the_names_of_processes) {
  TraceRings rings(3, 1 << 10);
  Collector collector({{"node0/rank0", 0, 2}, {"node1/rank1", 1, 0}, {"node2/rank2", 2, 1}},
                      [&](size_t rank, auto& out) { return rings.drain(rank, out); });
  Writer receiver(rings.path(0)), sender(rings.path(1));
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
  job.rank1.emit(EventType::kChannelUp, 0, 4, 1111);
  job.rank1.emit(EventType::kPathOpened, 1, 4, /*path*/ 6, /*remote nic*/ 3);
  job.rank1.emit(EventType::kMigrationDone, 1, 4, /*left*/ 0, /*epoch*/ 1, /*path*/ 6);
  job.rank1.emit(EventType::kSegmentDelivered, 1, 4, 10, 0, 6);
  job.rank0.emit(EventType::kChannelUp, 0, 4, 2222);  // the sending end: no stream
  job.collector.drain();
  const Record record = job.collector.record(UINT64_MAX);
  ASSERT_EQ(record.path_uses.size(), 2u);
  EXPECT_EQ(record.path_uses[0].rx_nic, 0);
  EXPECT_EQ(record.path_uses[0].path, 0u);
  EXPECT_EQ(record.path_uses[1].rx_nic, 1);
  EXPECT_EQ(record.path_uses[1].tx_nic, 3);
  EXPECT_EQ(record.path_uses[1].path, 6u);
  EXPECT_EQ(record.path_uses[1].bytes, 0u);
  EXPECT_EQ(record.path_uses[1].stream, 0u);
  EXPECT_LT(record.path_uses[1].time_ns, record.deliveries.at(0).time_ns);
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
