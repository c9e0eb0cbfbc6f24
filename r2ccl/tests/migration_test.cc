// SPDX-License-Identifier: Apache-2.0
// Migration under failures that come when they like: at once on both sides, at connect, in the middle of a
// migration, at close. Queue pairs are broken from outside (faulting_net.h); every byte is compared, and each
// test asserts that queue pairs were broken at all.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/mute.h"
#include "r2ccl/tests/testing/swallow.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr const char* kFiveSeconds = "5000";
const Environment kQuickFailback{
    {"R2CC_FAILBACK_MS", "5"}, {"R2CC_FAILBACK_MAX_MS", "20"}, {"R2CC_FAIL_BOUND_MS", kFiveSeconds}};

/// What the proofs of a standby stay below, and any traffic does not: bytes that a NIC sends.
constexpr uint64_t kNoMigration = 200'000;

/// There is traffic behind whatever was done before.
std::function<bool()> three_rounds() {
  return [rounds = 0]() mutable { return ++rounds >= 3; };
}

/// A pair that carries traffic, round after round, until it has been sabotaged enough; the receiver has then
/// compared all of it.
struct Pair {
  Pair(const vhca::FabricHost& fabric, const Environment& environment)
      : receiver(start(fabric, 1, environment,
                       [](const Link& link) {
                         receive_with(link, 0, [&](Net& n, Channel* c) { receive_rounds(n, c, link); });
                       })),
        sender(start(fabric, 0, environment, [](const Link& link) {
          send_with(link, 0, [&](Net& n, Channel* c) { send_rounds(n, c, link); });
        })) {}
  /// Carries on until `enough`; both then end well, each within `bound`.
  void expect_exact(std::chrono::seconds bound, const std::function<bool()>& enough = three_rounds()) const {
    run_rounds(receiver, sender, enough);
    EXPECT_EQ(sender.wait(bound), 0);
    EXPECT_EQ(receiver.wait(bound), 0);
  }
  Child receiver, sender;
};

/// Waits until a NIC has carried `bytes` more: the traffic is under way.
void wait_for_traffic(const vhca::FabricHost& fabric, size_t node, size_t nic, uint64_t bytes) {
  const uint64_t from = fabric.counters(node, nic).tx_bytes;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (fabric.counters(node, nic).tx_bytes < from + bytes) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no traffic";
    std::this_thread::yield();
  }
}

TEST(Migration, both_ends_that_notice_at_once_make_one_migration) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, kQuickFailback);
  relay_handle(pair.receiver, pair.sender);
  wait_for_traffic(fabric, 0, 0, 8 << 20);
  faulting_net.strike(0, 0);
  faulting_net.strike(1, 0);
  EXPECT_GE(faulting_net.broken(), 2);
  pair.expect_exact(60s);
}

TEST(Migration, survives_failures_at_random_moments_on_any_nic_of_either_side) {
  const auto fabric = make_fabric(2, 3);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, kQuickFailback);
  relay_handle(pair.receiver, pair.sender);
  wait_for_traffic(fabric, 0, 0, 1 << 20);
  faulting_net.start([random = std::minstd_rand(4711)](FaultingNet& s) mutable {
    // Often enough that many strike a migration, and a replay, that is under way.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    s.strike(int(random() % 2), int(random() % 3));
    if (random() % 3 == 0) s.strike(int(random() % 2), int(random() % 3));
  });
  pair.expect_exact(120s, [&] { return faulting_net.broken() >= 100; });
  faulting_net.stop();
  EXPECT_GE(faulting_net.broken(), 100);
}

/// Both ends, or one, never see a flush: their fences are destroyed queue pairs.
void survive_without_flushes(bool mute_receiver, bool mute_sender) {
  const auto fabric = make_fabric(2, 3);
  FaultingNet faulting_net(fabric);
  const Environment environment{
      {"R2CC_FENCE_MS", "100"}, {"R2CC_FAILBACK_MS", "5"}, {"R2CC_FAILBACK_MAX_MS", "20"}};
  const Child receiver = start(fabric, 1, environment, [=](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) {
      std::optional<Mute> mute;
      if (mute_receiver) mute.emplace(channel->context());
      receive_rounds(n, channel, link);
      if (mute) {
        EXPECT_GE(mute->hidden(), 10u);
      }
    });
  });
  const Child sender = start(fabric, 0, environment, [=](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) {
      std::optional<Mute> mute;
      if (mute_sender) mute.emplace(channel->context());
      send_rounds(n, channel, link);
      if (mute) {
        EXPECT_GE(mute->hidden(), 2u);
      }
    });
  });
  relay_handle(receiver, sender);
  wait_for_traffic(fabric, 0, 0, 1 << 20);
  faulting_net.start([random = std::minstd_rand(99)](FaultingNet& s) mutable {
    s.strike(int(random() % 2), int(random() % 3));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
  });
  run_rounds(receiver, sender, [&] { return faulting_net.broken() >= 20; });
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  faulting_net.stop();
  EXPECT_GE(faulting_net.broken(), 20);
}

TEST(Migration, a_receiver_whose_nic_reports_no_flush_fences_by_destroying) {
  survive_without_flushes(true, false);
}

TEST(Migration, a_sender_whose_nic_reports_no_flush_fences_by_destroying) {
  survive_without_flushes(false, true);
}

TEST(Migration, nobody_s_nic_reports_a_flush) { survive_without_flushes(true, true); }

TEST(Migration, one_nic_that_always_fails_is_left_alone) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, kQuickFailback);
  relay_handle(pair.receiver, pair.sender);
  wait_for_traffic(fabric, 0, 0, 8 << 20);
  faulting_net.start([](FaultingNet& s) {
    s.strike(1, 0);
    std::this_thread::sleep_for(100us);
  });
  pair.expect_exact(60s, [&, three = three_rounds()] { return three() && faulting_net.broken() >= 1; });
  EXPECT_GE(faulting_net.broken(), 1);
}

TEST(Migration, a_nic_that_fails_at_connect_is_passed_over) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, kQuickFailback);  // before any thread: they fork
  faulting_net.start([](FaultingNet& s) {
    s.strike(0, 0);
    std::this_thread::sleep_for(50us);
  });
  relay_handle(pair.receiver, pair.sender);
  pair.expect_exact(60s);
  EXPECT_GE(faulting_net.broken(), 1);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes, 0u);
}

TEST(Migration, all_nics_out_for_a_while_is_survived) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, kQuickFailback);
  relay_handle(pair.receiver, pair.sender);
  wait_for_traffic(fabric, 0, 0, 8 << 20);
  const auto until = std::chrono::steady_clock::now() + 300ms;
  while (std::chrono::steady_clock::now() < until) {
    faulting_net.strike(0, 0);
    faulting_net.strike(0, 1);
  }
  EXPECT_GE(faulting_net.broken(), 2);
  pair.expect_exact(60s);
}

TEST(Migration, all_nics_out_for_good_is_an_error_within_the_bound_that_names_them) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Environment environment{{"R2CC_FAIL_BOUND_MS", "500"}};
  const auto expect_reason = [](const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kAllPathsDown) << error.message;
    for (const char* words :
         {"vhca0", "vhca1", "the peer process is alive", "has worked for 500 ms", " ms ago)"})
      EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
  };
  // One message at most can get through between two strikes: there is only one clear-to-send line.
  const Child receiver = start(fabric, 1, environment, [&](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    uint8_t buffer[64];
    auto reg = net()->reg(channel, buffer, sizeof buffer);
    Request* open = post_receive(*net(), channel, buffer, sizeof buffer, *reg);
    ASSERT_NE(open, nullptr);
    char word = 1;
    link.send(&word, 1);
    const auto deadline = std::chrono::steady_clock::now() + 25s;
    for (;;) {
      auto outcome = net()->test(open);
      if (!outcome) expect_reason(outcome.error());
      if (!outcome || outcome->done) break;
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "neither an error nor a path";
    }
    ASSERT_TRUE(link.receive(&word, 1));  // the sender has ended
    EXPECT_TRUE(net()->close(channel).ok());
  });
  const Child sender = start(fabric, 0, environment, [&](const Link& link) {
    Channel* channel = connect_one(*net(), 0, link);
    ASSERT_NE(channel, nullptr);
    char word = 1;
    link.send(&word, 1);
    ASSERT_TRUE(link.receive(&word, 1));  // the strikes have begun
    uint8_t buffer[64]{};
    auto reg = net()->reg(channel, buffer, sizeof buffer);
    const auto begin = std::chrono::steady_clock::now();
    const auto deadline = begin + 20s;
    for (;;) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no error";
      Result<Request*> request = net()->isend(channel, buffer, sizeof buffer, *reg);
      while (request && *request) {
        auto outcome = net()->test(*request);
        if (!outcome) request = outcome.error();
        if (!outcome || outcome->done) break;
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no error";
      }
      if (request) continue;
      expect_reason(request.error());
      const auto took = std::chrono::steady_clock::now() - begin;
      EXPECT_GE(took, 500ms);
      EXPECT_LT(took, 500ms + 1500ms) << "on a machine that others use, too";
      break;
    }
    EXPECT_TRUE(net()->close(channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 0;
  ASSERT_TRUE(sender.link.receive(&word, 1));
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  faulting_net.start([](FaultingNet& s) {
    s.strike(0, 0);
    s.strike(0, 1);
  });
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
  receiver.link.send(&word, 1);
  EXPECT_EQ(receiver.wait(), 0);
  EXPECT_GE(faulting_net.broken(), 2);
}

// A switch whose MTU is smaller than the ports': words pass, messages vanish.
TEST(Migration, a_rail_that_carries_words_but_no_packets_is_left_and_not_returned_to) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, kQuickFailback);
  relay_handle(pair.receiver, pair.sender);
  wait_for_traffic(fabric, 0, 0, 8 << 20);
  faulting_net.make_narrow(1, 0, 1024);
  faulting_net.strike(0, 0);  // sooner than its retries
  wait_for_traffic(fabric, 0, 1, 4 << 20);
  const uint64_t before = fabric.counters(0, 0).tx_bytes;
  pair.expect_exact(60s, three_rounds());
  EXPECT_LT(fabric.counters(0, 0).tx_bytes - before, 1u << 20) << "traffic went back there";
}

// Its retries would take half a minute, and a queue pair that stands still has 20 s: the second probe, a
// whole packet, tells sooner.
TEST(Migration, a_rail_that_carries_words_but_no_packets_fails_its_second_probe) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric,
                  {{"NCCL_IB_TIMEOUT", "20"}, {"NCCL_IB_RETRY_CNT", "7"}, {"R2CC_STUCK_MS", "20000"}});
  relay_handle(pair.receiver, pair.sender);
  wait_for_traffic(fabric, 0, 0, 8 << 20);
  const auto struck = std::chrono::steady_clock::now();
  faulting_net.make_narrow(1, 0, 1024);
  pair.expect_exact(15s, three_rounds());
  EXPECT_LT(std::chrono::steady_clock::now() - struck, 10s);
}

TEST(Migration, rails_that_carry_words_but_no_packets_are_all_paths_down) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Environment environment{{"R2CC_FAIL_BOUND_MS", "500"}, {"NCCL_IB_TIMEOUT", "10"}};
  const Child receiver = start(fabric, 1, environment, [&](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive_messages(*net(), channel, 0, 50);
    std::vector<uint8_t> buffer(1 << 20);
    auto reg = net()->reg(channel, buffer.data(), buffer.size());
    Request* open = post_receive(*net(), channel, buffer.data(), buffer.size(), *reg);
    ASSERT_NE(open, nullptr);
    char word = 1;
    link.send(&word, 1);
    const auto deadline = std::chrono::steady_clock::now() + 40s;
    for (;;) {
      auto outcome = net()->test(open);
      if (!outcome) break;
      ASSERT_FALSE(outcome->done);
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no error";
    }
    ASSERT_TRUE(link.receive(&word, 1));  // the sender has ended
    EXPECT_TRUE(net()->close(channel).ok());
  });
  const Child sender = start(fabric, 0, environment, [&](const Link& link) {
    Channel* channel = connect_one(*net(), 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*net(), channel, 0, 50);
    char word = 1;
    link.send(&word, 1);
    ASSERT_TRUE(link.receive(&word, 1));  // the rails are narrow
    std::vector<uint8_t> buffer(1 << 20);
    auto reg = net()->reg(channel, buffer.data(), buffer.size());
    Result<Request*> request = nullptr;
    const auto begin = std::chrono::steady_clock::now();
    while (request && !*request) request = net()->isend(channel, buffer.data(), buffer.size(), *reg);
    while (request) {
      auto outcome = net()->test(*request);
      if (!outcome) request = outcome.error();
      ASSERT_TRUE(!outcome || !outcome->done);
      ASSERT_LT(std::chrono::steady_clock::now(), begin + 40s) << "no error";
    }
    EXPECT_EQ(request.error().code, ErrorCode::kAllPathsDown) << request.error().message;
    EXPECT_LT(std::chrono::steady_clock::now(), begin + 15s);
    EXPECT_TRUE(net()->close(channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 0;
  ASSERT_TRUE(sender.link.receive(&word, 1));
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  for (const int nic : {0, 1}) faulting_net.make_narrow(1, nic, 1024);
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
  receiver.link.send(&word, 1);
  EXPECT_EQ(receiver.wait(), 0);
}

// The virtual HCA refuses a queue pair whose MTU is larger than the port's.
TEST(Migration, a_port_that_comes_back_with_another_mtu_is_used_with_that) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, kQuickFailback);
  relay_handle(pair.receiver, pair.sender);
  wait_for_traffic(fabric, 0, 0, 8 << 20);
  faulting_net.set_mtu(0, 0, 1024);
  EXPECT_GT(faulting_net.strike(0, 0), 0);
  wait_for_traffic(fabric, 0, 1, fabric.counters(0, 1).tx_bytes + 1);
  const uint64_t before = fabric.counters(0, 0).tx_bytes;
  pair.expect_exact(60s, [&, three = three_rounds()] {
    return three() && fabric.counters(0, 0).tx_bytes > before + (4 << 20);
  });
  EXPECT_GT(fabric.counters(0, 0).tx_bytes, before + (4 << 20)) << "it was never used again";
}

/// A pair that carries some messages, is idle until `meanwhile` has returned, and carries some more.
template <typename Meanwhile>
void carry_pause_carry(const vhca::FabricHost& fabric, const Environment& environment,
                       std::chrono::milliseconds bound, Meanwhile meanwhile) {
  const auto pause = [](const Link& link) {
    char word = 1;
    link.send(&word, 1);
    ASSERT_TRUE(link.receive(&word, 1));
  };
  const Child receiver = start(fabric, 1, environment, [&](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive_messages(*net(), channel, 0, 50);
    pause(link);
    receive_messages(*net(), channel, 50, 100);
    EXPECT_TRUE(net()->close(channel).ok());
  });
  const Child sender = start(fabric, 0, environment, [&](const Link& link) {
    Channel* channel = connect_one(*net(), 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*net(), channel, 0, 50);
    pause(link);
    const auto before = std::chrono::steady_clock::now();
    send_messages(*net(), channel, 50, 100);
    EXPECT_LT(std::chrono::steady_clock::now() - before, bound);
    EXPECT_TRUE(net()->close(channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 0;
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  ASSERT_TRUE(sender.link.receive(&word, 1));
  meanwhile();
  receiver.link.send(&word, 1);
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// NCCL's own retry timers, 34 s, would be all that notices if nobody heeded the event.
TEST(Migration, a_queue_pair_that_dies_while_nothing_is_open_is_replaced_at_once) {
  for (const int node : {0, 1}) {
    const auto fabric = make_fabric(2, 2);
    FaultingNet faulting_net(fabric);
    carry_pause_carry(fabric, {}, 5s, [&] { EXPECT_GE(faulting_net.strike(node, 0, 16), 1); });
  }
}

TEST(Migration, an_outage_while_nothing_is_wanted_is_no_error_however_long) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  carry_pause_carry(fabric, {{"R2CC_FAIL_BOUND_MS", "100"}}, 20s, [&] {
    const auto until = std::chrono::steady_clock::now() + 1s;
    while (std::chrono::steady_clock::now() < until) {
      faulting_net.strike(0, 0);
      faulting_net.strike(0, 1);
      std::this_thread::sleep_for(50us);
    }
    EXPECT_GE(faulting_net.broken(), 2);
  });
}

TEST(Migration, the_only_nic_with_a_broken_queue_pair_is_used_again_soon) {
  const auto fabric = make_fabric(2, 1);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, {{"R2CC_FAIL_BOUND_MS", "400"}});
  relay_handle(pair.receiver, pair.sender);
  wait_for_traffic(fabric, 0, 0, 4 << 20);
  EXPECT_GE(faulting_net.strike(0, 0), 1);
  pair.expect_exact(30s);
}

// What ncclCommAbort does: ends close at once, whatever is open and whatever the other side is doing.
TEST(Migration, closing_in_the_middle_of_one_ends_both_sides_within_bounds) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  auto* migrating = static_cast<std::atomic<int>*>(  // ends that were closed in the middle of one
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(migrating, MAP_FAILED);
  const auto abort_soon = [&](Channel* channel, const Link& link, bool sends) {
    Net& n = *net();
    std::vector<uint8_t> buffer(kOpen * 4096);
    auto reg = n.reg(channel, buffer.data(), buffer.size());
    ASSERT_TRUE(reg.ok());
    for (int i = 0; i < 4;) {  // stay open: the receiver never tests, the sender has nothing confirmed
      auto request = sends ? n.isend(channel, buffer.data(), 4096, *reg)
                           : n.irecv(channel, buffer.data() + i * 4096, 4096, *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      if (*request) ++i;
    }
    char word = 1;
    link.send(&word, 1);
    ASSERT_TRUE(link.receive(&word, 1));  // the fabric has been struck in this moment
    const auto before = std::chrono::steady_clock::now();
    *migrating += channel->status() == Status::kMigrating;
    EXPECT_TRUE(n.dereg(channel, *reg).ok());
    EXPECT_TRUE(n.close(channel).ok());
    EXPECT_LT(std::chrono::steady_clock::now() - before, 4s);
  };
  for (int round = 0; round < 8; ++round) {
    const Child receiver = start(fabric, 1, kQuickFailback, [&](const Link& link) {
      Listener* listener = nullptr;
      Channel* channel = accept_one(*net(), 0, link, listener);
      ASSERT_NE(channel, nullptr);
      abort_soon(channel, link, false);
    });
    const Child sender = start(fabric, 0, kQuickFailback, [&](const Link& link) {
      Channel* channel = connect_one(*net(), 0, link);
      ASSERT_NE(channel, nullptr);
      abort_soon(channel, link, true);
    });
    relay_handle(receiver, sender);
    char word = 0;
    ASSERT_TRUE(receiver.link.receive(&word, 1));
    ASSERT_TRUE(sender.link.receive(&word, 1));
    const int before = faulting_net.broken();
    faulting_net.strike(0, 0);
    if (round % 2 == 0) faulting_net.strike(1, 0);
    if (round >= 5)  // … or again and again: it comes to no end
      faulting_net.start([](FaultingNet& s) {
        s.strike(0, 0);
        s.strike(0, 1);
      });
    std::this_thread::sleep_for(std::chrono::microseconds(50 * round * round));
    receiver.link.send(&word, 1);
    sender.link.send(&word, 1);
    EXPECT_EQ(sender.wait(20s), 0);
    EXPECT_EQ(receiver.wait(20s), 0);
    faulting_net.stop();
    EXPECT_GT(faulting_net.broken(), before);
  }
  EXPECT_GT(migrating->load(), 0);
  munmap(migrating, 4096);
  EXPECT_EQ(fabric.usage().queue_pairs, 0u);
}

TEST(Channel, a_peer_that_closes_while_receives_are_open_is_an_error_within_bounds) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    uint8_t buffer[64];
    auto reg = net()->reg(channel, buffer, sizeof buffer);
    Request* open = post_receive(*net(), channel, buffer, sizeof buffer, *reg);
    ASSERT_NE(open, nullptr);
    char word = 1;
    link.send(&word, 1);
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    for (;;) {
      auto outcome = net()->test(open);
      if (!outcome) {
        EXPECT_EQ(outcome.error().code, ErrorCode::kPeerGone) << outcome.error().message;
        EXPECT_NE(outcome.error().message.find("closed its end"), std::string::npos)
            << outcome.error().message;
        break;
      }
      ASSERT_FALSE(outcome->done);
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "hangs";
    }
    EXPECT_TRUE(net()->close(channel).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Channel* channel = connect_one(*net(), 0, link);
    ASSERT_NE(channel, nullptr);
    char word = 0;
    ASSERT_TRUE(link.receive(&word, 1));
    EXPECT_TRUE(net()->close(channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 0;
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

TEST(Channel, an_acknowledgement_does_not_wait_for_an_owner_who_tests_no_more) {
  const auto fabric = make_fabric(2, 2);
  constexpr size_t kBytes = 2 * wire::kCopiedBytes;  // smaller ones are not waited for
  constexpr int kMessages = 6;                       // one receive more stays open, and nobody tests it
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    std::array<std::array<uint8_t, kBytes>, kMessages + 1> buffer{};
    auto reg = n->reg(channel, buffer.data(), sizeof buffer);
    std::array<Request*, kMessages + 1> open{};
    for (size_t i = 0; i < open.size(); ++i)
      open[i] = post_receive(*n, channel, buffer[i].data(), kBytes, *reg);
    for (size_t i = 0; i < kMessages; ++i)
      for (bool done = false; !done;) {
        auto outcome = n->test(open[i]);
        ASSERT_TRUE(outcome.ok()) << outcome.error().message;
        done = outcome->done;
      }
    char word = 0;
    ASSERT_TRUE(link.receive(&word, 1));  // comes when the sender has all its buffers back
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    const std::array<uint8_t, kBytes> words{1};
    auto reg = n->reg(channel, const_cast<uint8_t*>(words.data()), kBytes);
    for (int i = 0; i < kMessages; ++i) {
      Request* request = nullptr;
      while (!request) {
        auto posted = n->isend(channel, const_cast<uint8_t*>(words.data()), kBytes, *reg);
        ASSERT_TRUE(posted.ok()) << posted.error().message;
        request = *posted;
      }
      const auto deadline = std::chrono::steady_clock::now() + 10s;
      for (bool done = false; !done;) {
        auto outcome = n->test(request);
        ASSERT_TRUE(outcome.ok()) << outcome.error().message;
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "message " << i << " is not acknowledged";
        done = outcome->done;
      }
    }
    char told = 1;
    link.send(&told, 1);
    EXPECT_TRUE(link.receive(&told, 1));
    EXPECT_TRUE(n->close(channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 1;
  ASSERT_TRUE(sender.link.receive(&word, 1));
  receiver.link.send(&word, 1);
  EXPECT_EQ(receiver.wait(), 0);
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
}

// Clear-to-send lines and acknowledgements that vanish without any error, on a NIC that works.
TEST(Channel, lost_lines_and_acknowledgements_are_repeated) {
  const auto fabric = make_fabric(2, 2);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}, {"R2CC_STUCK_MS", "100"}};
  const Child receiver = start(fabric, 1, impatient, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    const Swallow swallow(channel->context(), 20);
    receive_messages(*n, channel, 0, 1000);
    EXPECT_GE(swallow.swallowed(), 10u);
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, impatient, [](const Link& link) { send_all(link, 1000); });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_LT(fabric.counters(0, 1).tx_bytes, kNoMigration)
      << "repeated by a migration, which is not the point";
}

TEST(Channel, waiting_for_long_on_a_rail_that_works_is_no_failure) {
  const auto fabric = make_fabric(2, 2);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}, {"R2CC_STUCK_MS", "100"}};
  const Child receiver = start(fabric, 1, impatient, [](const Link& link) { receive_all(link, 400); });
  const Child sender = start(fabric, 0, impatient, [](const Link& link) {
    Channel* channel = connect_one(*net(), 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*net(), channel, 0, 200);
    std::this_thread::sleep_for(1500ms);
    send_messages(*net(), channel, 200, 400);
    EXPECT_TRUE(net()->close(channel).ok());
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
  EXPECT_LT(fabric.counters(0, 1).tx_bytes, kNoMigration);
}

TEST(Channel, a_fork_in_the_middle_of_traffic_harms_nobody) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) { receive_all(link, 600); });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*n, channel, 0, 200);
    uint8_t byte = 0;
    auto reg = n->reg(channel, &byte, 1);
    ASSERT_TRUE(reg.ok());
    const pid_t pid = fork();
    if (pid == 0) {  // what a data loader of a training script does, and worse
      auto request = n->isend(channel, &byte, 1, *reg);
      const bool refused = !request && request.error().code == ErrorCode::kAfterFork;
      const int status = refused && n->close(channel).ok() ? 0 : 1;
#if defined(__SANITIZE_ADDRESS__)
      _exit(status);  // what other threads' stacks pointed to counts as leaked in a fork
#else
      exit(status);  // static destructors run
#endif
    }
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    ASSERT_TRUE(n->dereg(channel, *reg).ok());
    send_messages(*n, channel, 200, 600);
    EXPECT_TRUE(n->close(channel).ok());
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

}  // namespace
}  // namespace r2ccl
