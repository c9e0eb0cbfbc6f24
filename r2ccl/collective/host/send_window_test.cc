// SPDX-License-Identifier: Apache-2.0
// The window is as small as keeps the ports busy: ports that are given messages and times, no fabric.
#include "r2ccl/collective/host/send_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace r2ccl::collective {
namespace {

constexpr size_t kLeast = 1 << 20, kMessage = 64 << 10;
using Duration = SendWindow::Duration;

/// Keeps the window full: messages take turns on the rails, and are done in order.
class Sender {
 public:
  Sender(SendWindow& window, size_t rails) : window_(window), rails_(rails) { fill(); }

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
  /// The same, but what is on `rail` is done first, and nothing else when that is enough.
  void drain_rail(size_t rail, size_t left, Duration took) {
    std::deque<size_t> others;
    for (; !open_.empty(); open_.pop_front()) {
      if (open_.front() == rail && window_.under_way() > left)
        window_.done(rail, kMessage, took);
      else
        others.push_back(open_.front());
    }
    open_ = others;
    drain(left, took);
  }
  void use(size_t rails) { rails_ = rails, next_ = 0; }
  /// Some rounds in which the NICs always have nearly the whole window.
  void busy_rounds(Duration took, int rounds) {
    for (int i = 0; i < rounds * 16; ++i) drain(window_.bytes() - 2 * kMessage, took);
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

/// Four NICs that are kept busy.
struct FullWindow : testing::Test {
  SendWindow window{kLeast};
  Sender sender{window, 4};
  /// One message has met an empty queue; the others queue for twice as long.
  void settle() {
    sender.drain(kLeast - kMessage, Duration(0.01));
    sender.busy_rounds(Duration(0.02), 2);
    ASSERT_EQ(window.bytes(), kLeast);
  }
};

// A stream that never pauses: what is fastest of late has queued like all others, and does not count.
TEST_F(FullWindow, stays_where_the_nics_are_busy_and_messages_queue) {
  sender.drain(kLeast - kMessage, Duration(0.01));
  sender.busy_rounds(Duration(0.02), 1000);
  EXPECT_EQ(window.bytes(), kLeast);
}

// Nothing waits in a queue: what is under way is latency, and more of it can be.
TEST_F(FullWindow, grows_while_messages_take_no_longer_than_the_fastest) {
  sender.drain(kLeast - kMessage, Duration(0.04));
  sender.busy_rounds(Duration(0.05), 20);
  EXPECT_GE(window.bytes(), 4 * kLeast);
}

// Most of the delay may be a queue at the receiver, where other senders' messages wait as well.
TEST_F(FullWindow, grows_while_messages_are_done_soon) {
  sender.drain(kLeast - kMessage, Duration(0.0001));
  sender.busy_rounds(SendWindow::kSoon * 0.9, 6);
  const size_t grown = window.bytes();
  EXPECT_GE(grown, 2 * kLeast);
  ASSERT_LT(grown, SendWindow::kMost);
  sender.busy_rounds(SendWindow::kSoon * 1.9, 100);
  EXPECT_EQ(window.bytes(), grown);
  sender.busy_rounds(SendWindow::kSoon * 2.2, 100);
  EXPECT_EQ(window.bytes(), kLeast);
}

// Whoever waits for what is under way must know how much that may become, also where it begins with more than kMost.
TEST(SendWindow, is_never_larger_than_the_most_that_it_tells) {
  for (const size_t least : {size_t{kLeast}, 2 * SendWindow::kMost}) {
    SendWindow window(least);
    Sender sender(window, 4);
    sender.drain(least - kMessage, Duration(0.0001));
    sender.busy_rounds(SendWindow::kSoon * 0.9, 60);
    EXPECT_EQ(window.bytes(), window.most());
    EXPECT_EQ(window.most(), std::max(least, SendWindow::kMost));
  }
}

TEST_F(FullWindow, comes_back_when_messages_queue) {
  sender.drain(kLeast - kMessage, Duration(0.04));
  sender.busy_rounds(Duration(0.05), 20);
  ASSERT_GE(window.bytes(), 4 * kLeast);
  sender.busy_rounds(Duration(0.13), 100);
  EXPECT_EQ(window.bytes(), kLeast);
}

// A thread that runs seldom finds much done and a NIC nearly idle: growth, however long messages seem to
// take.
TEST_F(FullWindow, grows_when_a_nic_ran_low_before_this_thread_ran_again) {
  settle();
  sender.drain_rail(3, 12 * kMessage, Duration(0.2));  // of four, one is empty; the others have all they had
  EXPECT_EQ(window.bytes(), kLeast + kLeast / 4);
}

TEST_F(FullWindow, stays_when_much_is_done_and_every_nic_has_its_share_of_the_rest) {
  settle();
  sender.drain(10 * kMessage, Duration(0.02));
  EXPECT_EQ(window.bytes(), kLeast);
}

// One NIC is faster than the others, or gets less: it has little left at any size of the window.
TEST_F(FullWindow, stays_when_a_nic_is_low_while_the_window_is_full) {
  settle();
  for (int i = 0; i < 500; ++i) sender.drain_rail(3, 13 * kMessage, Duration(0.02));
  EXPECT_EQ(window.bytes(), kLeast);
}

// What a NIC that is lost has under way (nothing) says nothing of the window.
TEST_F(FullWindow, a_nic_that_is_no_longer_used_is_not_low) {
  settle();
  sender.use(3);
  sender.busy_rounds(Duration(0.02), 4);
  ASSERT_EQ(window.bytes(), kLeast);
  for (int i = 0; i < 100; ++i) sender.drain(11 * kMessage, Duration(0.02));
  EXPECT_EQ(window.bytes(), kLeast);
}

// After pauses the latency of then counts: where it has grown, the window may.
TEST_F(FullWindow, a_pause_tells_anew_how_fast_messages_are) {
  sender.drain(kLeast - kMessage, Duration(0.0001));
  sender.busy_rounds(Duration(0.02), 20);
  ASSERT_EQ(window.bytes(), kLeast);
  for (int pause = 0; pause < 2; ++pause) {
    sender.drain(0, Duration(0.02));
    sender.busy_rounds(Duration(0.02), 20);
  }
  EXPECT_GE(window.bytes(), 4 * kLeast);
}

TEST_F(FullWindow, forgets_what_it_has_learned_when_it_is_set) {
  sender.drain(kLeast - kMessage, Duration(0.0001));
  window.set_least(2 * kLeast);
  EXPECT_EQ(window.bytes(), 2 * kLeast);
  sender.drain(kLeast - kMessage, Duration(0.04));
  sender.busy_rounds(Duration(0.05), 20);
  EXPECT_GE(window.bytes(), 4 * kLeast);
}

// Small pieces at the end of a chunk are soon done, and say nothing of the others.
TEST_F(FullWindow, small_messages_are_not_the_fastest) {
  sender.drain(kLeast - kMessage, Duration(0.04));
  for (int i = 0; i < 20; ++i) {
    window.posted(0, kMessage / 4);
    window.done(0, kMessage / 4, Duration(0.005));
    sender.busy_rounds(Duration(0.05), 1);
  }
  EXPECT_GE(window.bytes(), 4 * kLeast);
}

TEST(SendWindow, two_messages_always_have_room) {
  SendWindow window(1);
  EXPECT_TRUE(window.room(kMessage));
  window.posted(0, kMessage);
  EXPECT_TRUE(window.room(kMessage));
  window.posted(0, kMessage);
  EXPECT_FALSE(window.room(kMessage));
  window.done(0, kMessage, Duration(0.01));
  EXPECT_TRUE(window.room(kMessage));
}

}  // namespace
}  // namespace r2ccl::collective
