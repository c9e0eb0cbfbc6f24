// SPDX-License-Identifier: Apache-2.0
// When ACKs are written, by the work requests of the receiver: behind the 'done' of a thread that
// polls other requests, at once for one that does not. Whatever becomes of the thread and the channel, the
// sender gets to know.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "r2ccl/channel/channel.h"
#include "r2ccl/protocol/ack_soon.h"
#include "r2ccl/protocol/late_acks.h"
#include "r2ccl/protocol/receiving.h"
#include "r2ccl/protocol/sending.h"
#include "r2ccl/tests/testing/traffic.h"
#include "r2ccl/tests/testing/written.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr size_t kBytes = 64 << 10;  // not copied: its send waits for the ACK

/// Counts how often this thread polls completion queues of `context`.
class Polls {
 public:
  explicit Polls(ProcessContext& context) {
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.poll_cq;
      ops.poll_cq = &poll;
    }
  }
  static uint32_t count() { return count_; }

 private:
  static int poll(ibv_cq* queue, int most, ibv_wc* completions) {
    ++count_;
    return real_(queue, most, completions);
  }
  inline static int (*real_)(ibv_cq*, int, ibv_wc*) = nullptr;
  inline static thread_local uint32_t count_ = 0;
};

/// The receiver's ends of two channels.
struct Receiving {
  explicit Receiving(const Link& link) {
    for (int i = 0; i < 2; ++i) {
      channel[size_t(i)] = accept_one(*net(), 0, link, listener[size_t(i)]);
      reg[size_t(i)] = *net()->reg(channel[size_t(i)], data[size_t(i)].data(), kBytes);
    }
  }
  Request* post(int i) {
    return post_receive(*net(), channel[size_t(i)], data[size_t(i)].data(), kBytes, reg[size_t(i)]);
  }
  static bool done(Request* request) {
    auto outcome = net()->test(request);
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return outcome.ok() && outcome->done;
  }
  void close() {
    for (Channel* one : channel)
      if (one) {
        EXPECT_TRUE(net()->close(one).ok());
      }
    for (Listener* one : listener) EXPECT_TRUE(net()->close(one).ok());
  }
  std::array<Listener*, 2> listener{};
  std::array<Channel*, 2> channel{};
  std::array<Registration*, 2> reg{};
  std::array<std::array<uint8_t, kBytes>, 2> data{};
};

/// The sender sends one message over each of the channels of `over`, one after the other, when the receiver
/// says so, and says itself when it is there (ports without a rate: a message has arrived when it is posted).
/// Before it uses a channel again, and at last, it waits for the ACK, at most `longest`. `receiver` does the
/// rest. A sender that has stalled for `suspect_ms` asks, which brings an ACK of its own: on a loaded machine
/// that would count, too.
void play(const std::vector<int>& over, const std::function<void(Receiving&, const Link&)>& receiver,
          std::chrono::milliseconds longest = 5s, const char* suspect_ms = "10000") {
  const auto fabric = make_fabric(2, 1);
  const Environment patient{{"R2CC_SUSPECT_MS", suspect_ms}, {"R2CC_STUCK_MS", "60000"}};
  const Child receives = start(fabric, 1, patient, [&](const Link& link) {
    Receiving ends(link);
    const Written counts(ends.channel[0]->context());
    receiver(ends, link);
    ends.close();
    say(link);
  });
  const Child sends = start(fabric, 0, patient, [&](const Link& link) {
    std::array<Channel*, 2> channel{};
    for (Channel*& one : channel) one = connect_one(*net(), 0, link);
    std::array<uint8_t, kBytes> data{};
    auto reg = net()->reg(channel[0], data.data(), data.size());
    ASSERT_TRUE(reg.ok());
    std::array<Request*, 2> awaited{};
    const auto wait_for_ack = [&](size_t i) {
      const auto began = std::chrono::steady_clock::now();
      while (awaited[i]) {
        auto outcome = net()->test(awaited[i]);
        ASSERT_TRUE(outcome.ok()) << outcome.error().message;
        ASSERT_LT(std::chrono::steady_clock::now() - began, longest) << "channel " << i;
        if (outcome->done) awaited[i] = nullptr;
      }
    };
    for (const int i : over) {
      wait_for_word(link);
      ASSERT_NO_FATAL_FAILURE(wait_for_ack(size_t(i)));
      while (!awaited[size_t(i)]) {
        auto posted = net()->isend(channel[size_t(i)], data.data(), data.size(), *reg);
        ASSERT_TRUE(posted.ok()) << posted.error().message;
        awaited[size_t(i)] = *posted;
      }
      say(link);
    }
    for (const size_t i : {0, 1}) ASSERT_NO_FATAL_FAILURE(wait_for_ack(i));
    wait_for_word(link);  // both ends close
    for (Channel* one : channel) EXPECT_TRUE(net()->close(one).ok());
  });
  for (int i = 0; i < 2; ++i) relay_handle(receives, sends);
  for (size_t i = 0; i < over.size(); ++i) {
    wait_for_word(receives.link);
    say(sends.link);
    wait_for_word(sends.link);
    say(receives.link);
  }
  wait_for_word(receives.link);
  say(sends.link);
  EXPECT_EQ(sends.wait(), 0);
  EXPECT_EQ(receives.wait(), 0);
}

/// One more message has arrived.
void next_message(const Link& link) {
  say(link);
  wait_for_word(link);
}

/// For as long as makes the thread write what it has put off.
void test_in_vain(Request* open) {
  for (uint32_t test = 0; test < LateAcks::kQuietTests; ++test) EXPECT_FALSE(Receiving::done(open));
}

TEST(Acks, are_written_behind_the_done_of_a_thread_that_has_other_requests) {
  play({0, 0}, [](Receiving& ends, const Link& link) {
    Request* const open = ends.post(1);
    for (int i = 0; i < 2; ++i) {
      Request* const message = ends.post(0);
      next_message(link);
      EXPECT_FALSE(Receiving::done(open));
      const unsigned before = Written::acks();
      EXPECT_TRUE(Receiving::done(message));
      for (uint32_t test = 1; test < LateAcks::kQuietTests; ++test) EXPECT_FALSE(Receiving::done(open));
      EXPECT_EQ(Written::acks(), before) << "there may be more to do";
      EXPECT_FALSE(Receiving::done(open));
      EXPECT_EQ(Written::acks(), before + 1);
      test_in_vain(open);
      EXPECT_EQ(Written::acks(), before + 1) << "once";
    }
  });
}

TEST(Acks, are_written_at_once_by_a_thread_that_has_nothing_else) {
  play({0, 0}, [](Receiving& ends, const Link& link) {
    for (int i = 0; i < 2; ++i) {
      Request* const message = ends.post(0);
      EXPECT_FALSE(Receiving::done(message));
      next_message(link);
      const unsigned before = Written::acks();
      EXPECT_TRUE(Receiving::done(message));
      EXPECT_EQ(Written::acks(), before + 1);
    }
  });
}

TEST(Acks, go_with_the_next_cts_entry_where_one_comes_first) {
  play({0, 0}, [](Receiving& ends, const Link& link) {
    Request* const open = ends.post(1);
    Request* const first = ends.post(0);
    next_message(link);
    EXPECT_FALSE(Receiving::done(open));
    const unsigned before = Written::acks(), entries = Written::cts();
    EXPECT_TRUE(Receiving::done(first));
    Request* const second = ends.post(0);
    EXPECT_EQ(Written::cts(), entries + 1);
    test_in_vain(open);
    EXPECT_EQ(Written::acks(), before) << "the CTS entry has said it";
    next_message(link);
    EXPECT_TRUE(Receiving::done(second));
    test_in_vain(open);
    EXPECT_EQ(Written::acks(), before + 1);
  });
}

TEST(Acks, are_written_all_when_the_thread_has_nothing_more) {
  play({0, 1}, [](Receiving& ends, const Link& link) {
    Request* const first = ends.post(0);
    Request* const second = ends.post(1);
    EXPECT_FALSE(Receiving::done(second));
    next_message(link);
    const unsigned before = Written::acks();
    EXPECT_TRUE(Receiving::done(first));
    EXPECT_EQ(Written::acks(), before);
    next_message(link);
    EXPECT_TRUE(Receiving::done(second));
    EXPECT_EQ(Written::acks(), before + 2);
  });
}

TEST(Acks, do_not_wait_for_requests_of_a_channel_that_is_closed) {
  play({0}, [](Receiving& ends, const Link& link) {
    EXPECT_FALSE(Receiving::done(ends.post(1)));
    EXPECT_TRUE(net()->close(ends.channel[1]).ok());
    ends.channel[1] = nullptr;
    Request* const message = ends.post(0);
    next_message(link);
    const unsigned before = Written::acks();
    EXPECT_TRUE(Receiving::done(message));
    EXPECT_EQ(Written::acks(), before + 1);
  });
}

TEST(Acks, are_written_when_what_else_was_open_is_closed) {
  play({0}, [](Receiving& ends, const Link& link) {
    EXPECT_FALSE(Receiving::done(ends.post(1)));
    Request* const message = ends.post(0);
    next_message(link);
    const unsigned before = Written::acks();
    EXPECT_TRUE(Receiving::done(message));
    EXPECT_EQ(Written::acks(), before);
    EXPECT_TRUE(net()->close(ends.channel[1]).ok());
    ends.channel[1] = nullptr;
    EXPECT_EQ(Written::acks(), before + 1);
  });
}

TEST(Acks, of_many_messages_wait_for_their_cts_entries) {
  play(std::vector<int>(2 * ProgressThread::kMostAcks, 0), [](Receiving& ends, const Link& link) {
    Request* const open = ends.post(1);
    const unsigned before = Written::acks();
    for (size_t i = 0; i < 2 * ProgressThread::kMostAcks; ++i) {
      Request* const message = ends.post(0);
      next_message(link);
      EXPECT_TRUE(Receiving::done(message));
      EXPECT_FALSE(Receiving::done(open));
    }
    EXPECT_EQ(Written::acks(), before);
    test_in_vain(open);
    EXPECT_EQ(Written::acks(), before + 1) << "of the last one";
  });
}

// NCCL divides a pool of buffers among the peers of an operation, so a sender may have fewer than its
// receiver has receives open. This one has a single buffer. It must not stand still, however long the job
// lasts: but for the two long waits in which its sender learns that.
TEST(Acks, come_soon_to_a_sender_that_waits_for_them_while_receives_are_open) {
  using End = ReceivingEndOf<wire::kRingLines>;
  constexpr size_t kMessages = 4 * AckSoon::kNeeded;
  play(std::vector<int>(kMessages, 0), [](Receiving& ends, const Link& link) {
    Request* next = ends.post(0);
    for (size_t i = 0; i < kMessages; ++i) {
      Request* const message = next;
      next = ends.post(0);
      next_message(link);
      const unsigned before = Written::acks();
      ASSERT_TRUE(Receiving::done(message));
      const bool tried = i == AckSoon::kNeeded || i == 3 * AckSoon::kNeeded + 1;
      const uint32_t tests = tried ? End::kTestsUnlessSoon : End::kTestsToWaitForCts;
      for (uint32_t test = 1; test < tests; ++test) ASSERT_FALSE(Receiving::done(next));
      ASSERT_EQ(Written::acks(), before) << "message " << i;
      ASSERT_FALSE(Receiving::done(next));
      ASSERT_EQ(Written::acks(), before + 1) << "message " << i;
    }
  });
}

struct Counted {
  unsigned acks = 0;  // that were written for themselves
  unsigned vain = 0;  // tests in vain
};
struct Traffic {
  size_t operations, messages;
  std::chrono::microseconds pause{0};  // of the sender, before each message
  std::chrono::microseconds turn{0};   // of the receiver's thread
  size_t from = 0;                     // the operations before this one are not counted, and have short turns
};
/// A sender with buffers(operation) buffers, and operations whose receives are posted at the start.
template <class Buffers>
Counted count(const Traffic& traffic, Buffers buffers) {
  const auto fabric = make_fabric(2, 1);
  const Environment environment{{"R2CC_STUCK_MS", "60000"}};
  auto* const counted =
      static_cast<Counted*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const Child receives = start(fabric, 1, environment, [&](const Link& link) {
    Listener* listener = nullptr;
    Channel* const channel = accept_one(*net(), 0, link, listener);
    std::vector<uint8_t> data(traffic.messages * kBytes);
    auto reg = net()->reg(channel, data.data(), data.size());
    const Written counts(channel->context());
    unsigned acks_before = 0;
    for (size_t operation = 0; operation < traffic.operations; ++operation) {
      const bool counts_now = operation >= traffic.from;
      if (operation == traffic.from) acks_before = Written::acks();
      wait_for_word(link);
      std::vector<Request*> open;
      for (size_t i = 0; i < traffic.messages; ++i)
        open.push_back(post_receive(*net(), channel, data.data() + i * kBytes, kBytes, *reg));
      say(link);
      for (size_t done = 0; done < traffic.messages;) {
        const bool is_done = Receiving::done(open[done]);
        done += is_done;
        counted->vain += counts_now && !is_done;
        if (counts_now && traffic.turn.count() > 0) std::this_thread::sleep_for(traffic.turn);
      }
    }
    counted->acks = Written::acks() - acks_before;
    say(link);
    wait_for_word(link);
    EXPECT_TRUE(net()->close(channel).ok());
    EXPECT_TRUE(net()->close(listener).ok());
  });
  const Child sends = start(fabric, 0, environment, [&](const Link& link) {
    Channel* const channel = connect_one(*net(), 0, link);
    std::vector<uint8_t> data(kBytes);
    auto reg = net()->reg(channel, data.data(), data.size());
    for (size_t operation = 0; operation < traffic.operations; ++operation) {
      wait_for_word(link);
      std::vector<Request*> open;
      auto last = std::chrono::steady_clock::now();
      for (size_t posted = 0; posted < traffic.messages || !open.empty();) {
        if (posted < traffic.messages && open.size() < buffers(operation) &&
            std::chrono::steady_clock::now() - last >= traffic.pause) {
          auto request = net()->isend(channel, data.data(), kBytes, *reg);
          ASSERT_TRUE(request.ok());
          if (*request) {
            open.push_back(*request);
            ++posted;
            last = std::chrono::steady_clock::now();
          }
        }
        std::erase_if(open, [](Request* request) { return Receiving::done(request); });
      }
      say(link);
    }
    wait_for_word(link);
    EXPECT_TRUE(net()->close(channel).ok());
  });
  relay_handle(receives, sends);
  for (size_t operation = 0; operation < traffic.operations; ++operation) {
    say(receives.link);
    wait_for_word(receives.link);
    say(sends.link);
    wait_for_word(sends.link);
  }
  wait_for_word(receives.link);
  say(receives.link);
  say(sends.link);
  EXPECT_EQ(sends.wait(), 0);
  EXPECT_EQ(receives.wait(), 0);
  const Counted found = *counted;
  munmap(counted, 4096);
  return found;
}

// Of operations of four messages the last one alone has an ACK of its own, once that is trusted.
TEST(Acks, of_an_operation_are_one_where_the_sender_has_buffers_enough) {
  constexpr size_t kOperations = 600;
  const Counted found = count({kOperations, 4, 50us}, [](size_t) { return 8u; });
  EXPECT_GE(found.acks, kOperations);
  EXPECT_LT(found.acks, kOperations * 2) << "four for each without the long wait";
}

// A wait is over after 16 tests. The watchdog's query ends a long one after some milliseconds: a hundred
// tests of a thread whose turns take that long.
TEST(Acks, come_soon_where_the_sender_waits_and_turns_are_slow) {
  constexpr size_t kOperations = 60, kMessages = 8;
  for (const uint32_t buffers : {1U, 2U}) {
    const Counted found = count({kOperations, kMessages, 0us, 50us}, [&](size_t) { return buffers; });
    EXPECT_LE(found.vain, kOperations * kMessages / buffers * 24) << buffers;
  }
}

TEST(Acks, come_soon_again_to_a_sender_that_has_fewer_buffers_than_before) {
  constexpr size_t kBefore = 400, kAfter = 60, kMessages = 8;
  const Counted found = count({kBefore + kAfter, kMessages, 20us, 50us, kBefore},
                              [](size_t i) { return i < kBefore ? 8u : 1u; });
  EXPECT_LE(found.vain, kAfter * kMessages * 24);
}

TEST(Acks, reach_the_sender_where_the_thread_never_tests_again) {
  play(
      {0},
      [](Receiving& ends, const Link& link) {
        std::thread([&] {
          Request* const open = ends.post(1);
          Request* const message = ends.post(0);
          next_message(link);
          EXPECT_FALSE(Receiving::done(open));
          const unsigned before = Written::acks();
          EXPECT_TRUE(Receiving::done(message));
          EXPECT_EQ(Written::acks(), before);
        }).join();
        std::this_thread::sleep_for(300ms);  // the sender has long asked
      },
      250ms, "4");
}

// NCCL tests a send in each round until it is done, while other messages wait to be taken in.
TEST(Acks, what_is_awaited_is_polled_for_only_while_the_nic_may_have_something_to_report) {
  constexpr uint32_t kTests = 20 * SendingEndOf<wire::kRingLines>::kTestsPerIdleLook;
  const auto fabric = make_fabric(2, 1);
  const Environment environment{{"R2CC_SUSPECT_MS", "1000"}};  // the sender does not query meanwhile
  const Child receives = start(fabric, 1, environment, [&](const Link& link) {
    Receiving ends(link);
    Request* const message = ends.post(0);
    say(link);
    wait_for_word(link);
    while (!Receiving::done(message)) continue;
    wait_for_word(link);
    ends.close();
  });
  const Child sends = start(fabric, 0, environment, [&](const Link& link) {
    std::array<Channel*, 2> channel{};
    for (Channel*& one : channel) one = connect_one(*net(), 0, link);
    const Polls polls(channel[0]->context());
    std::array<uint8_t, kBytes> data{};
    auto reg = net()->reg(channel[0], data.data(), data.size());
    ASSERT_TRUE(reg.ok());
    const auto is_done = [](Request* request) {
      auto outcome = net()->test(request);
      EXPECT_TRUE(outcome.ok());
      return outcome.ok() && outcome->done;
    };
    wait_for_word(link);
    Request* request = nullptr;
    while (!request) {
      auto posted = net()->isend(channel[0], data.data(), data.size(), *reg);
      ASSERT_TRUE(posted.ok());
      request = *posted;
    }
    const uint32_t before = Polls::count();
    for (uint32_t test = 0; test < kTests; ++test) ASSERT_FALSE(is_done(request));
    // Until the NIC has reported the write, each test polls: a port without a rate does so at once.
    EXPECT_LE(Polls::count() - before, 2 * kTests / SendingEndOf<wire::kRingLines>::kTestsPerIdleLook);
    EXPECT_GE(Polls::count() - before, kTests / SendingEndOf<wire::kRingLines>::kTestsPerIdleLook)
        << "a dead QP would never be noticed";
    say(link);
    while (!is_done(request)) continue;
    say(link);
    for (Channel* one : channel) EXPECT_TRUE(net()->close(one).ok());
  });
  for (int i = 0; i < 2; ++i) relay_handle(receives, sends);
  wait_for_word(receives.link);
  say(sends.link);
  for (int i = 0; i < 2; ++i) {
    wait_for_word(sends.link);
    say(receives.link);
  }
  EXPECT_EQ(sends.wait(), 0);
  EXPECT_EQ(receives.wait(), 0);
}

TEST(Acks, of_a_channel_that_is_closed_are_told_by_that) {
  play({0}, [](Receiving& ends, const Link& link) {
    Request* const open = ends.post(1);
    Request* const message = ends.post(0);
    next_message(link);
    EXPECT_FALSE(Receiving::done(open));
    const unsigned before = Written::acks();
    EXPECT_TRUE(Receiving::done(message));
    EXPECT_EQ(Written::acks(), before);
    EXPECT_TRUE(net()->close(ends.channel[0]).ok());
    ends.channel[0] = nullptr;
    test_in_vain(open);
  });
}

}  // namespace
}  // namespace r2ccl
