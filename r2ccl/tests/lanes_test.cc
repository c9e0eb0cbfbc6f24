// SPDX-License-Identifier: Apache-2.0
// Balance between two processes: segments of messages over several NICs at once, while NICs fail.
#include <gtest/gtest.h>

#include <random>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/sanitizer.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kNics = 4;
const Environment kBalance{{"R2CC_MODE", "2"},
                           {"R2CC_FAILBACK_MS", "5"},
                           {"R2CC_FAILBACK_MAX_MS", "20"},
                           {"R2CC_FAIL_BOUND_MS", "20000"}};

/// How long a test waits for what must happen on a machine that does much else.
constexpr std::chrono::seconds kPatience = kSanitizerFactor > 1 ? 240s : 60s;

struct Pair {
  explicit Pair(const vhca::FabricHost& fabric, const Environment& environment = kBalance)
      : receiver(start(fabric, 1, environment,
                       [](const Link& link) {
                         receive_with(link, 0, [&](Net& n, Channel* c) { receive_rounds(n, c, link); });
                       })),
        sender(start(fabric, 0, environment, [](const Link& link) {
          send_with(link, 0, [&](Net& n, Channel* c) { send_rounds(n, c, link); });
        })) {
    relay_handle(receiver, sender);
  }
  void expect_exact(const std::function<bool()>& enough) const {
    run_rounds(receiver, sender, enough);
    EXPECT_EQ(sender.wait(120s), 0);
    EXPECT_EQ(receiver.wait(120s), 0);
  }
  Child receiver, sender;
};

std::array<uint64_t, kNics> sent(const vhca::FabricHost& fabric) {
  std::array<uint64_t, kNics> bytes{};
  for (size_t nic = 0; nic < kNics; ++nic) bytes[nic] = fabric.counters(0, nic).tx_bytes;
  return bytes;
}

/// Until every NIC but `dead` has sent `bytes` more than in `from`, or for long enough.
std::function<bool()> until_all_carry(const vhca::FabricHost& fabric, size_t dead,
                                      std::array<uint64_t, kNics> from, uint64_t bytes) {
  return [&fabric, dead, from, bytes, end = Clock::now() + kPatience] {
    const auto now = sent(fabric);
    bool all = true;
    for (size_t nic = 0; nic < kNics; ++nic) all = all && (nic == dead || now[nic] - from[nic] >= bytes);
    return all || Clock::now() > end;
  };
}

TEST(Lanes, without_a_fault_nothing_leaves_its_home) {
  const auto fabric = make_fabric(2, kNics);
  const Pair pair(fabric);
  pair.expect_exact([rounds = 0]() mutable { return ++rounds >= 10; });
  const auto bytes = sent(fabric);
  for (size_t nic = 1; nic < kNics; ++nic) EXPECT_LT(bytes[nic], bytes[0] / 100) << "NIC " << nic;
}

/// From now on that NIC's port says that it runs at a quarter of its speed.
struct SlowPort {
  explicit SlowPort(const verbs::Device& device) {
    verbs_context* verbs = verbs_get_ctx(device.context());
    real_ = verbs->query_port;
    // The NIC's worker reads it when it makes paths.
    __atomic_store_n(&verbs->query_port, &query, __ATOMIC_RELAXED);
  }
  static int query(ibv_context* context, uint8_t port, ibv_port_attr* attributes, size_t size) {
    const int error = real_(context, port, attributes, size);
    if (attributes->active_width != 2) ADD_FAILURE() << "not a port of four lanes";
    attributes->active_width = 1;
    ++asked_;
    return error;
  }
  inline static decltype(verbs_context::query_port) real_ = nullptr;
  inline static std::atomic<int> asked_{0};
};

// The virtual port carries as much as before: its word alone moves traffic, whatever the meters find. Where
// this process lacks cores they may find any NIC slow, so the others' single shares are not compared. But
// NICs are slow relative to each other, so not all are: home is to carry a quarter, or less if it is the slow
// one.
TEST(Lanes, a_port_that_comes_back_slower_gets_less) {
  const auto fabric = make_fabric(2, kNics);
  const Child receiver = start(fabric, 1, kBalance, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* c) { receive_rounds(n, c, link); });
  });
  const Child sender = start(fabric, 0, kBalance, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* c) {
      const SlowPort slow(c->context().devices[0]);
      send_rounds(n, c, link);
      EXPECT_GE(slow.asked_, 1);
      for (size_t nic = 0; nic < kNics; ++nic)
        EXPECT_EQ(c->context().capacities.by_port(nic), nic == 0 ? 0.25 : 1) << "NIC " << nic;
    });
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  // Struck in the second round; from the first one in which home carries something again, ten more.
  std::array<uint64_t, kNics> before{}, from{};
  int rounds = 0, at_home = 0;
  const auto end = Clock::now() + kPatience;
  run_rounds(receiver, sender, [&] {
    const auto now = sent(fabric);
    const bool carries = now[0] - before[0] > 250'000;  // more than probes, less than 1 % of a round
    before = now;
    if (++rounds == 2) faulting_net.strike(0, 0);
    if (rounds > 3 && carries && ++at_home == 1) from = now;
    return at_home > 10 || Clock::now() > end;
  });
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_GE(faulting_net.broken(), 1);
  ASSERT_GT(at_home, 10);
  const auto now = sent(fabric);
  uint64_t all = 0;
  for (size_t nic = 0; nic < kNics; ++nic) all += now[nic] - from[nic];
  EXPECT_LT(now[0] - from[0], all / 2) << "of " << all << " bytes; all of them, had the port said nothing";
}

TEST(Lanes, the_traffic_of_a_dead_nic_is_shared_by_all_others) {
  // Ports at a rate: of unlimited ones, one that starves of CPU carries less and rightly gets less.
  const auto fabric = make_fabric(2, kNics, 4'000'000'000 / kSanitizerFactor);
  const Pair pair(fabric);
  FaultingNet faulting_net(fabric);
  faulting_net.start([](FaultingNet& s) {  // whatever is opened on it breaks
    s.strike(0, 0);
    std::this_thread::sleep_for(100us);
  });
  std::array<uint64_t, kNics> from{};
  pair.expect_exact([&, phase = 0, carried = until_all_carry(fabric, 0, sent(fabric), 16 << 20)]() mutable {
    if (!carried()) return false;
    if (phase++ == 0) {  // all lanes are up: now they are compared
      from = sent(fabric);
      carried = until_all_carry(fabric, 0, from, (256 << 20) / kSanitizerFactor);
      return false;
    }
    return true;
  });
  faulting_net.stop();
  EXPECT_GE(faulting_net.broken(), 2);
  const auto now = sent(fabric);
  uint64_t least = ~uint64_t{0}, most = 0;
  for (size_t nic = 1; nic < kNics; ++nic) {
    least = std::min(least, now[nic] - from[nic]);
    most = std::max(most, now[nic] - from[nic]);
  }
  EXPECT_GE(double(least), 0.3 * double(most)) << least << " and " << most << " bytes";
}

TEST(Lanes, lanes_that_fail_at_random_moments_lose_nothing) {
  const auto fabric = make_fabric(2, kNics);
  const Pair pair(fabric);
  FaultingNet faulting_net(fabric);
  faulting_net.start([random = std::minstd_rand(815)](FaultingNet& s) mutable {
    s.strike(0, 0);  // home stays dead, so that lanes are wanted
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    if (random() % 3 == 0) s.strike(int(random() % 2), 1 + int(random() % (kNics - 1)), 16);
  });
  const auto from = sent(fabric);
  pair.expect_exact([&, carried = until_all_carry(fabric, 0, from, 64 << 20)] {
    return carried() && faulting_net.broken() >= 150;
  });
  faulting_net.stop();
  EXPECT_GE(faulting_net.broken(), 150);
  const auto now = sent(fabric);
  for (size_t nic = 1; nic < kNics; ++nic)
    EXPECT_GE(now[nic] - from[nic], 64u << 20) << "NIC " << nic << " carried nothing";
}

// Both ends notice different failures at the same time.
TEST(Lanes, two_lanes_that_fail_at_once_on_different_sides_lose_nothing) {
  const auto fabric = make_fabric(2, kNics);
  const Pair pair(fabric);
  FaultingNet faulting_net(fabric);
  faulting_net.start([random = std::minstd_rand(4)](FaultingNet& s) mutable {
    s.strike(0, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 12));
    const int first = 1 + int(random() % (kNics - 1)), second = 1 + int(random() % (kNics - 1));
    s.strike(0, first, 16);
    s.strike(1, second, 16);
  });
  const auto from = sent(fabric);
  pair.expect_exact([&, carried = until_all_carry(fabric, 0, from, 64 << 20)] {
    return carried() && faulting_net.broken() >= 150;
  });
  faulting_net.stop();
  EXPECT_GE(faulting_net.broken(), 150);
}

/// 512 bytes each.
void carry_tiny(Net& n, Channel* channel, bool sends, const std::function<void()>& look = {}) {
  carry_words<64>(n, channel, 0, 4000, sends, look);
}

// The meters may find a NIC slow where this process lacks cores, and then messages move to another lane. But
// they do not travel on two at a time.
TEST(Lanes, tiny_messages_all_travel_on_one_lane) {
  const auto fabric = make_fabric(2, kNics);
  const auto messages = [&] {
    std::array<uint64_t, kNics> found{};
    for (size_t nic = 0; nic < kNics; ++nic) found[nic] = fabric.counters(0, nic).tx_messages;
    return found;
  };
  const Child receiver = start(fabric, 1, kBalance, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* c) {
      receive_rounds(n, c, link);
      carry_tiny(n, c, false);
    });
  });
  const Child sender = start(fabric, 0, kBalance, [&](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* c) {
      send_rounds(n, c, link);
      auto before = messages();
      int looks = 0, divided = 0;
      carry_tiny(n, c, true, [&] {
        const auto now = messages();
        int carry = 0;  // a quarter of the hundred or more
        for (size_t nic = 0; nic < kNics; ++nic) carry += now[nic] - before[nic] >= 25;
        divided += carry > 1;
        ++looks;
        before = now;
      });
      EXPECT_EQ(looks, 40);
      EXPECT_LE(divided, 6) << "of 40 times a hundred messages";
    });
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  faulting_net.start([](FaultingNet& s) {  // home stays dead, so that lanes are wanted
    s.strike(0, 0);
    std::this_thread::sleep_for(100us);
  });
  const auto carried = until_all_carry(fabric, 0, sent(fabric), 16 << 20);
  std::array<uint64_t, kNics> from{};
  run_rounds(receiver, sender, [&] {
    from = messages();
    return carried();
  });
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  faulting_net.stop();
  EXPECT_GE(faulting_net.broken(), 2);
  const auto now = messages();
  uint64_t all = 0;
  for (size_t nic = 1; nic < kNics; ++nic) all += now[nic] - from[nic];
  EXPECT_GE(all, 4000u);
  EXPECT_LT(all, 4400u) << "what is due to rounds, probes and paths that are opened";
}

/// Eight messages of 8 KiB come while nobody tests; then the first test of each must find it, whatever lane
/// it came on. `reverse`: the last one is tested first.
void find_at_once(Net& n, Channel* channel, const vhca::FabricHost& fabric, bool reverse) {
  constexpr size_t kMessages = 8, kBytes = 8 << 10;
  const auto come = [&] {
    uint64_t messages = 0;
    for (size_t nic = 1; nic < kNics; ++nic) messages += fabric.counters(0, nic).tx_messages;
    return messages;
  };
  std::vector<uint8_t> buffer(kMessages * kBytes);
  auto reg = n.reg(channel, buffer.data(), buffer.size());
  ASSERT_TRUE(reg.ok());
  const uint64_t before = come();
  std::array<Request*, kMessages> open{};
  for (size_t i = 0; i < kMessages; ++i)
    open[i] = post_receive(n, channel, buffer.data() + i * kBytes, kBytes, *reg);
  const auto until = Clock::now() + kPatience;
  while (come() < before + kMessages && Clock::now() < until) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
  for (size_t k = 0; k < kMessages; ++k) {
    const size_t i = reverse ? kMessages - 1 - k : k;
    auto outcome = n.test(open[i]);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    EXPECT_TRUE(outcome->done) << "message " << i;
    while (outcome.ok() && !outcome->done) outcome = n.test(open[i]);
    EXPECT_EQ(buffer[i * kBytes], uint8_t(i + 1));
  }
}

void send_eight(Net& n, Channel* channel) {
  constexpr size_t kMessages = 8, kBytes = 8 << 10;
  std::vector<uint8_t> buffer(kMessages * kBytes);
  auto reg = n.reg(channel, buffer.data(), buffer.size());
  ASSERT_TRUE(reg.ok());
  std::array<Request*, kMessages> open{};
  for (size_t i = 0; i < kMessages; ++i) {
    std::fill_n(buffer.begin() + std::ptrdiff_t(i * kBytes), kBytes, uint8_t(i + 1));
    while (!open[i]) {
      auto request = n.isend(channel, buffer.data() + i * kBytes, kBytes, *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      open[i] = *request;
    }
  }
  for (Request* request : open)
    for (bool done = false; !done;) {
      auto outcome = n.test(request);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      done = outcome->done;
    }
}

// The watchdog looks at all lanes, too, after a silence: here it is patient.
TEST(Lanes, a_test_finds_what_has_come_on_any_lane) {
  const auto fabric = make_fabric(2, kNics);
  Environment patient = kBalance;
  patient["R2CC_SUSPECT_MS"] = "10000";
  const Child receiver = start(fabric, 1, patient, [&](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* c) {
      receive_rounds(n, c, link);
      for (const bool reverse : {false, true, true, false}) find_at_once(n, c, fabric, reverse);
    });
  });
  const Child sender = start(fabric, 0, patient, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* c) {
      send_rounds(n, c, link);
      for (int i = 0; i < 4; ++i) send_eight(n, c);
    });
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  faulting_net.start([](FaultingNet& s) {  // home stays dead, so that lanes are wanted
    s.strike(0, 0);
    std::this_thread::sleep_for(100us);
  });
  run_rounds(receiver, sender, until_all_carry(fabric, 0, sent(fabric), 16 << 20));
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  faulting_net.stop();
  EXPECT_GE(faulting_net.broken(), 2);
}

TEST(Lanes, when_home_is_back_everything_returns_to_it) {
  const auto fabric = make_fabric(2, kNics);
  const Pair pair(fabric);
  FaultingNet faulting_net(fabric);
  std::atomic<bool> home_is_dead{true};
  faulting_net.start([&](FaultingNet& s) {
    if (home_is_dead) s.strike(0, 0);
    std::this_thread::sleep_for(100us);
  });
  enum { kSpread, kReturning, kBack } phase = kSpread;
  auto carried = until_all_carry(fabric, 0, sent(fabric), 32 << 20);
  std::array<uint64_t, kNics> from{};
  auto until = Clock::now();
  pair.expect_exact([&] {
    switch (phase) {
      case kSpread:
        if (!carried()) return false;
        home_is_dead = false;
        from = sent(fabric);
        until = Clock::now() + kPatience;
        phase = kReturning;
        return false;
      case kReturning: {  // rounds in which the others carry next to nothing
        const auto now = sent(fabric);
        const uint64_t home = now[0] - from[0];
        uint64_t others = 0;
        for (size_t nic = 1; nic < kNics; ++nic) others += now[nic] - from[nic];
        from = now;
        if (home > 100 * others) phase = kBack;
        return phase == kBack || Clock::now() > until;
      }
      default:
        return true;
    }
  });
  EXPECT_EQ(phase, kBack);
}

// The peer's only NIC works with NIC 0; the channel's home is NIC 1. When it has come home it must be able to
// open another path, or the next failure is its end. (A failure of its own NIC would end an opening that
// waits for ever; the peer's does not.)
TEST(Lanes, a_home_without_a_partner_of_its_own_may_fail_again_and_again) {
  vhca::FabricSpec spec;
  // At a rate that no shortage of CPU time lowers: a home that carries less than its neighbour would be gray.
  const vhca::PortSpec port{4'000'000'000 / kSanitizerFactor};
  constexpr int kRounds = kSanitizerFactor > 1 ? 30 : 40;
  spec.nodes = {{"node0", {port, port}}, {"node1", {port}}};
  const auto fabric = vhca::FabricHost::create(spec);
  const Child receiver = start(fabric, 1, kBalance, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* c) { receive_rounds(n, c, link); });
  });
  const Child sender = start(fabric, 0, kBalance, [](const Link& link) {
    send_with(link, 1, [&](Net& n, Channel* c) { send_rounds(n, c, link); });
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  uint64_t before = 0;
  int at_home = 0, failures = 0;
  const auto end = Clock::now() + kPatience;
  run_rounds(receiver, sender, [&] {  // ten rounds at home, and it fails
    const uint64_t home = fabric.counters(0, 1).tx_bytes;
    const bool carries = home - std::exchange(before, home) > 1'000'000;
    if (carries && ++at_home % 10 == 0) failures += faulting_net.strike(1, 0);
    return at_home >= kRounds || Clock::now() > end;
  });
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_GE(at_home, kRounds);
  EXPECT_GE(failures, 3) << "queue pairs";
}

}  // namespace
}  // namespace r2ccl
