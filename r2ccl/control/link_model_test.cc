// SPDX-License-Identifier: Apache-2.0
// Every order, up to a number of steps, in which two ends of a Link speak, hear, lose their connection and
// make another one: nothing is lost, nothing comes twice, everything comes in order. What a connection had
// under way is lost with it; a question may be left unanswered, or be said again by somebody who has recorded
// it. This is what lets the model of migration (protocol_model_test) take control messages as neither lost
// nor out of order. The ends are the real ones, over pairs of sockets; each order is played from the
// beginning.
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "r2ccl/control/link.h"

namespace r2ccl::control {
namespace {

constexpr uint16_t kNumber = 7;

enum class Step : uint8_t {
  kConnectorSays,
  kAcceptorSays,
  kConnectorHears,
  kAcceptorHears,
  kConnectorLoses,  ///< its connection, with all that it has not heard
  kAcceptorLoses,
  kAsks,      ///< the connector, over a new connection
  kAccepts,   ///< the acceptor, the newest question
  kReplayed,  ///< the question before is said again, by a stranger
  kCount
};
const char* const kNames[] = {"connector says", "acceptor says",   "connector hears",
                              "acceptor hears", "connector loses", "acceptor loses",
                              "asks",           "accepts",         "replayed"};

class World {
 public:
  World() : World(pair()) {}

  bool enabled(Step step) const {
    switch (step) {
      case Step::kConnectorSays:
        return said_[0] < 3;
      case Step::kAcceptorSays:
        return said_[1] < 3;
      case Step::kConnectorHears:
      case Step::kConnectorLoses:
        return connector_.open();
      case Step::kAcceptorHears:
      case Step::kAcceptorLoses:
        return acceptor_.open();
      case Step::kAsks:  // also while an older question is under way
        return !connector_.up();
      case Step::kAccepts:
        return question_.open();
      case Step::kReplayed:
        return !recorded_.empty();
      case Step::kCount:
        break;
    }
    return false;
  }

  void take(Step step) {
    switch (step) {
      case Step::kConnectorSays:
        return say(connector_, 0);
      case Step::kAcceptorSays:
        return say(acceptor_, 1);
      case Step::kConnectorHears:
        return hear(connector_, 1);
      case Step::kAcceptorHears:
        return hear(acceptor_, 0);
      case Step::kConnectorLoses:
        return connector_.close();
      case Step::kAcceptorLoses:
        return acceptor_.close();
      case Step::kAsks: {
        Ends ends = pair();
        connector_.ask(std::move(ends.one), 1, 2);
        question_ = std::move(ends.two);
        return;
      }
      case Step::kAccepts: {
        question_.fill();
        auto asked = question_.incoming;
        // A question whose connection the connector has given up since is as good as any: it finds out.
        if (acceptor_.accept(std::move(question_))) {
          recorded_ = std::move(asked);
        } else {
          right_ = right_ && asked == recorded_;
        }
        question_ = Stream(Descriptor());
        return;
      }
      case Step::kReplayed: {
        Ends ends = pair();
        ends.two.incoming = recorded_;
        right_ = right_ && !acceptor_.accept(std::move(ends.two));
        return;
      }
      case Step::kCount:
        return;
    }
  }

  /// With one more connection, and time, everything is there.
  bool settles() {
    connector_.close();
    acceptor_.close();
    take(Step::kAsks);
    take(Step::kAccepts);
    for (int i = 0; i < 3; ++i) {
      take(Step::kConnectorHears);
      take(Step::kAcceptorHears);
    }
    return right_ && connector_.up() && acceptor_.up() && heard_[0] == said_[0] && heard_[1] == said_[1];
  }
  bool right() const { return right_; }

 private:
  struct Ends {
    Stream one, two;
  };
  static Ends pair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
    return {Stream(Descriptor(fds[0])), Stream(Descriptor(fds[1]))};
  }
  explicit World(Ends ends)
      : connector_(std::move(ends.one), token(), true),
        acceptor_(std::move(ends.two), token(), false),
        question_(Descriptor()) {
    take(Step::kConnectorSays);  // the greeting
    take(Step::kAcceptorHears);
    take(Step::kAcceptorSays);
    take(Step::kConnectorHears);
    connector_.rekey(nonce());
    acceptor_.rekey(nonce());
    said_[0] = said_[1] = heard_[0] = heard_[1] = 0;
  }
  static const Token& token() {
    static const Token token = random_token();
    return token;
  }
  static const Token& nonce() {
    static const Token nonce = random_token();
    return nonce;
  }
  void say(Link& link, int from) {
    const uint64_t number = said_[from]++;
    link.say(kNumber, std::as_bytes(std::span(&number, 1)));
  }
  void hear(Link& link, int from) {
    const bool open = link.fill();
    Message message;
    for (;;) {
      auto got = link.next(message);
      if (!got) {
        right_ = false;
        return;
      }
      if (!*got) break;
      right_ = right_ && message.type == kNumber && message.as<uint64_t>().value() == heard_[from];
      ++heard_[from];
    }
    if (!open) link.close();  // as its owner does
  }

  Link connector_, acceptor_;
  Stream question_;
  std::vector<std::byte> recorded_;
  uint64_t said_[2] = {}, heard_[2] = {};  // by who says
  bool right_ = true;
};

std::string in_words(const std::vector<Step>& steps) {
  std::string words;
  for (const Step step : steps) words += (words.empty() ? "" : ", ") + std::string(kNames[size_t(step)]);
  return words;
}

/// Plays all orders of up to `most` steps after `steps`; how many. Stops at the first that is not right.
uint64_t explore(std::vector<Step>& steps, size_t most, std::string& wrong) {
  uint64_t count = 0;
  std::vector<Step> next;
  {
    World world;
    for (const Step step : steps) world.take(step);
    for (size_t i = 0; i < size_t(Step::kCount); ++i)
      if (world.enabled(Step(i))) next.push_back(Step(i));
    ++count;
    if (!world.right() || !world.settles()) {
      wrong = in_words(steps);
      return count;
    }
  }
  if (steps.size() == most) return count;
  for (const Step step : next) {
    if (!wrong.empty()) break;
    steps.push_back(step);
    count += explore(steps, most, wrong);
    steps.pop_back();
  }
  return count;
}

void explore_to(size_t most) {
  std::vector<Step> steps;
  std::string wrong;
  const uint64_t orders = explore(steps, most, wrong);
  EXPECT_EQ(wrong, "");
  EXPECT_GT(orders, 1000u);
  std::printf("%llu orders of up to %zu steps\n", static_cast<unsigned long long>(orders), most);
}

TEST(LinkModel, every_order_of_steps_loses_repeats_and_exchanges_nothing) { explore_to(6); }
TEST(DeepLinkModel, every_order_of_steps_loses_repeats_and_exchanges_nothing) { explore_to(8); }

}  // namespace
}  // namespace r2ccl::control
