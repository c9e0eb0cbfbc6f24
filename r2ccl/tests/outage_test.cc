// SPDX-License-Identifier: Apache-2.0
// Control connections that break: while all is well, while a rail fails, and for good.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/cutter.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/sanitizer.h"
#include "r2ccl/tests/testing/traffic.h"

namespace {

/// A firewall before the peer's host: connections of this process are refused.
struct Firewall {
  inline static std::atomic<bool> up{false};
  inline static std::atomic<int> refused{0};
};

}  // namespace

extern "C" int connect(int fd, const sockaddr* to, socklen_t length) {
  static auto* const real = reinterpret_cast<decltype(&connect)>(dlsym(RTLD_NEXT, "connect"));
  if (!Firewall::up || to->sa_family != AF_INET) return real(fd, to, length);
  ++Firewall::refused;
  errno = ECONNREFUSED;
  return -1;
}

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

void receive_while(const Link& link, std::chrono::milliseconds pause, bool migrations = false) {
  receive_with(link, 0, [&](Net& n, Channel* channel) {
    Cutter cutter(pause, 1, [&] { return migrations && channel->status() == Status::kMigrating; });
    receive_rounds(n, channel, link);
    EXPECT_GT(cutter.stop(), 0);
    if (migrations) {
      EXPECT_GT(cutter.cut_then(), 0) << "in the middle of a migration";
    }
  });
}

void send_while(const Link& link, std::chrono::milliseconds pause, bool migrations = false) {
  send_with(link, 0, [&](Net& n, Channel* channel) {
    Cutter cutter(pause, 1, [&] { return migrations && channel->status() == Status::kMigrating; });
    send_rounds(n, channel, link);
    EXPECT_GT(cutter.stop(), 0);
    if (migrations) {
      EXPECT_GT(cutter.cut_then(), 0) << "in the middle of a migration";
    }
  });
}

TEST(Outage, data_goes_on_and_the_connection_comes_back) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_rounds(n, channel, link); });
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) { send_while(link, 20ms); });
  relay_handle(receiver, sender);
  const auto end = Clock::now() + 300ms;
  run_rounds(receiver, sender, [&] { return Clock::now() > end; });
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
}

// Rails fail at random moments on both sides, and both sides' connections are cut every few milliseconds:
// many migrations lose their connection in the middle.
TEST(Outage, migrations_survive_the_loss_of_their_connection) {
  const auto fabric = make_fabric(2, 3);
  const Environment quick{{"R2CC_FAILBACK_MS", "5"}, {"R2CC_FAIL_BOUND_MS", "20000"}};
  const Child receiver = start(fabric, 1, quick, [](const Link& link) { receive_while(link, 7ms, true); });
  const Child sender = start(fabric, 0, quick, [](const Link& link) { send_while(link, 11ms, true); });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  faulting_net.start([random = std::mt19937(7)](FaultingNet& s) mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + random() % 15));
    s.strike(int(random() % 2), int(random() % 3), 16);
  });
  const auto end = Clock::now() + 300ms;
  run_rounds(receiver, sender, [&] { return Clock::now() > end && faulting_net.broken() > 20; });
  EXPECT_EQ(sender.wait(120s), 0);
  faulting_net.stop();
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_GT(faulting_net.broken(), 20);
}

// The connection stands at both ends and carries nothing in either direction; then the rail fails.
TEST(Outage, a_migration_goes_on_although_its_connection_swallows_everything) {
  constexpr auto kBound = 5s;  // of silence and of another connection; the kernel's own is 10 s or more
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) {
      EXPECT_GT(swallow_connections(), 0);
      receive_rounds(n, channel, link);
    });
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) {
      EXPECT_GT(swallow_connections(), 0);
      send_rounds(n, channel, link);
    });
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  Clock::time_point struck;
  Clock::duration took{};
  run_rounds(receiver, sender, [&, rounds = 0]() mutable {
    if (rounds == 1) took = Clock::now() - struck;
    struck = Clock::now();
    if (rounds == 0) faulting_net.strike(0, 0, 16);
    return ++rounds == 2;
  });
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
  EXPECT_GE(faulting_net.broken(), 1);
  EXPECT_LT(took, kBound * kSanitizerFactor);
  std::printf("the round took %lld ms\n", static_cast<long long>(took / 1ms));
}

/// Fails with an error of a dead peer that comes soon; `what` is found in it.
void expect_failed(Channel* channel, const std::string& what) {
  const auto start = Clock::now();
  while (channel->status() != Status::kFailed && Clock::now() < start + 60s) std::this_thread::sleep_for(1ms);
  ASSERT_EQ(channel->status(), Status::kFailed);
  EXPECT_EQ(channel->error().code, ErrorCode::kPeerGone);
  EXPECT_NE(channel->error().message.find(what), std::string::npos) << channel->error().message;
}

/// … and is closed then.
void expect_gone(Net& net, Channel* channel, const std::string& what) {
  expect_failed(channel, what);
  EXPECT_TRUE(net.close(channel).ok());
}

TEST(Outage, a_killed_sender_is_told_from_a_broken_connection) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive_messages(*n, channel, 0, 50);
    expect_gone(*n, channel, "that process ended");
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*n, channel, 0, 50);
    raise(SIGKILL);
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 128 + SIGKILL);
  EXPECT_EQ(receiver.wait(90s), 0);
}

// A child of the dead process lives on, with copies of what was open at its birth: it must not answer.
TEST(Outage, a_killed_receiver_with_a_living_child_is_gone_all_the_same) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive_messages(*n, channel, 0, 50);
    const pid_t child = fork();
    if (child == 0) {
      sleep(20);
      _exit(0);
    }
    link.send(&child, sizeof child);
    raise(SIGKILL);
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*n, channel, 0, 50);
    expect_gone(*n, channel, "that process ended");
  });
  relay_handle(receiver, sender);
  pid_t grandchild = 0;
  ASSERT_TRUE(receiver.link.receive(&grandchild, sizeof grandchild));
  const auto start = Clock::now();
  EXPECT_EQ(receiver.wait(60s), 128 + SIGKILL);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_LT(Clock::now() - start, 15s);
  EXPECT_EQ(kill(grandchild, SIGKILL), 0) << "it should have been there all the time";
}

// Idle, and while messages move.
TEST(Outage, a_host_that_refuses_connections_for_a_moment_ends_no_channel) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_messages(n, channel, 0, 300); });
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) {
      send_messages(n, channel, 0, 50);
      Firewall::up = true;
      EXPECT_GT(cut_connections(), 0);
      std::this_thread::sleep_for(500ms);
      send_messages(n, channel, 50, 200);
      EXPECT_GE(Firewall::refused, 5);
      Firewall::up = false;
      std::this_thread::sleep_for(200ms);
      send_messages(n, channel, 200, 300);
      EXPECT_EQ(channel->status(), Status::kReady);
    });
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// Neither can connect again: for want of descriptors, as it were of a network.
TEST(Outage, a_peer_that_cannot_be_reached_is_an_error_within_the_bound) {
  const auto fabric = make_fabric(2, 2);
  const Environment brief{{"R2CC_CONTROL_MS", "300"}};
  const Child receiver = start(fabric, 1, brief, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive_messages(*n, channel, 0, 50);
    expect_gone(*n, channel, "");
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, brief, [](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*n, channel, 0, 50);
    rlimit none{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &none), 0);
    none.rlim_cur = 3;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_GT(cut_connections(), 0);
    expect_gone(*n, channel, "could not be reached for 300 ms");
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// The same while messages move: the job goes on as long as it needs no control message.
TEST(Outage, a_peer_that_cannot_be_reached_is_no_error_while_data_moves) {
  const auto fabric = make_fabric(2, 2);
  const Environment brief{{"R2CC_CONTROL_MS", "300"}};
  constexpr auto kAway = 4 * 300ms * kSanitizerFactor;
  const Child receiver = start(fabric, 1, brief, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_rounds(n, channel, link); });
  });
  const Child sender = start(fabric, 0, brief, [&](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) {
      rlimit limit{};
      ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
      const rlim_t usual = limit.rlim_cur;
      const auto end = Clock::now() + kAway;
      uint64_t first = 0;
      do {
        send_messages(n, channel, first, first + kRound);
        if (first == 0) {
          limit.rlim_cur = 3;
          ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
          EXPECT_GT(cut_connections(), 0);
        } else if (limit.rlim_cur != usual && Clock::now() > end) {
          limit.rlim_cur = usual;
          ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        }
        first += kRound;
      } while (!testing::Test::HasFailure() && one_more_round(link));
      EXPECT_EQ(limit.rlim_cur, usual) << "it ended before the connection could come back";
    });
  });
  relay_handle(receiver, sender);
  const auto end = Clock::now() + 2 * kAway;
  run_rounds(receiver, sender, [&] { return Clock::now() > end; });
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// A receiver waits for its sender to connect again, and has no other word from it when that one's end is gone
// while its process lives on. The process closes what the receiver connects to it, ten seconds later each
// time.
TEST(Outage, a_sender_that_has_given_the_channel_up_unheard_is_an_error_though_its_process_lives) {
  const auto fabric = make_fabric(2, 2);
  // A process that is slow must not be taken for one that cannot be reached.
  const std::string bound = kSanitizerFactor > 1 ? "3500" : "2300";
  const Environment brief{{"R2CC_CONTROL_MS", bound}};
  const Child receiver = start(fabric, 1, brief, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive_messages(*n, channel, 0, 50);
    expect_gone(*n, channel, "has not restored it");
    char word = 1;
    link.send(&word, 1);
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, brief, [&bound](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*n, channel, 0, 50);
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlim_t usual = std::exchange(limit.rlim_cur, 3);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_GT(cut_connections(), 0);
    expect_failed(channel, "could not be reached for " + bound + " ms");
    // It does not try to tell the peer why any more. Closed before its next turn it would, for 15 s.
    std::this_thread::sleep_for(300ms * kSanitizerFactor);
    limit.rlim_cur = usual;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    char word = 0;
    EXPECT_TRUE(link.receive(&word, 1));
    EXPECT_TRUE(n->close(channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 0;
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// Handlers that were registered before the plugin was loaded run after its service thread has ended.
TEST(Outage, channels_that_are_closed_when_the_process_exits_do_not_keep_it) {
  static Net* n = nullptr;
  static std::vector<Channel*> channels;
  const auto fabric = make_fabric(2, 2);
  const auto end = [](const Link& link, bool receives) {
    std::atexit([] {
      const auto start = Clock::now();
      for (Channel* channel : channels) static_cast<void>(n->close(channel));
      if (Clock::now() - start > 4s) _exit(9);
    });
    n = net();
    for (int i = 0; i < 4; ++i) {
      Listener* listener = nullptr;
      channels.push_back(receives ? accept_one(*n, 0, link, listener) : connect_one(*n, 0, link));
      ASSERT_NE(channels.back(), nullptr);
    }
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  const Child receiver = start(fabric, 1, {}, [&](const Link& link) { end(link, true); });
  const Child sender = start(fabric, 0, {}, [&](const Link& link) { end(link, false); });
  for (int i = 0; i < 4; ++i) relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

}  // namespace
}  // namespace r2ccl
