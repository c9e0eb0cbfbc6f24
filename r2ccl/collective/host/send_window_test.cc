// SPDX-License-Identifier: Apache-2.0
// The window is as small as keeps the ports busy: ports that are given messages and times, no fabric.
#include "r2ccl/collective/host/send_window.h"

#include <gtest/gtest.h>

#include <deque>

namespace r2ccl::collective {
namespace {

constexpr size_t kLeast = 1 << 20, kMessage = 64 << 10;
using Duration = SendWindow::Duration;

/// Keeps the window full: messages take turns on the rails, and are done in order.
class Sender {
 public:
  explicit Sender(SendWindow& window, size_t rails) : window_(window), rails_(rails) { fill(); }

  /// Messages complete until only `left` bytes are under way; each took so long. Then the window is filled
  /// again.
  void drain(size_t left, Duration took) {
    while (window_.under_way() > left) {
      window_.done(open_.front(), kMessage, took);
      open_.pop_front();
    }
    window_.adapt();
    fill();
  }

 private:
  void fill() {
    while (window_.room(kMessage)) {
      window_.posted(next_, kMessage);
      open_.push_back(next_);
      next_ = (next_ + 1) % rails_;
    }
  }
  SendWindow& window_;
  size_t rails_, next_ = 0;
  std::deque<size_t> open_;
};

/// Some rounds in which the ports always have nearly the whole window, after one message that met no queue.
void busy_rounds(SendWindow& window, Sender& sender, Duration unqueued, Duration took, int rounds = 20) {
  sender.drain(window.bytes() - kMessage, unqueued);
  for (int i = 0; i < rounds * 16; ++i) sender.drain(window.bytes() - 2 * kMessage, took);
}

TEST(SendWindow, stays_where_the_ports_are_busy_and_messages_queue) {
  SendWindow window(kLeast);
  Sender sender(window, 4);
  busy_rounds(window, sender, Duration(0.001), Duration(0.002));
  EXPECT_EQ(window.bytes(), kLeast);
}

// Nothing waits in a queue: what is under way is latency, and more of it can be.
TEST(SendWindow, grows_while_messages_take_no_longer_than_the_fastest) {
  SendWindow window(kLeast);
  Sender sender(window, 4);
  busy_rounds(window, sender, Duration(0.004), Duration(0.005));
  EXPECT_GE(window.bytes(), 4 * kLeast);
  EXPECT_LE(window.bytes(), SendWindow::kMost);
}

// A thread that runs seldom finds its ports nearly idle: growth, however long messages seem to take.
TEST(SendWindow, grows_when_a_port_ran_low_before_this_thread_ran_again) {
  SendWindow window(kLeast);
  Sender sender(window, 4);
  busy_rounds(window, sender, Duration(0.001), Duration(0.002), 2);
  ASSERT_EQ(window.bytes(), kLeast);
  sender.drain(4 * kMessage, Duration(0.02));
  EXPECT_EQ(window.bytes(), kLeast + kLeast / 4);
}

TEST(SendWindow, comes_back_when_messages_queue) {
  SendWindow window(kLeast);
  Sender sender(window, 4);
  busy_rounds(window, sender, Duration(0.004), Duration(0.005));
  ASSERT_GE(window.bytes(), 4 * kLeast);
  busy_rounds(window, sender, Duration(0.004), Duration(0.013), 40);
  EXPECT_EQ(window.bytes(), kLeast);
}

// What a NIC that is lost has under way (nothing) says nothing of the window.
TEST(SendWindow, a_port_that_is_not_used_is_not_low) {
  SendWindow window(kLeast);
  Sender four(window, 4);
  busy_rounds(window, four, Duration(0.001), Duration(0.002), 2);
  four.drain(0, Duration(0.001));
  ASSERT_LE(window.bytes(), kLeast + kLeast / 4);
  SendWindow three(kLeast);
  Sender sender(three, 3);
  busy_rounds(three, sender, Duration(0.001), Duration(0.002));
  EXPECT_EQ(three.bytes(), kLeast);
}

// The fastest message of long ago is forgotten: where the latency has grown, the window may.
TEST(SendWindow, forgets_how_fast_messages_once_were) {
  SendWindow window(kLeast);
  Sender sender(window, 4);
  busy_rounds(window, sender, Duration(0.0001), Duration(0.002), 20);
  ASSERT_EQ(window.bytes(), kLeast);
  for (int i = 0; i < 200 * 16; ++i) sender.drain(window.bytes() - 2 * kMessage, Duration(0.002));
  EXPECT_GE(window.bytes(), 4 * kLeast);
}

TEST(SendWindow, two_messages_always_have_room) {
  SendWindow window(1);
  EXPECT_TRUE(window.room(kMessage));
  window.posted(0, kMessage);
  EXPECT_TRUE(window.room(kMessage));
  window.posted(0, kMessage);
  EXPECT_FALSE(window.room(kMessage));
  window.done(0, kMessage, Duration(0.001));
  EXPECT_TRUE(window.room(kMessage));
}

}  // namespace
}  // namespace r2ccl::collective
