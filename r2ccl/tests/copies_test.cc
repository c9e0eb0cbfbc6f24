// Small messages: they are sent from a copy, so that the program has its buffer back as soon as the NIC has
// done with it, and nothing is lost all the same.
#include <gtest/gtest.h>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/deaf.h"
#include "r2ccl/tests/traffic.h"

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
void lose_an_immediate(bool closes) {
  const auto fabric = make_fabric(2, 2);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}};
  const Child receiver = start(fabric, 1, impatient, [](const Link& link) {
    Listener* listener = nullptr;
    Channel* channel = accept_one(*net(), 0, link, listener);
    ASSERT_NE(channel, nullptr);
    const Deaf deaf(channel->core(), 1, 1);
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

}  // namespace
}  // namespace r2ccl
