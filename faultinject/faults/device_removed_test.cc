// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

const std::string kIo = "errno " + std::to_string(EIO);
const std::string kFatal = "event " + std::to_string(kEventDeviceFatal);
const std::string kPollErr = "ok " + std::to_string(EPOLLERR) + " " + std::to_string(POLLERR);

class DeviceRemovedTest : public Nodes {
 protected:
  // node1 writes `value` into the memory of node0, at an address of its own.
  Completion write_from_b(uint64_t value) {
    b->must("set 0 " + std::to_string(value));
    b->must("post 0 write " + std::to_string(value) + " 8 0");
    const auto wcs = b->poll(0, 1, 20000);
    return wcs.empty() ? Completion{} : wcs[0];
  }
  uint64_t time_of(uint32_t id, Effect effect) const {
    for (const Witness& witness : board.witnesses(id))
      if (witness.effect == effect) return witness.time_ns;
    return 0;
  }
};

TEST_F(DeviceRemovedTest, commands_fail_at_once_and_writes_land_until_the_queue_pairs_die) {
  start(10, 1);
  a->must("watch");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 700 ms}");
  board.fire(id);
  uint64_t value = 0;
  size_t landed = 0;
  Completion wc;
  do {
    wc = write_from_b(++value);
    if (wc.status != kSuccess) break;
    EXPECT_EQ(a->get(0), value) << "whatever its commands say, its memory is written";
    if (witnessed(id, Effect::kDeviceGone)) landed += a->ask("err 0") == kIo;
  } while (value < 1000000);
  EXPECT_EQ(wc.status, kRetryExceeded);
  EXPECT_GT(landed, 0u) << "an EIO says nothing of what still lands";
  ASSERT_TRUE(witnessed(id, Effect::kQpToErr, "node0"));
  EXPECT_GE(time_of(id, Effect::kQpToErr), time_of(id, Effect::kDeviceGone) + 700 * kMs);
  EXPECT_LT(a->get(0), value) << "of what failed after their death nothing has landed";
  EXPECT_FALSE(witnessed(id, Effect::kQpToErr, "node1")) << "the peer is left to its own timers";
}

TEST_F(DeviceRemovedTest, every_command_returns_eio_for_good_and_another_device_is_whole) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 60 s, at: now}");
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kDeviceGone, "node0"); }));
  for (const char* command :
       {"err 0", "reset 0", "state 0", "destroy 0", "register", "register_iova2", "create_cq",
        "resize_cq 0 32", "port", "dereg", "alloc_pd", "device", "channel"})
    EXPECT_EQ(a->ask(command), kIo) << command;
  EXPECT_EQ(a->ask("qp 14 1 16 shared"), "error create_qp " + std::to_string(EIO));
  EXPECT_EQ(a->ask("reopen 0"), "errno " + std::to_string(ENODEV));
  EXPECT_EQ(a->ask("reopen 1"), "ok");
  EXPECT_EQ(b->ask("event 0"), "none");
  EXPECT_TRUE(witnessed(id, Effect::kModifyRefused, "node0"));
  EXPECT_TRUE(witnessed(id, Effect::kCreateRefused, "node0"));
  EXPECT_TRUE(witnessed(id, Effect::kRegistrationRefused, "node0"));
  EXPECT_EQ(value(id, Effect::kCommandRefused), uint64_t(EIO));
  board.heal(id);
  ASSERT_TRUE(eventually([&] { return a->ask("reopen 0") == "ok"; })) << "it can be opened anew";
  EXPECT_EQ(a->ask("register"), kIo) << "and who had it open has lost it";
  EXPECT_EQ(a->ask("err 0"), kIo);
  EXPECT_EQ(write_from_b(7).status, kSuccess) << "in the window, healed or not";
  EXPECT_EQ(a->get(0), 7u);
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_F(DeviceRemovedTest, its_own_late_writes_land_and_no_completion_tells_of_them) {
  start(10, 1);
  a->must("set 0 5");
  a->must("post 0 write 1 8 0");
  ASSERT_TRUE(eventually([&] { return b->get(0) == 5; }));
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 1 s}");
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kDeviceGone, "node0"); }));
  a->must("set 0 6");
  a->must("post 0 write 2 8 0");
  EXPECT_TRUE(eventually([&] { return b->get(0) == 6; }));
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  a->must("set 0 7");
  for (int i = 3; i <= 17; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  EXPECT_EQ(a->ask("post 0 write 18 8 0"), "errno " + std::to_string(ENOMEM))
      << "nobody takes completions out, so the queue of 16 is full";
  const auto wcs = a->poll(0, 2, 300);
  ASSERT_EQ(wcs.size(), 1u) << "what was complete before is still to be read";
  EXPECT_EQ(wcs[0].wr_id, 1u);
  EXPECT_EQ(wcs[0].status, kSuccess);
  EXPECT_EQ(b->get(0), 6u);
}

TEST_F(DeviceRemovedTest, completions_of_the_window_may_be_shown_and_nothing_is_ever_flushed) {
  start(10, 1);
  a->must("recv 0 99");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 1 s, completions: window}");
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kDeviceGone, "node0"); }));
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 900).size(), 1u);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  a->must("post 0 write 2 8 0");
  EXPECT_TRUE(a->poll(0, 1, 300).empty());
}

TEST_F(DeviceRemovedTest, the_async_descriptor_ends_only_after_the_queue_pairs) {
  start();
  a->must("watch");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 300 ms, settle: 300 ms}");
  board.fire(id);
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kDescriptorEnded, "node0"); }));
  EXPECT_GE(time_of(id, Effect::kDescriptorEnded), time_of(id, Effect::kQpToErr));
  EXPECT_GE(time_of(id, Effect::kQpToErr), time_of(id, Effect::kDeviceGone) + 300 * kMs);
  EXPECT_GE(time_of(id, Effect::kDescriptorEnded), time_of(id, Effect::kQpToErr) + 300 * kMs);
  for (int i = 0; i < 3; i++) EXPECT_EQ(a->ask("watched 5000"), kPollErr) << "for ever, in a set of old, too";
  EXPECT_EQ(a->ask("try_event"), kIo);
  a->must("nonblock");
  EXPECT_EQ(a->ask("try_event"), kIo);
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_F(DeviceRemovedTest, events_that_wait_come_before_the_end_of_the_descriptor) {
  start();
  a->must("watch");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 0 ms}");
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kDescriptorEnded, "node0"); }));
  EXPECT_EQ(a->ask("watched 5000"), "ok " + std::to_string(EPOLLIN) + " " + std::to_string(POLLIN));
  EXPECT_EQ(a->ask("event 0"), kFatal);
  EXPECT_EQ(a->ask("watched 5000"), kPollErr);
}

TEST_F(DeviceRemovedTest, a_thread_asleep_in_get_async_event_is_woken) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, events: false, window: 100 ms}");
  a->tell("try_event");  // blocks: the descriptor is not O_NONBLOCK
  EXPECT_TRUE(a->is_silent(50));
  board.fire(id);
  EXPECT_EQ(a->hear(), kIo);
  EXPECT_FALSE(witnessed(id, Effect::kEventDelivered));
}

TEST_F(DeviceRemovedTest, the_descriptor_may_end_with_a_last_event_instead) {
  start();
  a->must("watch");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 100 ms, end: fatal}");
  board.fire(id);
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  EXPECT_EQ(count(id, Effect::kEventDelivered), 2u);
  EXPECT_TRUE(witnessed(id, Effect::kQpToErr, "node0")) << "before the second one";
  EXPECT_EQ(a->ask("watched 100"), "ok 0 0") << "it stays silent";
}

TEST_F(DeviceRemovedTest, notice_is_given_while_everything_goes_on) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, notice: 60 s, at: now}");
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  EXPECT_EQ(a->ask("register"), "ok");
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess);
  EXPECT_FALSE(witnessed(id, Effect::kDeviceGone));
}

TEST_F(DeviceRemovedTest, destroys_succeed_where_the_program_allows_it_and_writes_land_all_the_same) {
  setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1);
  start();
  unsetenv("RDMAV_ALLOW_DISASSOC_DESTROY");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 60 s, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kDeviceGone, "node0"); }));
  EXPECT_EQ(a->ask("err 0"), kIo);
  EXPECT_EQ(a->ask("destroy 0"), "ok");
  EXPECT_TRUE(witnessed(id, Effect::kCommandIgnored, "node0"));
  EXPECT_EQ(write_from_b(7).status, kSuccess);
  EXPECT_EQ(a->get(0), 7u);
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_F(DeviceRemovedTest, an_internal_error_lets_modify_and_destroy_succeed_and_flushes_nothing) {
  start(10, 1);
  a->must("recv 0 99");
  const uint32_t id = arm("{target: node0/nic0, kind: device_internal_error, window: 1 s}");
  board.fire(id);
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  EXPECT_EQ(a->ask("err 0"), "ok");
  EXPECT_EQ(a->ask("state 0"), kIo);
  EXPECT_EQ(a->ask("register"), kIo);
  EXPECT_EQ(a->ask("create_cq"), kIo);
  EXPECT_EQ(a->ask("port"), kIo);
  EXPECT_EQ(write_from_b(7).status, kSuccess) << "of the move to ERR its NIC has not heard";
  EXPECT_EQ(a->get(0), 7u);
  EXPECT_TRUE(a->poll(0, 1, 100).empty()) << "so nothing is flushed";
  EXPECT_EQ(a->ask("destroy 0"), "ok");
  EXPECT_EQ(a->ask("dereg"), "ok");
  EXPECT_EQ(write_from_b(8).status, kSuccess);
  EXPECT_EQ(a->get(0), 8u);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  EXPECT_EQ(write_from_b(9).status, kRetryExceeded);
  EXPECT_EQ(a->get(0), 8u);
  EXPECT_TRUE(witnessed(id, Effect::kCommandIgnored, "node0"));
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_F(DeviceRemovedTest, after_an_internal_error_the_driver_removes_the_device) {
  start(14, 1, 16, "shared", "channel");
  a->must("watch 0");
  const uint32_t id =
      arm("{target: node0/nic0, kind: device_internal_error, window: 500 ms, settle: 300 ms}");
  board.fire(id);
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  EXPECT_EQ(a->ask("err 0"), "ok");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kDescriptorEnded, "node0"); }));
  EXPECT_GE(time_of(id, Effect::kQpToErr), time_of(id, Effect::kDeviceGone) + 500 * kMs);
  EXPECT_GE(time_of(id, Effect::kChannelEnded), time_of(id, Effect::kQpToErr));
  EXPECT_GE(time_of(id, Effect::kDescriptorEnded), time_of(id, Effect::kChannelEnded) + 300 * kMs);
  EXPECT_EQ(a->ask("watched 5000"), kPollErr);
  EXPECT_EQ(a->ask("try_event"), kIo);
  EXPECT_EQ(a->ask("err 0"), kIo) << "there is no driver any more that would answer for it";
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_F(DeviceRemovedTest, after_an_internal_error_the_last_word_may_be_an_event) {
  start(14, 1, 16, "shared", "channel");
  a->must("watch 0");
  const uint32_t id = arm("{target: node0/nic0, kind: device_internal_error, window: 50 ms, end: fatal}");
  board.fire(id);
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  EXPECT_TRUE(witnessed(id, Effect::kChannelEnded, "node0"));
  EXPECT_EQ(a->ask("watched 5000"), kPollErr);
  EXPECT_FALSE(witnessed(id, Effect::kDescriptorEnded));
}

TEST_F(DeviceRemovedTest, a_driver_that_cannot_let_go_reports_nothing_after_an_internal_error) {
  start(14, 1, 16, "shared", "channel");
  a->must("watch 0");
  const uint32_t id = arm("{target: node0/nic0, kind: device_internal_error, window: 50 ms, end: none}");
  board.fire(id);
  EXPECT_EQ(a->ask("event 10000"), kFatal);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  EXPECT_EQ(a->ask("event 300"), "none");
  EXPECT_EQ(a->ask("watched 0"), "ok 0 0");
  EXPECT_EQ(a->ask("err 0"), "ok") << "it answers for the device for ever";
  EXPECT_FALSE(witnessed(id, Effect::kChannelEnded));
  EXPECT_FALSE(witnessed(id, Effect::kDescriptorEnded));
  EXPECT_EQ(count(id, Effect::kEventDelivered), 1u);
}

// --- completion channels ---

class CompletionChannelTest : public DeviceRemovedTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    start(14, 1, 16, "shared", "channel");
    a->must("watch 0");
  }
};

TEST_P(CompletionChannelTest, ends_when_the_queue_pairs_die_and_before_the_async_descriptor) {
  const uint32_t id = arm(std::string("{target: node0/nic0, window: 300 ms, settle: 60 s, ") + GetParam());
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kDeviceGone, "node0"); }));
  EXPECT_EQ(a->ask("watched 0"), "ok 0 0") << "in the window it is as it was";
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kChannelEnded, "node0"); }));
  for (int i = 0; i < 3; i++) EXPECT_EQ(a->ask("watched 5000"), kPollErr) << "for ever, in a set of old, too";
  EXPECT_EQ(a->ask("cq_event 0"), kIo);
  EXPECT_EQ(a->ask("channel"), kIo);
  EXPECT_GE(time_of(id, Effect::kQpToErr), time_of(id, Effect::kDeviceGone) + 300 * kMs);
  EXPECT_GE(time_of(id, Effect::kChannelEnded), time_of(id, Effect::kQpToErr));
  EXPECT_FALSE(witnessed(id, Effect::kDescriptorEnded)) << "only after `settle`";
  EXPECT_EQ(count(id, Effect::kChannelEnded), 1u);
  board.heal(id);
  EXPECT_EQ(a->ask("watched 5000"), kPollErr) << "it does not come back";
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_P(CompletionChannelTest, wakes_all_who_sleep_in_get_cq_event) {
  a->tell("cq_event 0 3");
  EXPECT_TRUE(a->is_silent(50));
  const uint32_t id = arm(std::string("{target: node0/nic0, window: 50 ms, ") + GetParam());
  board.fire(id);
  EXPECT_EQ(a->hear(), kIo + ", " + kIo + ", " + kIo);
  EXPECT_EQ(a->ask("cq_event 0"), kIo);
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_P(CompletionChannelTest, wakes_who_sleeps_in_poll) {
  a->tell("poll_channel 0 20000");
  EXPECT_TRUE(a->is_silent(50));
  const uint32_t id = arm(std::string("{target: node0/nic0, window: 50 ms, ") + GetParam());
  board.fire(id);
  EXPECT_NE(a->hear(), "ok 0");
  EXPECT_EQ(a->ask("cq_event 0"), kIo);
  EXPECT_EQ(a->ask("poll_channel 0 5000"), "ok " + std::to_string(POLLERR));
}

INSTANTIATE_TEST_SUITE_P(EveryEnd, CompletionChannelTest,
                         ::testing::Values("kind: device_removed, end: pollerr}",
                                           "kind: device_removed, end: fatal}",
                                           "kind: device_internal_error, end: pollerr}",
                                           "kind: device_internal_error, end: fatal}"));

TEST_F(DeviceRemovedTest, events_of_a_channel_go_with_their_completion_queues) {
  start(14, 1, 16, "shared", "channel");
  a->must("watch 0");
  a->must("arm 0");
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->ask("watched 5000"), "ok " + std::to_string(EPOLLIN) + " " + std::to_string(POLLIN));
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 0 ms}");
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kChannelEnded, "node0"); }));
  EXPECT_EQ(a->ask("watched 5000"), kPollErr);
  EXPECT_EQ(a->ask("cq_event 0"), kIo);
  EXPECT_EQ(a->poll(0, 1, 5000).size(), 1u) << "the completion is in the program's own memory";
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_F(DeviceRemovedTest, a_queue_that_is_armed_when_its_channel_ends_does_the_program_no_harm) {
  start(14, 1, 16, "shared", "channel");
  a->must("arm 0");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 0 ms, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kChannelEnded, "node0"); }));
  for (int i = 0; i < 3; i++) {
    a->must("post 0 write 2 8 0");
    a->must("arm 0");
    EXPECT_TRUE(a->poll(0, 1, 20).empty());
  }
  EXPECT_EQ(a->ask("poll_channel 0 0"), "ok " + std::to_string(POLLERR));
  EXPECT_EQ(a->ask("close"), "ok");
}

TEST_F(DeviceRemovedTest, a_channel_is_busy_until_its_completion_queues_are_destroyed) {
  setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1);
  start(14, 1, 16, "shared", "channel");
  unsetenv("RDMAV_ALLOW_DISASSOC_DESTROY");
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 0 ms, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kChannelEnded, "node0"); }));
  EXPECT_EQ(a->ask("destroy_channel 0"), "errno " + std::to_string(EBUSY));
  EXPECT_EQ(a->ask("destroy 0"), "ok");
  EXPECT_EQ(a->ask("destroy_cq 0"), "ok");
  EXPECT_EQ(a->ask("destroy_channel 0"), "ok") << "that is no command: it only closes the descriptor";
}

TEST_F(DeviceRemovedTest, a_channel_of_another_device_goes_on) {
  start(14, 1, 16, "shared", "channel");
  const uint32_t id = arm("{target: node0/nic1, kind: device_removed, window: 0 ms, at: now}");
  EXPECT_FALSE(took_effect_within(id, 200));
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->sleep(0, 1, 10000).size(), 1u);
}

TEST_F(DeviceRemovedTest, a_stream_that_is_polled_loses_no_completion_of_before) {
  const uint32_t id = arm("{target: node0/nic0, kind: device_removed, window: 0 ms, at: {wr: 200}}");
  start(10, 1, 64);
  size_t shown = 0;
  for (int i = 1; i <= 300; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    const auto wcs = a->poll(0, 1, i < 200 ? 10000 : 0);
    shown += wcs.size();
    if (i >= 200) break;
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, kSuccess);
  }
  EXPECT_EQ(shown, 199u);
  EXPECT_TRUE(witnessed(id, Effect::kDeviceGone, "node0"));
}

}  // namespace
}  // namespace faultinject::testing
