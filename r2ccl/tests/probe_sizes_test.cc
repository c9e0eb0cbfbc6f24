// SPDX-License-Identifier: Apache-2.0
// How long the READs of a stall are: a whole packet at once where an MTU is too small, and mostly small ones
// where many channels share a slow NIC.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "r2ccl/channel/channel.h"
#include "r2ccl/path/process_context.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

/// The READs that this process posts, for the rest of its life.
class Reads {
 public:
#if defined(__SANITIZE_THREAD__)
  __attribute__((no_sanitize("thread")))
#endif
  explicit Reads(ProcessContext& context) {
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.post_send;
      ops.post_send = &post;
    }
  }
  Reads(const Reads&) = delete;
  Reads& operator=(const Reads&) = delete;
  /// Those before do not count.
  static void forget() { small_ = whole_ = small_first_ = 0; }
  static int small() { return small_; }
  static int whole() { return whole_; }
  static int small_first() { return small_first_; }  ///< before the first whole one

 private:
  static int post(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
    if (work->opcode == IBV_WR_RDMA_READ && work->sg_list->length > 8) {
      ++whole_;
    } else if (work->opcode == IBV_WR_RDMA_READ) {
      ++small_;
      small_first_ += whole_ == 0;
    }
    return real_(pair, work, bad);
  }
  inline static int (*real_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  inline static std::atomic<int> small_{0}, whole_{0}, small_first_{0};
};

using Channels = std::span<Channel* const>;

/// So many messages on each channel, one open at a time. Those of the channels differ in length: equal ones
/// would end together, and nothing passes in between.
void carry(Net& n, Channels channels, bool sends, size_t bytes, int messages) {
  std::vector<uint8_t> memory(channels.size() * bytes, 7);
  const auto length = [bytes](size_t i) { return bytes - i * bytes / 32; };
  std::vector<Registration*> registrations;
  for (size_t i = 0; i < channels.size(); ++i)
    registrations.push_back(n.reg(channels[i], &memory[i * bytes], length(i)).value());
  std::vector<Request*> open(channels.size(), nullptr);
  std::vector<int> done(channels.size(), 0);
  for (size_t over = 0; over < channels.size(); std::this_thread::yield())
    for (size_t i = 0; i < channels.size(); ++i) {
      if (done[i] == messages) continue;
      if (!open[i]) {
        auto posted = sends ? n.isend(channels[i], &memory[i * bytes], length(i), registrations[i])
                            : n.irecv(channels[i], &memory[i * bytes], length(i), registrations[i]);
        ASSERT_TRUE(posted.ok()) << posted.error().message;
        open[i] = *posted;
        continue;
      }
      auto outcome = n.test(open[i]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      if (!outcome->done) continue;
      open[i] = nullptr;
      over += ++done[i] == messages;
    }
  for (size_t i = 0; i < channels.size(); ++i) EXPECT_TRUE(n.dereg(channels[i], registrations[i]).ok());
}

/// The life of a process with so many channels, from connect or accept to close.
void live(const Link& link, bool sends, size_t count, const std::function<void(Net&, Channels)>& body) {
  Net* const n = net();
  ASSERT_NE(n, nullptr);
  std::vector<Channel*> channels;
  std::vector<Listener*> listeners(count);
  for (size_t i = 0; i < count; ++i) {
    channels.push_back(sends ? connect_one(*n, 0, link) : accept_one(*n, 0, link, listeners[i]));
    ASSERT_NE(channels[i], nullptr);
  }
  const Reads reads(channels[0]->context());
  body(*n, channels);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(n->close(channels[i]).ok());
    if (!sends) {
      EXPECT_TRUE(n->close(listeners[i]).ok());
    }
  }
}

// Data has passed until then, and the stall begins when whole packets begin to vanish. The second READ may
// be small, too: if the stall is interrupted.
TEST(ProbeSizes, behind_the_first_answer_a_whole_packet_asks_where_the_mtu_is_too_small) {
  const auto fabric = make_fabric(2, 2, 1'000'000'000);
  FaultingNet faulting_net(fabric);
  const Environment patient{{"NCCL_IB_TIMEOUT", "20"}, {"R2CC_STUCK_MS", "20000"}, {"R2CC_PROBE_MS", "100"}};
  const auto run = [&](int node, bool sends) {
    return start(fabric, node, patient, [sends](const Link& link) {
      live(link, sends, 1, [&](Net& n, Channels channels) {
        carry(n, channels, sends, 64 << 10, 300);
        say(link);
        wait_for_word(link);
        Reads::forget();
        carry(n, channels, sends, 64 << 10, 1);
        EXPECT_LE(Reads::small_first(), 2);
        EXPECT_GE(Reads::whole(), 1);
      });
    });
  };
  const Child receiver = run(1, false), sender = run(0, true);
  relay_handle(receiver, sender);
  wait_for_word(sender.link);
  wait_for_word(receiver.link);
  faulting_net.make_narrow(1, 0, 1024);
  say(receiver.link);
  say(sender.link);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// A message takes 60 ms, longer than any bound at which a stall is probed, and one ends each 4 ms. Rounds,
// until both ends have asked often enough to say anything: time in which nobody polls is no stall.
TEST(ProbeSizes, channels_that_share_a_slow_nic_ask_mostly_with_small_ones) {
  static constexpr size_t kChannels = 16;
  static constexpr int kEnough = 200, kMostRounds = 20;
  const auto fabric = make_fabric(2, 1, 100'000'000);
  const auto run = [&](int node, bool sends) {
    return start(fabric, node, {}, [sends](const Link& link) {
      live(link, sends, kChannels, [&](Net& n, Channels channels) {
        carry(n, channels, sends, 60 << 10, 3);
        Reads::forget();
        for (char more = '+'; more == '+' && !testing::Test::HasFailure();) {
          carry(n, channels, sends, 60 << 10, 10);
          more = Reads::small() + Reads::whole() < kEnough ? '+' : '.';
          link.send(&more, 1);
          ASSERT_TRUE(link.receive(&more, 1));
        }
        ASSERT_GE(Reads::small() + Reads::whole(), kEnough);
        EXPECT_LT(Reads::whole(), Reads::small() / 2);
      });
    });
  };
  const Child receiver = run(1, false), sender = run(0, true);
  for (size_t i = 0; i < kChannels; ++i) relay_handle(receiver, sender);
  char more = '+';
  for (int round = 1; more == '+'; ++round) {
    more = '.';
    for (const Child* child : {&receiver, &sender}) {
      char word = '.';
      EXPECT_TRUE(child->link.receive(&word, 1));
      if (word == '+' && round < kMostRounds) more = '+';
    }
    for (const Child* child : {&receiver, &sender}) child->link.send(&more, 1);
  }
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

}  // namespace
}  // namespace r2ccl
