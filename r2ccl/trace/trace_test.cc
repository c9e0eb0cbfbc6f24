// SPDX-License-Identifier: Apache-2.0
// The trace ring: nothing that was read is torn, and what was lost is counted.
#include "r2ccl/trace/ring.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace r2ccl::trace {
namespace {

TEST(TraceRing, events_come_out_in_order_with_their_fields) {
  Reader reader = Reader::create(64);
  Writer writer(reader.path());
  ASSERT_TRUE(writer.enabled());
  writer.emit(EventType::kMigrationStarted, 3, 7, 1, 2, 4, 9);
  writer.emit(EventType::kReplayed, 4, 8);
  std::vector<Event> events;
  EXPECT_EQ(reader.drain(events), 0u);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, EventType::kMigrationStarted);
  EXPECT_EQ(events[0].nic, 3);
  EXPECT_EQ(events[0].channel, 7u);
  EXPECT_EQ(events[0].a, 1u);
  EXPECT_EQ(events[0].b, 2u);
  EXPECT_EQ(events[0].c, 4u);
  EXPECT_EQ(events[0].peer, 9u);
  EXPECT_LE(events[0].time_ns, events[1].time_ns);
}

TEST(TraceRing, a_hot_type_can_be_declined_and_no_other) {
  Reader reader = Reader::create(64);
  Writer writer(reader.path());
  reader.decline(EventType::kMessageReceived);
  reader.decline(EventType::kMigrationDone);
  writer.emit(EventType::kMessageReceived, 0, 0, 1);
  writer.emit(EventType::kSegmentDelivered, 0, 0, 2);
  writer.emit(EventType::kMigrationDone, 0, 0, 3);
  std::vector<Event> events;
  EXPECT_EQ(reader.drain(events), 0u);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, EventType::kSegmentDelivered);
  EXPECT_EQ(events[1].type, EventType::kMigrationDone);
}

TEST(TraceRing, a_reader_that_falls_behind_learns_what_it_lost) {
  Reader reader = Reader::create(64);
  Writer writer(reader.path());
  for (uint64_t i = 0; i < 200; ++i) writer.emit(EventType::kIteration, 0, 0, i);
  std::vector<Event> events;
  const uint64_t lost = reader.drain(events);
  EXPECT_EQ(lost + events.size(), 200u);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().a, 199u);
}

TEST(TraceRing, many_writers_and_a_reader_at_once_tear_nothing) {
  Reader reader = Reader::create(1024);
  constexpr uint64_t kEach = 20000;
  std::vector<std::thread> writers;
  for (uint64_t t = 1; t <= 3; ++t)
    writers.emplace_back([&, t] {
      Writer writer(reader.path());
      for (uint64_t i = 0; i < kEach; ++i)
        writer.emit(EventType::kSegmentDelivered, uint16_t(t), uint32_t(i), i * t, i + t, i ^ t);
    });
  std::vector<Event> events;
  uint64_t lost = 0;
  while (lost + events.size() < 3 * kEach) lost += reader.drain(events);
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(lost + events.size(), 3 * kEach);
  for (const Event& event : events) {
    const uint64_t t = event.nic, i = event.channel;
    ASSERT_TRUE(event.a == i * t && event.b == i + t && event.c == (i ^ t));
  }
}

TEST(TraceRing, another_process_writes_into_it) {
  Reader reader = Reader::create(64);
  const std::string path = reader.path();
  const pid_t child = fork();
  if (child == 0) {
    Writer writer(path);
    writer.emit(EventType::kNicDown, 1, 2);
    _exit(writer.enabled() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::vector<Event> events;
  reader.drain(events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, EventType::kNicDown);
}

TEST(TraceRing, without_a_path_everything_is_dropped) {
  Writer writer("");
  EXPECT_FALSE(writer.enabled());
  writer.emit(EventType::kNicDown, 0, 0);
}

TEST(TraceRing, a_file_that_is_no_ring_is_refused) {
  Writer writer("/proc/self/exe");
  EXPECT_FALSE(writer.enabled());
}

TEST(EventNames, every_name_leads_back_to_its_type) {
  for (int value = 1; value < 64; ++value)
    if (const auto text = name(EventType(value)); text != "none") {
      EXPECT_EQ(event_from_name(text), EventType(value));
    }
  EXPECT_EQ(event_from_name("no such event"), EventType::kNone);
}

}  // namespace
}  // namespace r2ccl::trace
