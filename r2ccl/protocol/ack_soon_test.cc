// SPDX-License-Identifier: Apache-2.0
// AckSoon: single steps, and beside programs of many kinds. A program here has a number of buffers and a GPU
// that takes its time; a receiver, whose tests are the unit of time, writes ACKs by the rule of receiving.h.
#include "r2ccl/protocol/ack_soon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "r2ccl/protocol/limits.h"
#include "r2ccl/protocol/receiving.h"

namespace r2ccl {
namespace {

using End = ReceivingEndOf<wire::kRingLines>;

uint64_t no_clock() {
  ADD_FAILURE() << "the time was asked for";
  return 0;
}
bool not_asked(uint32_t) {
  ADD_FAILURE() << "it was asked which receives are open";
  return true;
}
bool none(uint32_t) { return false; }
bool all(uint32_t) { return true; }
auto at(uint64_t time) {
  return [time] { return time; };
}

/// Posts messages that are confirmed before the next one, until one does not ask for its ACK.
uint32_t until_trial(AckSoon& ack_soon) {
  uint32_t messages = 0;
  while (ack_soon.ahead() == 1) {
    EXPECT_TRUE(ack_soon.posts(false, 1, not_asked, no_clock));
    ++messages;
  }
  return messages;
}
/// Two messages, of which the second is posted without the ACK of the first.
void prove_two(AckSoon& ack_soon) {
  EXPECT_FALSE(ack_soon.posts(false, 1, none, at(0)));
  EXPECT_TRUE(ack_soon.posts(false, 2, none, at(0)));
}
/// A message that waits for so long, and the next one comes so long after its ACK.
void wait(AckSoon& ack_soon, uint64_t waited, uint64_t after) {
  EXPECT_FALSE(ack_soon.posts(false, 1, none, at(1000)));
  ack_soon.waited_long(0, at(1000 + waited));
  ack_soon.posts(false, 1, none, at(1000 + waited + after));
}

TEST(AckSoon, each_message_asks_at_first_and_no_time_is_read) {
  AckSoon ack_soon;
  for (uint32_t i = 1; i < AckSoon::kNeeded; ++i) {
    EXPECT_TRUE(ack_soon.posts(false, 1, not_asked, no_clock));
    ack_soon.waited_long(0, no_clock);
  }
  EXPECT_EQ(ack_soon.ahead(), 1u);
  EXPECT_TRUE(ack_soon.posts(false, 1, not_asked, no_clock));
  EXPECT_EQ(ack_soon.ahead(), 2u);
}

TEST(AckSoon, a_trial_ends_with_the_first_long_wait) {
  for (const uint64_t after : {10, 1000}) {
    AckSoon ack_soon;
    uint32_t needed = AckSoon::kNeeded;
    EXPECT_EQ(until_trial(ack_soon), needed);
    while (needed < AckSoon::kMostNeeded) {
      wait(ack_soon, 100, after);
      needed *= 2;
      EXPECT_EQ(ack_soon.ahead(), 1u);
      EXPECT_EQ(until_trial(ack_soon), needed - 1) << "the one that ended the trial is the first";
    }
    wait(ack_soon, 100, after);
    EXPECT_EQ(until_trial(ack_soon), AckSoon::kMostNeeded - 1);
  }
}

TEST(AckSoon, messages_that_reach_the_level_pay_for_long_waits) {
  const auto waits = [](uint64_t after) {
    AckSoon ack_soon;
    until_trial(ack_soon);
    for (uint32_t i = 1; i < AckSoon::kNeeded; ++i) prove_two(ack_soon);
    EXPECT_EQ(ack_soon.ahead(), 2u);
    uint32_t count = 0;
    for (; ack_soon.ahead() == 2; ++count) wait(ack_soon, 100, after);
    return count;
  };
  EXPECT_EQ(waits(24), AckSoon::kMostDoubt / AckSoon::kWaitedFor);
  EXPECT_EQ(waits(25), AckSoon::kMostDoubt / AckSoon::kPerhapsWaitedFor);
}

TEST(AckSoon, the_level_doubles_up_to_a_limit) {
  AckSoon ack_soon;
  until_trial(ack_soon);
  for (uint32_t level = 2; level < AckSoon::kMostAhead; level *= 2) {
    for (uint32_t i = 0; i < AckSoon::kNeeded; ++i) {
      EXPECT_EQ(ack_soon.ahead(), level);
      for (uint32_t depth = 1; depth <= level; ++depth)
        EXPECT_EQ(ack_soon.posts(false, depth, none, at(0)), depth == level) << depth;
    }
  }
  for (uint32_t i = 0; i < 3 * AckSoon::kNeeded; ++i) ack_soon.posts(false, 40, none, at(0));
  EXPECT_EQ(ack_soon.ahead(), AckSoon::kMostAhead);
  EXPECT_LT(AckSoon::kMostAhead, uint32_t(kMaxRequests));
}

TEST(AckSoon, at_half_the_level_messages_ask_if_more_receives_are_open) {
  AckSoon ack_soon;
  until_trial(ack_soon);
  EXPECT_TRUE(ack_soon.posts(false, 1, all, at(0)));
  while (ack_soon.ahead() < 8)
    for (uint32_t depth = 1; depth <= 4; ++depth) ack_soon.posts(false, depth, none, at(0));
  for (uint32_t depth = 1; depth < 4; ++depth) EXPECT_FALSE(ack_soon.posts(false, depth, not_asked, at(0)));
  for (uint32_t depth = 4; depth < 8; ++depth)
    for (const bool more : {false, true}) {
      uint32_t asked = 0;
      const auto open = [&](uint32_t behind) {
        asked = behind;
        return more;
      };
      EXPECT_EQ(ack_soon.posts(false, depth, open, at(0)), more);
      EXPECT_EQ(depth + asked, 9u) << "the first one that the program is not trusted to have a buffer for";
    }
}

TEST(AckSoon, what_was_no_wait_for_nothing_teaches_nothing) {
  AckSoon ack_soon;
  until_trial(ack_soon);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(ack_soon.posts(false, 1, none, at(0)));
    EXPECT_TRUE(ack_soon.posts(false, 2, none, at(0)));
    ack_soon.waited_long(1, no_clock);  // one keeps the NIC busy
    ack_soon.waited_long(0, no_clock);  // and has asked for its ACK
  }
  EXPECT_EQ(ack_soon.ahead(), 2u);
}

TEST(AckSoon, messages_sent_from_copies_neither_ask_nor_count) {
  AckSoon ack_soon;
  for (uint32_t i = 0; i < 2 * AckSoon::kNeeded; ++i)
    EXPECT_FALSE(ack_soon.posts(true, 1 + i, not_asked, no_clock));
  EXPECT_EQ(until_trial(ack_soon), AckSoon::kNeeded);
  for (uint32_t i = 0; i < 10; ++i) EXPECT_FALSE(ack_soon.posts(true, 1 + i, not_asked, no_clock));
  EXPECT_FALSE(ack_soon.posts(false, 11, none, at(0))) << "the first one of those that are awaited";
  EXPECT_FALSE(ack_soon.posts(true, 12, not_asked, no_clock));
  ack_soon.waited_long(1, at(100));  // nobody waits for the one that is left
  EXPECT_FALSE(ack_soon.posts(true, 2, not_asked, no_clock));
  ack_soon.posts(false, 3, none, at(110));
  EXPECT_EQ(ack_soon.ahead(), 1u) << "a wait";
}

TEST(AckSoon, of_very_many_messages_it_knows_the_newest) {
  AckSoon ack_soon;
  until_trial(ack_soon);
  EXPECT_TRUE(ack_soon.posts(false, 64, none, at(0)));
  EXPECT_TRUE(ack_soon.posts(false, 1000, none, at(0)));
}

// --- programs

/// Message i uses buffer i % buffers. A GPU fills them one after the other.
struct Program {
  uint32_t buffers = 1;
  uint64_t fill = 0;     // takes so long
  uint64_t latency = 0;  // and begins so long after the buffer is free
  uint64_t gap = 0;      // between two operations
};
struct Seen {
  uint64_t time = 0, acks = 0, trusted = 0;
};

/// So many messages. behind(i): how many of its operation follow message i; all receives of an operation are
/// open from its start. `learns`: else each message asks. trusted: messages with ahead() of at least 4.
Seen play(uint32_t messages, const std::function<uint32_t(uint32_t)>& of_operation, bool learns,
          const std::function<Program(uint32_t)>& next) {
  AckSoon ack_soon;
  Seen seen;
  std::vector<uint64_t> freed(messages);  // when the buffer of each message was
  uint64_t now = 0, last = 0, owed_since = 0;
  uint32_t confirmed = 0;
  bool asked = false;
  for (uint32_t i = 0; i < messages; ++i) {
    const auto confirm = [&](uint32_t up_to) {
      ++seen.acks;
      for (; confirmed < up_to; ++confirmed) freed[confirmed] = now;
      if (now - last >= End::kTestsToWaitForCts && learns) ack_soon.waited_long(0, at(now));
      asked = false;
    };
    const Program program = next(i);
    const auto blocked = [&] { return i >= program.buffers && i - program.buffers >= confirmed; };
    const auto ready = [&] {
      uint64_t begins = last + (i == 0 || of_operation(i - 1) == 0 ? program.gap : 0);
      if (i >= program.buffers) begins = std::max(begins, freed[i - program.buffers] + program.latency);
      return std::max(now, begins + program.fill);
    };
    while (confirmed < i) {
      const uint64_t due = asked ? owed_since + End::kTestsToWaitForCts : last + End::kTestsUnlessSoon;
      if (!blocked() && due > ready()) break;
      now = std::max(now, due);
      confirm(i);
    }
    now = last = ready();
    if (confirmed == i) owed_since = now;
    const uint32_t depth = i + 1 - confirmed, behind = of_operation(i);
    const auto open = [&](uint32_t n) { return n <= behind; };
    if (!learns || ack_soon.posts(false, depth, open, at(now))) asked = true;
    seen.trusted += ack_soon.ahead() >= 4;
    if (behind == 0 || depth >= (asked ? End::kMessagesToWaitForCts : End::kMessagesUnlessSoon))
      confirm(i + 1);
  }
  seen.time = now;
  return seen;
}
Seen play(uint32_t messages, uint32_t operation, bool learns, const std::function<Program(uint32_t)>& next) {
  return play(
      messages, [&](uint32_t i) { return operation - i % operation - 1; }, learns, next);
}
Seen play(uint32_t messages, uint32_t operation, bool learns, const Program& program) {
  return play(messages, operation, learns, [&](uint32_t) { return program; });
}

std::string about(const Program& program, uint32_t operation) {
  return std::to_string(operation) + " messages, " + std::to_string(program.buffers) + " buffers, fill " +
         std::to_string(program.fill) + ", latency " + std::to_string(program.latency) + ", gap " +
         std::to_string(program.gap);
}

TEST(Programs, of_all_kinds_lose_little_time_and_write_no_more_acks) {
  constexpr uint32_t kMessages = 30'000;
  for (const uint32_t operation : {4u, 9u, 32u, kMessages})
    for (const uint32_t buffers : {1u, 2u, 3u, 4u, 8u, 1000u})
      for (const uint64_t fill : {0u, 5u, 17u, 40u, 300u, 700u, 1010u, 1100u, 1500u, 5000u})
        for (const uint64_t latency : {0u, 10u, 40u})
          for (const uint64_t gap : {0u, 100u}) {
            const Program program{buffers, fill, latency, gap};
            const Seen with = play(kMessages, operation, true, program);
            const Seen without = play(kMessages, operation, false, program);
            // Of the last messages of an operation all ACKs come with that of the last one.
            const uint64_t least = without.time + kMessages / operation * latency;
            EXPECT_LE(double(with.time), double(least) * 1.05 + 10 * End::kTestsUnlessSoon)
                << about(program, operation);
            EXPECT_LE(with.acks, without.acks + without.acks / 100) << about(program, operation);
          }
}

TEST(Programs, that_change_their_buffers_lose_little_time) {
  constexpr uint32_t kMessages = 100'000;
  for (const uint32_t operation : {4u, 9u, kMessages})
    for (const uint32_t phase : {1u, 2u, 3u, 5u, 10u, 30u, 100u, 300u, 1000u, 5000u, 50000u})
      for (const uint64_t fill : {0u, 20u, 600u})
        for (const uint32_t many : {2u, 3u, 8u, 16u}) {
          const auto next = [&](uint32_t i) { return Program{i / phase % 2 == 0 ? many : 1, fill, 10, 100}; };
          const Seen with = play(kMessages, operation, true, next);
          const Seen without = play(kMessages, operation, false, next);
          EXPECT_LE(double(with.time), double(without.time) * 1.05)
              << phase << " messages with one buffer and with " << about(next(0), operation);
        }
}

// Long operations with many buffers prove that the program has them, and short ones with few wait.
TEST(Programs, that_take_turns_with_operations_of_two_kinds_lose_little_time) {
  constexpr uint32_t kMessages = 200'000;
  for (const uint32_t large : {8u, 16u, 24u, 32u, 64u, 200u})
    for (const uint32_t small : {2u, 3u, 4u, 6u})
      for (const uint32_t few : {1u, 2u})
        for (const uint64_t fill : {0u, 5u, 20u, 100u})
          for (const uint64_t latency : {10u, 300u}) {
            const auto in_small = [&](uint32_t i) { return i % (large + small) >= large; };
            const auto behind = [&](uint32_t i) {
              return (in_small(i) ? large + small : large) - i % (large + small) - 1;
            };
            const auto next = [&](uint32_t i) {
              return in_small(i) ? Program{few, fill, latency, 100} : Program{8, fill, 10, 100};
            };
            const Seen with = play(kMessages, behind, true, next);
            const Seen without = play(kMessages, behind, false, next);
            EXPECT_LE(double(with.time), double(without.time) * 1.1)
                << large << " messages, then " << small << " with " << few << " buffers, fill " << fill
                << ", latency " << latency;
          }
}

// As in the executor of collective/host: receives of the next operation are open, which begins when all ACKs of
// the one before it have come.
TEST(Programs, that_wait_for_the_end_of_an_operation_lose_little_time) {
  constexpr uint32_t kMessages = 200'000;
  for (const uint32_t operation : {1u, 2u, 3u, 5u, 9u, 17u, 33u, 66u, 97u, 130u, 257u})
    for (const uint64_t fill : {0u, 1u, 3u, 5u, 20u, 100u})
      for (const uint64_t latency : {10u, 300u}) {
        const auto open = [](uint32_t) { return 20u; };
        const auto next = [&](uint32_t i) {
          return i % operation == 0 ? Program{1, fill, latency, 0} : Program{8, fill, 10, 0};
        };
        const Seen with = play(kMessages, open, true, next);
        const Seen without = play(kMessages, open, false, next);
        EXPECT_LE(double(with.time), double(without.time) * 1.1)
            << operation << " messages, fill " << fill << ", latency " << latency;
      }
}

TEST(Programs, that_change_at_random_lose_little_time) {
  constexpr uint32_t kMessages = 400'000;
  for (const double change : {0.001, 0.01, 0.1, 0.5}) {
    const auto run = [&](bool learns) {
      std::mt19937 random(7);
      Program program;
      return play(kMessages, 8, learns, [&](uint32_t) {
        if (std::bernoulli_distribution(change)(random)) {
          const uint64_t fill = random() % 200, latency = random() % 20;
          program = {1 + uint32_t(random() % 8), fill, latency, 100};
        }
        return program;
      });
    };
    EXPECT_LE(double(run(true).time), double(run(false).time) * 1.05) << change;
  }
}

// The AllReduce of 1 MiB. With a pause now and then that is longer than the long wait.
TEST(Programs, of_four_messages_have_one_ack_for_each_operation) {
  constexpr uint32_t kOperations = 50'000;
  for (const double mean : {30.0, 100.0, 200.0, 300.0})
    for (const double rare : {0.0, 0.001, 0.01, 0.02}) {
      const auto run = [&](bool learns) {
        std::mt19937 random(7);
        return play(4 * kOperations, 4, learns, [&](uint32_t) {
          const bool is_rare = std::bernoulli_distribution(rare)(random);
          const double pause = std::exponential_distribution<double>(1 / mean)(random);
          return Program{8, is_rare ? 5000 : uint64_t(pause), 10, 0};
        });
      };
      const Seen with = run(true), without = run(false);
      EXPECT_LE(double(with.time), 1.0001 * double(without.time)) << "nobody waits";
      EXPECT_GE(without.acks, kOperations * 2u);
      const double longer = rare + std::exp(-1024 / mean);
      EXPECT_LE(with.acks, without.acks) << mean << ", " << rare;
      if (longer > 0.015) continue;  // too many pauses in which a program may have waited
      EXPECT_LE(double(with.acks) / kOperations, 1.05 + 5 * longer) << mean << ", " << rare;
      EXPECT_GE(double(with.trusted) / (4 * kOperations), 0.9) << mean << ", " << rare;
    }
}

// Then there is an ACK in each pause, whether the wait is long or not.
TEST(Programs, of_four_messages_with_pauses_longer_than_the_wait_write_no_more_acks) {
  const Program program{8, 3 * End::kTestsUnlessSoon, 10, 0};
  const Seen with = play(40'000, 4, true, program);
  const Seen without = play(40'000, 4, false, program);
  EXPECT_EQ(with.time, without.time);
  EXPECT_EQ(with.acks, without.acks);
}

}  // namespace
}  // namespace r2ccl
