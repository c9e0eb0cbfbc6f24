// SPDX-License-Identifier: Apache-2.0
// On which NICs the channels end that have lost their own, and in mode 2 their tiniest messages. Two
// processes with several channels, as NCCL makes them; what each NIC has sent in a round shows who carries
// what.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <thread>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/failing_ports.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kMessages = 90;  // of a channel, in a round

/// Messages number `first` up to `last` (excluded) of a channel.
using Carry = void (*)(Net&, Channel*, uint64_t first, uint64_t last, Slots::Kind);

// In mode 2 each of these travels on one lane, all of a channel's on the same one.
constexpr size_t kTinyWords = 256;
constexpr uint64_t kTinyMessages = 20;  // for each of kMessages

void send_tiny(Net& net, Channel* channel, uint64_t first, uint64_t last, Slots::Kind) {
  carry_words<kTinyWords>(net, channel, first * kTinyMessages, last * kTinyMessages, true);
}
void receive_tiny(Net& net, Channel* channel, uint64_t first, uint64_t last, Slots::Kind) {
  carry_words<kTinyWords>(net, channel, first * kTinyMessages, last * kTinyMessages, false);
}

/// Rounds of verified messages over all channels at the same time, a thread each.
void run_channels(Net& net, const std::vector<Channel*>& channels, const Link& link, Carry carry) {
  uint64_t first = 0;
  do {
    std::vector<std::thread> threads;
    for (Channel* channel : channels)
      threads.emplace_back(
          [&, channel] { carry(net, channel, first, first + kMessages, Slots::Kind::kHost); });
    for (std::thread& thread : threads) thread.join();
    first += kMessages;
  } while (!testing::Test::HasFailure() && one_more_round(link));
}

void receiver_body(const Link& link, const std::vector<int>& homes, Carry receive) {
  Net* n = net();
  ASSERT_NE(n, nullptr);
  std::vector<Channel*> channels;
  for (const int home : homes) {
    Listener* listener = nullptr;
    channels.push_back(accept_one(*n, home, link, listener));
    ASSERT_NE(channels.back(), nullptr);
    EXPECT_TRUE(n->close(listener).ok());
  }
  run_channels(*n, channels, link, receive);
  for (Channel* channel : channels) EXPECT_TRUE(n->close(channel).ok());
}

void sender_body(const Link& link, const std::vector<int>& homes, Carry send) {
  Net* n = net();
  ASSERT_NE(n, nullptr);
  std::vector<Channel*> channels;
  for (const int home : homes) {
    channels.push_back(connect_one(*n, home, link));
    ASSERT_NE(channels.back(), nullptr);
  }
  FailingPorts::watch(channels[0]->context());
  run_channels(*n, channels, link, send);
  for (Channel* channel : channels) EXPECT_TRUE(n->close(channel).ok());
}

/// A process on each of two nodes, with a channel for each of `homes`.
struct Pair {
  Pair(const vhca::FabricHost& fabric, const Environment& environment, const std::vector<int>& homes,
       Carry send = &send_messages, Carry receive = &receive_messages)
      : receiver(
            start(fabric, 1, environment, [=](const Link& link) { receiver_body(link, homes, receive); })),
        sender(start(fabric, 0, environment, [=](const Link& link) { sender_body(link, homes, send); })) {
    for (size_t i = 0; i < homes.size(); ++i) relay_handle(receiver, sender);
  }
  void end() const {
    EXPECT_EQ(sender.wait(120s), 0);
    EXPECT_EQ(receiver.wait(120s), 0);
  }
  Child receiver, sender;
};

/// What each NIC of node 0 has sent since the last call, in channels: what the round's channels send on
/// average is 1.
class Carried {
 public:
  Carried(const vhca::FabricHost& fabric, size_t nics, size_t channels)
      : fabric_(fabric), before_(nics), channels_(double(channels)) {}
  std::vector<double> of_round() {
    std::vector<double> sent(before_.size());
    for (size_t nic = 0; nic < sent.size(); ++nic) {
      const uint64_t now = fabric_.counters(0, nic).tx_bytes;
      sent[nic] = double(now - std::exchange(before_[nic], now));
    }
    const double all = std::accumulate(sent.begin(), sent.end(), 0.0);
    for (double& nic : sent) nic *= channels_ / all;
    return sent;
  }

 private:
  const vhca::FabricHost& fabric_;
  std::vector<uint64_t> before_;
  double channels_;
};

std::string text(const std::vector<double>& carried) {
  std::string out;
  for (const double nic : carried) out += std::to_string(nic).substr(0, 4) + " ";
  return out;
}

/// In a round a channel may have been in two places.
bool at_most(const std::vector<double>& carried, double channels) {
  return *std::max_element(carried.begin(), carried.end()) <= channels + 0.1;
}

const Environment kQuick{
    {"R2CC_FAILBACK_MS", "20"}, {"R2CC_FAILBACK_MAX_MS", "100"}, {"R2CC_FAIL_BOUND_MS", "20000"}};

// NIC 0's backup is NIC 1 and NIC 1's is NIC 2: the two channels look for a way at the same time. Where one
// learns of its backup's end before it loses its own NIC, it has a new standby on NIC 2 already, goes on
// there at once, and is moved.
TEST(Spreading, two_nics_that_die_at_once_get_a_backup_each) {
  FailingPorts::prepare();
  for (const int nics : {4, 8}) {
    const auto fabric = make_fabric(2, nics);
    std::vector<int> homes(static_cast<size_t>(nics));
    std::iota(homes.begin(), homes.end(), 0);
    FaultingNet faulting_net(fabric);
    const Pair pair(fabric, kQuick, homes);
    Carried carried(fabric, homes.size(), homes.size());
    std::vector<double> last;
    int rounds = 0, broken = 0;
    auto struck = std::chrono::steady_clock::now();
    run_rounds(pair.receiver, pair.sender, [&] {
      last = carried.of_round();
      if (++rounds == 1) {
        EXPECT_TRUE(at_most(last, 1)) << text(last);
        broken = FailingPorts::fail(faulting_net, 0, 3);
        struck = std::chrono::steady_clock::now();
      }
      const bool spread = last[0] + last[1] <= 0.1 && at_most(last, 2);
      return rounds >= 4 && (spread || std::chrono::steady_clock::now() - struck > 5s);
    });
    pair.end();
    FailingPorts::mend(faulting_net, 0, 3);
    EXPECT_GE(broken, 4) << "two paths and the standbys on them";
    EXPECT_LE(last[0] + last[1], 0.1) << text(last);
    EXPECT_TRUE(at_most(last, 2)) << text(last);
    if (HasFailure()) return;
  }
}

/// Rounds of several pairs at the same time, until `enough`, or until a child has ended.
void run_pairs(const std::vector<const Pair*>& pairs, const std::function<bool()>& enough) {
  std::vector<const Child*> children;
  for (const Pair* pair : pairs) children.insert(children.end(), {&pair->receiver, &pair->sender});
  for (;;) {
    char word;
    for (const Child* child : children)
      if (!child->link.receive(&word, 1)) return;
    word = enough() ? '.' : '+';
    for (const Child* child : children)
      if (::send(child->link.fd, &word, 1, MSG_NOSIGNAL) != 1) return;
    if (word == '.') return;
  }
}

/// For run_pairs(): whether no NIC carries more than `most` channels, and whether it stays like that, nothing
/// moving any more, for a second, which is ten times the longest wait between two moves.
class EvenForGood {
 public:
  EvenForGood(Carried& carried, double most) : carried_(carried), most_(most) {}
  /// After a round: has that been seen, or is it hopeless?
  bool operator()() {
    last_ = carried_.of_round();
    const auto now = Clock::now();
    const bool even = at_most(last_, most_);
    if (even_since_ && !even) ++relapses_;
    if (!even)
      even_since_.reset();
    else if (!even_since_)
      even_since_ = now;
    return (even_since_ && now - *even_since_ > 1s) || now > until_;
  }
  void expect() const {
    EXPECT_TRUE(even_since_) << "carried last: " << text(last_);
    EXPECT_LE(relapses_, 1) << "channels move to and fro";
  }

 private:
  Carried& carried_;
  double most_;
  std::vector<double> last_;
  std::optional<Clock::time_point> even_since_;
  int relapses_ = 0;
  Clock::time_point until_ = Clock::now() + 20s;
};

Environment with_own_scope(Environment environment) {
  environment["R2CC_NODE_SCOPE"] = "spreading_test " + std::to_string(getpid());
  return environment;
}

// Three NICs die and NIC 3 carries all four channels; when NIC 2 comes back its own channel returns, and of
// the two channels away from home that stay on NIC 3 one moves.
void three_nics_die_and_one_comes_back(const Environment& environment, Carry send, Carry receive) {
  FailingPorts::prepare();
  const auto fabric = make_fabric(2, 4);
  FaultingNet faulting_net(fabric);
  const Pair pair(fabric, with_own_scope(environment), {0, 1, 2, 3}, send, receive);
  Carried carried(fabric, 4, 4);
  int rounds = 0;
  bool all_on_one = false;
  std::optional<EvenForGood> even;
  run_pairs({&pair}, [&] {
    if (even) return (*even)();
    const auto last = carried.of_round();
    if (++rounds == 1) FailingPorts::fail(faulting_net, 0, 7);
    if (rounds == 1 || last[3] < 3.9) return rounds > 100;
    all_on_one = true;
    FailingPorts::mend(faulting_net, 0, 4);
    even.emplace(carried, 2);
    return false;
  });
  pair.end();
  FailingPorts::mend(faulting_net, 0, 7);
  EXPECT_TRUE(all_on_one);
  ASSERT_TRUE(even);
  even->expect();
}

TEST(Spreading, channels_away_from_home_move_to_a_nic_that_comes_back_and_then_stay) {
  three_nics_die_and_one_comes_back(kQuick, &send_messages, &receive_messages);
}

// In mode 2 all four use both NICs, but for their tiniest messages.
TEST(Spreading, so_do_the_tiniest_messages_in_balance) {
  Environment balance = kQuick;
  balance["R2CC_MODE"] = "2";
  three_nics_die_and_one_comes_back(balance, &send_tiny, &receive_tiny);
}

// Each process knows its own channel only; what the other's does it learns from the page that they share.
TEST(Spreading, two_processes_of_a_node_do_not_share_a_backup_for_good) {
  FailingPorts::prepare();
  const auto fabric = make_fabric(2, 4);
  FaultingNet faulting_net(fabric);
  const Environment environment = with_own_scope(kQuick);
  const Pair one(fabric, environment, {0}), other(fabric, environment, {1});
  Carried carried(fabric, 4, 2);
  bool struck = false;
  std::optional<EvenForGood> even;
  run_pairs({&one, &other}, [&] {
    if (even) return (*even)();
    carried.of_round();
    struck = FailingPorts::fail(faulting_net, 0, 3) >= 2;
    even.emplace(carried, 1);
    return false;
  });
  one.end();
  other.end();
  FailingPorts::mend(faulting_net, 0, 3);
  EXPECT_TRUE(struck);
  ASSERT_TRUE(even);
  even->expect();
}

}  // namespace
}  // namespace r2ccl
