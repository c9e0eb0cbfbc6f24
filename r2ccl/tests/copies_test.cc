// SPDX-License-Identifier: Apache-2.0
// Small messages: they are sent from a copy, so that the program has its buffer back as soon as the NIC has
// done with it, and nothing is lost all the same.
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/deaf.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr size_t kSmall = wire::kCopiedBytes, kBig = wire::kCopiedBytes + 1;

class Sending {
 public:
  explicit Sending(const Link& link) : channel(connect_one(*net(), 0, link)) {
    if (channel) reg_ = *net()->reg(channel, bytes_.data(), bytes_.size());
  }
  Request* post(uint8_t what, size_t bytes) {
    bytes_.fill(what);
    for (;;) {
      auto request = net()->isend(channel, bytes_.data(), bytes, reg_);
      EXPECT_TRUE(request.ok()) << request.error().message;
      if (!request || *request) return request ? *request : nullptr;
    }
  }
  /// Waits until it is done, at most so long; a buffer that is given back is used for something else at once.
  bool done(Request* request, std::chrono::milliseconds bound) {
    const auto until = std::chrono::steady_clock::now() + bound;
    while (std::chrono::steady_clock::now() < until) {
      auto outcome = net()->test(request);
      EXPECT_TRUE(outcome.ok()) << outcome.error().message;
      if (!outcome) return false;
      if (outcome->done) bytes_.fill(0xff);
      if (outcome->done) return true;
    }
    return false;
  }
  Channel* channel;

 private:
  std::array<uint8_t, kBig> bytes_{};
  Registration* reg_ = nullptr;
};

/// Receives messages of the given sizes, message i full of i + 1. `posted` is called when all are asked for.
void receive(
    Channel* channel, const std::vector<size_t>& sizes, const std::function<void()>& posted = [] {}) {
  Net* n = net();
  std::vector<std::array<uint8_t, kBig + 1>> buffers(sizes.size());
  auto reg = n->reg(channel, buffers.data(), buffers.size() * sizeof buffers[0]);
  ASSERT_TRUE(reg.ok());
  std::vector<Request*> open;
  for (auto& buffer : buffers) {
    buffer.fill(0xee);
    open.push_back(post_receive(*n, channel, buffer.data(), buffer.size(), *reg));
  }
  posted();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    for (bool done = false; !done;) {
      auto outcome = n->test(open[i]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "message " << i << " does not come";
      done = outcome->done;
      if (done) {
        ASSERT_EQ(outcome->bytes, sizes[i]);
      }
    }
    for (size_t at = 0; at < buffers[i].size(); ++at)
      ASSERT_EQ(buffers[i][at], at < sizes[i] ? i + 1 : 0xee) << "byte " << at << " of message " << i;
  }
}

TEST(Copies, only_what_is_too_large_for_one_waits_for_the_receiver) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive(channel, {kSmall, 0, kBig}, [&] {
      char word = 1;
      link.send(&word, 1);  // whereupon this process is stopped
      EXPECT_TRUE(link.receive(&word, 1));
    });
    EXPECT_TRUE(net()->close(channel).ok());
    EXPECT_TRUE(net()->close(listener).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Sending sending(link);
    ASSERT_NE(sending.channel, nullptr);
    char word = 0;
    ASSERT_TRUE(link.receive(&word, 1));  // the receiver is stopped
    EXPECT_TRUE(sending.done(sending.post(1, kSmall), 10s));
    EXPECT_TRUE(sending.done(sending.post(2, 0), 10s));
    Request* big = sending.post(3, kBig);
    EXPECT_FALSE(sending.done(big, 500ms));
    link.send(&word, 1);
    EXPECT_TRUE(sending.done(big, 10s));
    EXPECT_TRUE(net()->close(sending.channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 0;
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  ASSERT_EQ(kill(receiver.pid, SIGSTOP), 0);  // nobody there sees anything complete
  sender.link.send(&word, 1);
  EXPECT_TRUE(sender.link.receive(&word, 1));
  ASSERT_EQ(kill(receiver.pid, SIGCONT), 0);
  receiver.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

// The immediate of a message is lost whose buffer the program has had back for long; it calls nothing any
// more, or closes the channel at once.
void lose_an_immediate(bool closes, std::chrono::nanoseconds one_way = {}) {
  const auto fabric = make_fabric(2, 2, 0, one_way);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}};
  const Child receiver = start(fabric, 1, impatient, [](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    const Deaf deaf(channel->context(), 1, 1);
    receive(channel, {kSmall});
    EXPECT_EQ(deaf.missed(), 1u);
    EXPECT_TRUE(net()->close(channel).ok());
    EXPECT_TRUE(net()->close(listener).ok());
    char word = 1;
    link.send(&word, 1);
  });
  const Child sender = start(fabric, 0, impatient, [closes](const Link& link) {
    Sending sending(link);
    ASSERT_NE(sending.channel, nullptr);
    EXPECT_TRUE(sending.done(sending.post(1, kSmall), 10s));
    char word = 0;
    if (!closes) {
      EXPECT_TRUE(link.receive(&word, 1));
    }
    EXPECT_TRUE(net()->close(sending.channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 0;
  EXPECT_TRUE(receiver.link.receive(&word, 1));
  if (!closes) sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

TEST(Copies, what_the_receiver_never_saw_is_sent_again_though_nobody_waits_for_it) {
  lose_an_immediate(false);
}

TEST(Copies, what_the_receiver_never_saw_is_sent_again_though_the_channel_is_closed) {
  lose_an_immediate(true);
}

TEST(Copies, closing_waits_for_a_migration_that_takes_its_time) { lose_an_immediate(true, 25ms); }

// The same, and then no path works any more: the receiver waits for what the sender's program thinks is sent.
TEST(Copies, what_cannot_be_sent_again_for_lack_of_a_path_is_an_error_at_both_ends) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}, {"R2CC_FAIL_BOUND_MS", "500"}};
  const auto error_of = [](Request* request) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (std::chrono::steady_clock::now() < until)
      if (auto outcome = net()->test(request); !outcome) return outcome.error().message;
    return std::string("none within 20 s");
  };
  const Child receiver = start(fabric, 1, impatient, [&](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    const Deaf deaf(channel->context(), 1);  // what is sent again is lost as well
    std::array<uint8_t, kSmall> buffer{};
    auto reg = net()->reg(channel, buffer.data(), buffer.size());
    Request* open = post_receive(*net(), channel, buffer.data(), buffer.size(), *reg);
    ASSERT_NE(open, nullptr);
    EXPECT_NE(error_of(open).find("no path"), std::string::npos) << error_of(open);
    EXPECT_GE(deaf.missed(), 1u);
    EXPECT_TRUE(net()->close(channel).ok());
    EXPECT_TRUE(net()->close(listener).ok());
  });
  const Child sender = start(fabric, 0, impatient, [](const Link& link) {
    Sending sending(link);
    ASSERT_NE(sending.channel, nullptr);
    EXPECT_TRUE(sending.done(sending.post(1, kSmall), 10s));
    char word = 1;
    link.send(&word, 1);
    EXPECT_TRUE(link.receive(&word, 1));
    EXPECT_EQ(sending.channel->status(), Status::kFailed);
    EXPECT_TRUE(net()->close(sending.channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 0;
  EXPECT_TRUE(sender.link.receive(&word, 1));
  for (const int nic : {0, 1}) faulting_net.make_late(0, nic, 1h);  // no new path is proved
  for (const int nic : {0, 1}) faulting_net.strike(0, nic);
  EXPECT_EQ(receiver.wait(), 0);
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_GE(faulting_net.broken(), 1);
}

// A receiver that waits asks; a sender that is stopped answers when it goes on. Its connection must not fill
// up meanwhile.
TEST(Copies, a_stopped_sender_is_asked_once) {
  const auto fabric = make_fabric(2, 2);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}, {"R2CC_STUCK_MS", "100"}};
  const Child receiver = start(fabric, 1, impatient, [](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    const auto said = [channel] {
      tcp_info info{};
      socklen_t length = sizeof info;
      EXPECT_EQ(getsockopt(channel->fd(), IPPROTO_TCP, TCP_INFO, &info, &length), 0);
      return info.tcpi_bytes_acked;
    };
    std::array<uint8_t, kSmall> buffer{};
    auto reg = net()->reg(channel, buffer.data(), buffer.size());
    Request* open = post_receive(*net(), channel, buffer.data(), buffer.size(), *reg);
    char word = 1;
    link.send(&word, 1);
    EXPECT_TRUE(link.receive(&word, 1));  // the sender is stopped
    const auto before = said();
    const auto wait_until = [&](auto when) {
      for (bool done = false; !done && std::chrono::steady_clock::now() < when;) {
        auto outcome = net()->test(open);
        ASSERT_TRUE(outcome.ok()) << outcome.error().message;
        done = outcome->done;
      }
    };
    wait_until(std::chrono::steady_clock::now() + 2s);
    EXPECT_GT(said(), before) << "nothing was asked: the test shows nothing";
    EXPECT_LE(said() - before, 2 * (control::kHeaderBytes + sizeof(wire::Received) + 64));
    link.send(&word, 1);
    wait_until(std::chrono::steady_clock::now() + 20s);
    EXPECT_EQ(buffer, (std::array<uint8_t, kSmall>{1})) << "not received";
    EXPECT_TRUE(net()->close(channel).ok());
    EXPECT_TRUE(net()->close(listener).ok());
  });
  const Child sender = start(fabric, 0, impatient, [](const Link& link) {
    Sending sending(link);
    ASSERT_NE(sending.channel, nullptr);
    char word = 0;
    EXPECT_TRUE(link.receive(&word, 1));
    EXPECT_TRUE(sending.done(sending.post(1, 1), 10s));
    EXPECT_TRUE(net()->close(sending.channel).ok());
  });
  relay_handle(receiver, sender);
  char word = 1;
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  ASSERT_EQ(kill(sender.pid, SIGSTOP), 0);
  receiver.link.send(&word, 1);
  EXPECT_TRUE(receiver.link.receive(&word, 1));
  ASSERT_EQ(kill(sender.pid, SIGCONT), 0);
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

// Nobody has looked at what lies in the completion queue when the sender's process is gone without a word.
TEST(Copies, what_a_process_sent_before_it_ended_is_received) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive(channel, {kSmall}, [&] {
      char word = 1;
      link.send(&word, 1);
      EXPECT_TRUE(link.receive(&word, 1));  // the sender has ended
      while (channel->status() != Status::kFailed) std::this_thread::sleep_for(1ms);
    });
    EXPECT_TRUE(net()->close(channel).ok());
    EXPECT_TRUE(net()->close(listener).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Sending sending(link);
    ASSERT_NE(sending.channel, nullptr);
    EXPECT_TRUE(sending.done(sending.post(1, kSmall), 10s));
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  relay_handle(receiver, sender);
  char word = 1;
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  EXPECT_EQ(sender.wait(), 0);
  receiver.link.send(&word, 1);
  EXPECT_EQ(receiver.wait(), 0);
}

TEST(Copies, closing_does_not_wait_long_for_a_receiver_that_is_stopped) {
  const auto fabric = make_fabric(2, 2);
  static constexpr int kChannels = 60;
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Listener* listener = nullptr;
    std::vector<Channel*> channels;
    std::array<uint8_t, kSmall> buffer{};
    for (int i = 0; i < kChannels; ++i) {
      channels.push_back(accept_one(*net(), 0, link, listener));
      ASSERT_NE(channels.back(), nullptr);
      auto reg = net()->reg(channels.back(), buffer.data(), buffer.size());
      ASSERT_NE(post_receive(*net(), channels.back(), buffer.data(), buffer.size(), *reg), nullptr);
      EXPECT_TRUE(net()->close(listener).ok());
    }
    char word = 1;
    link.send(&word, 1);
    EXPECT_TRUE(link.receive(&word, 1));
    for (Channel* channel : channels) EXPECT_TRUE(net()->close(channel).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    std::vector<Sending> sending;
    sending.reserve(kChannels);  // they stay where they are registered
    for (int i = 0; i < kChannels; ++i) {
      sending.emplace_back(link);
      ASSERT_NE(sending.back().channel, nullptr);
    }
    char word = 1;
    EXPECT_TRUE(link.receive(&word, 1));  // the receiver is stopped
    for (Sending& one : sending) EXPECT_TRUE(one.done(one.post(1, kSmall), 10s));
    const auto begin = std::chrono::steady_clock::now();
    for (Sending& one : sending) EXPECT_TRUE(net()->close(one.channel).ok());
    // One waits for 0.1 s, or 2 s if a migration is under way, and the others not at all.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kChannels * 100ms / 2);
  });
  for (int i = 0; i < kChannels; ++i) relay_handle(receiver, sender);
  char word = 1;
  ASSERT_TRUE(receiver.link.receive(&word, 1));
  ASSERT_EQ(kill(receiver.pid, SIGSTOP), 0);
  sender.link.send(&word, 1);
  EXPECT_EQ(sender.wait(), 0);
  ASSERT_EQ(kill(receiver.pid, SIGCONT), 0);
  receiver.link.send(&word, 1);
  EXPECT_EQ(receiver.wait(), 0);
}

}  // namespace
}  // namespace r2ccl
