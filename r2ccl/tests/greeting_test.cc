// SPDX-License-Identifier: Apache-2.0
// Set-up whose control connection breaks at any byte, or is none for a while: it comes about once all the
// same, or ends with the reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <random>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/cutter.h"
#include "r2ccl/tests/testing/proxy.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr size_t kFrame =
    control::kHeaderBytes + sizeof(wire::Hello);  ///< bytes of a hello, and of a welcome
constexpr uint64_t kMessages = 10;
const Environment kPatient{{"R2CC_CONNECT_MS", "600000"}};
/// Connections cut after each byte that this divides.
constexpr size_t kStep = 9;

/// Both children's side: sets one channel after the other up, each with some traffic, and says its number.
/// `set_up` is called when a channel stands, `begin` before.
void one_after_the_other(
    const Link& link, bool receiver, const std::function<void()>& begin = [] {},
    const std::function<void()>& set_up = [] {}) {
  for (uint32_t expected = 0;; ++expected) {
    bool more = false;
    begin();
    const auto carry = [&](Net& n, Channel* channel) {
      set_up();
      // Channels are numbered as they are made: there has been none but those that were handed out.
      EXPECT_EQ(channel->number(), expected);
      if (receiver)
        receive_messages(n, channel, 0, kMessages);
      else
        send_messages(n, channel, 0, kMessages);
      more = one_more_round(link);
    };
    if (receiver)
      receive_with(link, 0, carry);
    else
      send_with(link, 0, carry);
    if (!more || testing::Test::HasFailure()) return;
  }
}

/// A receiver and a sender whose connections lead through a proxy.
struct Pair {
  vhca::FabricHost fabric = make_fabric(2, 2);
  Child receiver, sender;
  std::optional<Proxy> proxy;
  wire::Handle handle{};  // the receiver's last

  template <typename Receive, typename Send>
  Pair(const Environment& receivers, Receive receive, const Environment& senders, Send send, bool open = true)
      : receiver(start(fabric, 1, receivers, receive)), sender(start(fabric, 0, senders, send)) {
    proxy.emplace();
    if (open) proxy->open();
  }
  Pair()
      : Pair(
            kPatient, [](const Link& link) { one_after_the_other(link, true); }, kPatient,
            [](const Link& link) { one_after_the_other(link, false); }) {}

  bool hear_handle() {
    std::array<std::byte, kHandleBytes> bytes{};
    if (!receiver.link.receive(bytes.data(), bytes.size())) return false;
    std::memcpy(&handle, bytes.data(), sizeof handle);
    return true;
  }
  void pass_handle_on(bool through_proxy = true) {
    std::array<std::byte, kHandleBytes> bytes{};
    wire::Handle changed = handle;
    if (through_proxy) changed.where = proxy->where();
    std::memcpy(bytes.data(), &changed, sizeof changed);
    sender.link.send(bytes.data(), bytes.size());
  }
  /// The next set-up, with these plans for its connections. False: an end has given up.
  bool set_up(std::deque<Plan> plans, Plan rest = {}) {
    if (!hear_handle()) return false;
    proxy->lead_to(handle.where, std::move(plans), rest);
    pass_handle_on();
    return true;
  }
  /// Both have carried their messages. Until the next word neither closes.
  bool carried() {
    char word;
    return receiver.link.receive(&word, 1) && sender.link.receive(&word, 1);
  }
  void go_on(bool more) {
    for (const Child* child : {&receiver, &sender}) child->link.send(more ? "+" : ".", 1);
  }
  void wait_for_actions(int count) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (proxy->actions() < count && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
    EXPECT_GE(proxy->actions(), count);
  }
  void expect_both_well() {
    EXPECT_EQ(sender.wait(120s), 0);
    EXPECT_EQ(receiver.wait(120s), 0);
  }
};

/// Each plan in a set-up of its own: everything that it says happens, and the data arrives.
void expect_set_ups(const std::vector<std::deque<Plan>>& all) {
  Pair pair;
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE("set-up " + std::to_string(i));
    ASSERT_TRUE(pair.set_up(all[i]));
    ASSERT_TRUE(pair.carried());
    pair.wait_for_actions(int(all[i].size()));
    pair.go_on(i + 1 < all.size());
  }
  pair.expect_both_well();
}

std::vector<std::deque<Plan>> one_cut_each(Action action, bool to_acceptor, size_t bytes) {
  std::vector<std::deque<Plan>> all;
  for (size_t at = 0; at < bytes; at += kStep) all.push_back({{action, to_acceptor, at}});
  for (const size_t at : {control::kHeaderBytes, kFrame - 1, kFrame, kFrame + 1})
    if (at < bytes) all.push_back({{action, to_acceptor, at}});
  return all;
}

class Greetings : public testing::TestWithParam<std::tuple<Action, bool>> {};

// Hello and welcome, and behind them the messages that open the first path.
TEST_P(Greetings, a_connection_that_breaks_at_any_byte_of_set_up_is_made_again) {
  const auto [action, to_acceptor] = GetParam();
  expect_set_ups(one_cut_each(action, to_acceptor, kFrame + 200));
}

INSTANTIATE_TEST_SUITE_P(Actions, Greetings,
                         testing::Combine(testing::Values(Action::kClose, Action::kReset, Action::kHalve),
                                          testing::Bool()));

TEST(Greeting, set_up_survives_several_breaks_of_every_kind) {
  std::mt19937 random(11);
  std::vector<std::deque<Plan>> all;
  for (int i = 0; i < 24; ++i) {
    std::deque<Plan> plans;
    for (unsigned cuts = 2 + random() % 5; cuts > 0; --cuts) {
      static constexpr Action kActions[] = {Action::kClose, Action::kReset, Action::kHalve};
      const bool to_acceptor = random() % 2;
      // A whole welcome ends the way through the proxy: the sender knows another one then.
      plans.push_back({kActions[random() % 3], to_acceptor, random() % (to_acceptor ? kFrame : kFrame - 1)});
    }
    all.push_back(std::move(plans));
  }
  expect_set_ups(all);
}

// Neither end is told: it is the sender that loses patience.
TEST(Greeting, a_connection_that_hangs_half_way_is_made_again) {
  expect_set_ups({
      {{Action::kHang, true, 0}},
      {{Action::kHang, true, kFrame / 2}},
      {{Action::kHang, false, 0}},
      {{Action::kHang, false, kFrame / 2}},
      {{Action::kHang, false, kFrame}},
      {{Action::kHang, true, kFrame + 40}},
  });
}

// From within: also the connections over which a sender that has its welcome asks to go on.
TEST(Greeting, set_up_comes_about_while_both_ends_lose_their_connections_all_the_time) {
  const auto whole_life = [](const Link& link, bool receiver, std::chrono::milliseconds pause) {
    ASSERT_NE(net(), nullptr);
    std::optional<Cutter> cutter;
    int cuts = 0;
    // Ever less often, so that it comes about on a machine that is ever so slow.
    one_after_the_other(
        link, receiver, [&] { cutter.emplace(pause, 2); }, [&] { cuts += cutter->stop(); });
    EXPECT_GT(cuts, 10);
  };
  Pair pair(
      kPatient, [&](const Link& link) { whole_life(link, true, 3ms); }, kPatient,
      [&](const Link& link) { whole_life(link, false, 5ms); });
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(pair.hear_handle());
    pair.pass_handle_on(false);
    ASSERT_TRUE(pair.carried());
    pair.go_on(i < 29);
  }
  pair.expect_both_well();
}

/// Ends in an error; `words` are found in it.
void expect_error(const std::function<Result<Channel*>()>& attempt, ErrorCode code,
                  const std::vector<std::string>& words) {
  const auto end = std::chrono::steady_clock::now() + 120s;
  while (std::chrono::steady_clock::now() < end) {
    Result<Channel*> result = attempt();
    if (!result) {
      EXPECT_EQ(result.error().code, code) << result.error().message;
      for (const std::string& word : words)
        EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
      return;
    }
    ASSERT_EQ(*result, nullptr) << "connected";
    std::this_thread::sleep_for(1ms);
  }
  FAIL() << "neither connected nor an error within 120 s";
}

void expect_connect_error(const Link& link, ErrorCode code, const std::vector<std::string>& words) {
  Net* n = net();
  std::array<std::byte, kHandleBytes> handle{};
  ASSERT_TRUE(link.receive(handle.data(), handle.size()));
  expect_error([&] { return n->connect(0, handle.data()); }, code, words);
}

void expect_accept_error(const Link& link, ErrorCode code, const std::vector<std::string>& words) {
  Net* n = net();
  std::array<std::byte, kHandleBytes> handle{};
  auto listener = n->listen(0, handle.data());
  ASSERT_TRUE(listener.ok());
  link.send(handle.data(), handle.size());
  expect_error([&] { return n->accept(*listener); }, code, words);
  EXPECT_TRUE(n->close(*listener).ok());
}

std::atomic<int> g_restored{0};  // this process's connections, as the log tells

void count_restored(LogLevel, const char*, int, const char* text) {
  g_restored += std::strstr(text, "had broken, and is restored") != nullptr;
}

TEST(Greeting, an_acceptor_that_is_not_to_be_had_at_first_is_tried_again) {
  Pair pair(
      kPatient, [](const Link& link) { receive_all(link, kMessages); }, kPatient,
      [](const Link& link) {
        ASSERT_TRUE(Net::acquire(count_restored).ok());
        send_with(link, 0, [](Net& n, Channel* channel) {
          EXPECT_EQ(g_restored, 1) << "nothing was refused";
          send_messages(n, channel, 0, kMessages);
        });
      },
      false);
  ASSERT_TRUE(pair.set_up({}));
  std::this_thread::sleep_for(200ms);  // the sender is refused meanwhile, or it says so
  pair.proxy->open();
  pair.expect_both_well();
}

TEST(Greeting, the_baseline_does_not_try_again) {
  const Environment baseline{{"R2CC_MODE", "0"}};
  Pair pair(
      baseline, [](const Link& link) { expect_accept_error(link, ErrorCode::kPeerGone, {"closed"}); },
      baseline, [](const Link& link) { expect_connect_error(link, ErrorCode::kPeerGone, {"closed"}); });
  ASSERT_TRUE(pair.set_up({{Action::kClose, false, 0}}));
  pair.expect_both_well();
  EXPECT_EQ(pair.proxy->actions(), 1);
}

/// What the acceptor answers to such a connection until it closes it.
std::vector<std::byte> answer_to(const control::Endpoint& where, const std::vector<std::byte>& bytes) {
  const auto fd = connection_to(where);
  EXPECT_TRUE(fd);
  EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  shutdown(fd.get(), SHUT_WR);
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  std::vector<std::byte> answer;
  std::byte chunk[4096];
  for (;;) {
    const ssize_t got = recv(fd.get(), chunk, sizeof chunk, 0);
    EXPECT_FALSE(got < 0 && errno == EAGAIN) << "neither answered nor closed";
    if (got <= 0) return answer;
    answer.insert(answer.end(), chunk, chunk + got);
  }
}

std::vector<std::byte> hello_with(const control::Token& token, uint64_t attempt,
                                  std::vector<std::byte> recorded, uint64_t other_process = 0) {
  wire::Hello hello;
  std::memcpy(&hello, recorded.data() + control::kHeaderBytes, sizeof hello);
  hello.process += other_process;
  std::vector<std::byte> frame;
  control::Encoder(control::direction_key(token, {}, true), attempt)
      .append(uint16_t(wire::Type::kHello), std::as_bytes(std::span(&hello, 1)), frame);
  return frame;
}

/// Nobody gets an answer to a hello that is old, forged, cut or under another token.
void expect_silence(const wire::Handle& handle, const std::vector<std::vector<std::byte>>& recorded) {
  for (const auto& heard : recorded) {
    ASSERT_GE(heard.size(), kFrame);
    const std::vector<std::byte> hello(heard.begin(), heard.begin() + kFrame);
    EXPECT_TRUE(answer_to(handle.where, hello).empty());
    for (size_t at = 0; at < kFrame; at += 23) {
      std::vector<std::byte> forged = hello;
      forged[at] ^= std::byte{0x10};
      EXPECT_TRUE(answer_to(handle.where, forged).empty()) << "byte " << at;
    }
    EXPECT_TRUE(answer_to(handle.where, {hello.begin(), hello.begin() + kFrame / 2}).empty());
    control::Token other = handle.token;
    other[0] ^= 1;
    EXPECT_TRUE(answer_to(handle.where, hello_with(other, 1000, hello)).empty());
  }
}

TEST(Greeting, a_recorded_or_forged_hello_changes_nothing) {
  Pair pair(
      kPatient,
      [](const Link& link) {
        Net* n = net();
        Listener* listener = nullptr;
        Channel* channel = accept_one(*n, 0, link, listener);
        ASSERT_NE(channel, nullptr);
        EXPECT_EQ(channel->number(), 0u);
        receive_messages(*n, channel, 0, kMessages);
        ASSERT_TRUE(one_more_round(link));  // now hellos come
        receive_messages(*n, channel, kMessages, 2 * kMessages);
        EXPECT_TRUE(n->close(channel).ok());
        ASSERT_TRUE(one_more_round(link));  // they come again
        auto nobody = n->accept(listener);
        ASSERT_TRUE(nobody.ok());
        EXPECT_EQ(*nobody, nullptr);
        EXPECT_TRUE(n->close(listener).ok());
        ASSERT_TRUE(one_more_round(link));  // and again
        receive_with(link, 0, [](Net& net, Channel* next) {
          EXPECT_EQ(next->number(), 1u) << "some hello has made a channel";
          receive_messages(net, next, 0, kMessages);
        });
      },
      kPatient,
      [](const Link& link) {
        Net* n = net();
        Channel* channel = connect_one(*n, 0, link);
        ASSERT_NE(channel, nullptr);
        send_messages(*n, channel, 0, kMessages);
        ASSERT_TRUE(one_more_round(link));
        send_messages(*n, channel, kMessages, 2 * kMessages);
        EXPECT_TRUE(n->close(channel).ok());
        send_all(link, kMessages);
      });
  // The acceptor has the hello, and the sender will not have the welcome for a while.
  ASSERT_TRUE(pair.set_up({{Action::kClose, false, 0}, {Action::kHang, false, kFrame / 2}}));
  pair.wait_for_actions(2);
  const auto recorded = pair.proxy->heard();
  ASSERT_GE(recorded.size(), 2u);
  EXPECT_NE(recorded[0], recorded[1]) << "a hello must not be the same twice";
  const std::vector<std::vector<std::byte>> hellos(recorded.begin(), recorded.begin() + 2);
  expect_silence(pair.handle, hellos);
  ASSERT_TRUE(pair.carried());
  expect_silence(pair.handle, hellos);
  // Even somebody with the token cannot take over what is set up.
  EXPECT_TRUE(answer_to(pair.handle.where, hello_with(pair.handle.token, 1000, hellos[0])).empty());
  pair.go_on(true);
  char word;
  ASSERT_TRUE(pair.receiver.link.receive(&word, 1));
  expect_silence(pair.handle, hellos);
  pair.receiver.link.send("+", 1);
  ASSERT_TRUE(pair.receiver.link.receive(&word, 1));
  expect_silence(pair.handle, hellos);
  // Whoever has the token is told what has become of the listener.
  auto refusal = answer_to(pair.handle.where, hello_with(pair.handle.token, 0, hellos[0], 1));
  control::Message message;
  auto told = control::Decoder(control::direction_key(pair.handle.token, {}, false)).next(refusal, message);
  ASSERT_TRUE(told.ok() && *told);
  EXPECT_EQ(message.type, uint16_t(wire::Type::kRefuse));
  EXPECT_NE(std::string(message.as<wire::Sentence>().value().text).find("has closed the listener"),
            std::string::npos);
  pair.receiver.link.send("+", 1);
  ASSERT_TRUE(pair.set_up({}));
  pair.expect_both_well();
}

/// Listens, and lives until it is killed.
void listen_and_wait(const Link& link) {
  std::array<std::byte, kHandleBytes> handle{};
  auto listener = net()->listen(0, handle.data());
  ASSERT_TRUE(listener.ok());
  link.send(handle.data(), handle.size());
  for (;;) pause();
}

TEST(Greeting, an_acceptor_that_ended_before_the_hello_is_an_error_that_says_so) {
  Pair pair(kPatient, listen_and_wait, kPatient, [](const Link& link) {
    expect_connect_error(link, ErrorCode::kPeerGone, {"that process ended"});
  });
  ASSERT_TRUE(pair.hear_handle());
  kill(pair.receiver.pid, SIGKILL);
  EXPECT_EQ(pair.receiver.wait(), 128 + SIGKILL);
  pair.pass_handle_on(false);
  EXPECT_EQ(pair.sender.wait(120s), 0);
}

TEST(Greeting, an_acceptor_that_ends_in_its_welcome_is_an_error_that_says_so) {
  Pair pair(kPatient, listen_and_wait, kPatient, [](const Link& link) {
    expect_connect_error(link, ErrorCode::kPeerGone, {"that process ended"});
  });
  ASSERT_TRUE(pair.set_up({{Action::kHang, false, kFrame / 2}}));
  pair.wait_for_actions(1);
  kill(pair.receiver.pid, SIGKILL);
  EXPECT_EQ(pair.receiver.wait(), 128 + SIGKILL);
  pair.proxy->shut();  // as the port of a process that ended
  EXPECT_EQ(pair.sender.wait(120s), 0);
}

TEST(Greeting, a_sender_that_ends_before_it_has_the_welcome_is_an_error_that_says_so) {
  Pair pair(
      kPatient,
      [](const Link& link) { expect_accept_error(link, ErrorCode::kPeerGone, {"that process ended"}); },
      kPatient, [](const Link& link) { (void)connect_one(*net(), 0, link); });
  ASSERT_TRUE(pair.set_up({}, {Action::kClose, false, 0}));
  pair.wait_for_actions(2);
  kill(pair.sender.pid, SIGKILL);
  EXPECT_EQ(pair.sender.wait(), 128 + SIGKILL);
  EXPECT_EQ(pair.receiver.wait(120s), 0);
}

// However often it has been said: one hello, one channel; and that one does not linger when the sender has
// given up.
TEST(Greeting, what_never_comes_about_ends_at_both_ends_with_the_reason) {
  Pair pair(
      {{"R2CC_CONNECT_MS", "3000"}},
      [](const Link& link) {
        expect_accept_error(link, ErrorCode::kSystem, {"R2CC_CONNECT_MS", "control connection broke"});
        receive_with(link, 0, [](Net& n, Channel* channel) {
          EXPECT_EQ(channel->number(), 1u) << "the hellos have made more than one channel";
          receive_messages(n, channel, 0, kMessages);
        });
      },
      {{"R2CC_CONNECT_MS", "2000"}},
      [](const Link& link) {
        expect_connect_error(link, ErrorCode::kSystem, {"R2CC_CONNECT_MS", "control connection broke"});
        send_all(link, kMessages);
      });
  ASSERT_TRUE(pair.set_up({}, {Action::kReset, false, 0}));
  pair.wait_for_actions(3);
  ASSERT_TRUE(pair.hear_handle());
  EXPECT_GE(pair.proxy->actions(), 3);
  pair.proxy->lead_to(pair.handle.where, {});
  pair.pass_handle_on();
  pair.expect_both_well();
}

TEST(Greeting, a_listener_that_is_closed_in_set_up_ends_it_at_the_sender) {
  Pair pair(
      kPatient,
      [](const Link& link) {
        Net* n = net();
        std::array<std::byte, kHandleBytes> handle{};
        auto listener = n->listen(0, handle.data());
        ASSERT_TRUE(listener.ok());
        link.send(handle.data(), handle.size());
        char word;
        ASSERT_TRUE(link.receive(&word, 1));
        EXPECT_TRUE(n->close(*listener).ok());
        link.send(&word, 1);
        EXPECT_TRUE(link.receive(&word, 1));
      },
      kPatient, [](const Link& link) { expect_connect_error(link, ErrorCode::kPeerGone, {"closed"}); });
  ASSERT_TRUE(pair.set_up({}, {Action::kClose, false, kFrame / 3}));
  pair.wait_for_actions(3);
  char word = 'c';
  pair.receiver.link.send(&word, 1);
  ASSERT_TRUE(pair.receiver.link.receive(&word, 1));
  pair.proxy->lead_to(pair.handle.where, {});
  EXPECT_EQ(pair.sender.wait(120s), 0);
  pair.receiver.link.send(&word, 1);
  EXPECT_EQ(pair.receiver.wait(120s), 0);
}

// NCCL asks no more for a connection whose communicator it has given up, and then nobody closes it.
TEST(Greeting, what_never_comes_about_keeps_no_queue_pairs) {
  const auto fabric = make_fabric(2, 2, 0, 10s);  // no probe comes back in time
  const Environment hasty{{"R2CC_CONNECT_MS", "3000"}};
  const auto ask_for_a_while = [](const auto& ask) {
    for (const auto until = std::chrono::steady_clock::now() + 200ms;
         std::chrono::steady_clock::now() < until;) {
      auto asked = ask();
      if (!asked.ok()) return;  // that late
      EXPECT_EQ(*asked, nullptr) << "connected";
    }
  };
  const auto wait = [](const Link& link) {
    char word = 1;
    link.send(&word, 1);
    EXPECT_TRUE(link.receive(&word, 1));
  };
  const Child receiver = start(fabric, 1, hasty, [&](const Link& link) {
    std::array<std::byte, kHandleBytes> handle{};
    auto listener = net()->listen(0, handle.data());
    ASSERT_TRUE(listener.ok());
    link.send(handle.data(), handle.size());
    ask_for_a_while([&] { return net()->accept(*listener); });
    wait(link);
  });
  const Child sender = start(fabric, 0, hasty, [&](const Link& link) {
    std::array<std::byte, kHandleBytes> handle{};
    ASSERT_TRUE(link.receive(handle.data(), handle.size()));
    ask_for_a_while([&] { return net()->connect(0, handle.data()); });
    wait(link);
  });
  relay_handle(receiver, sender);
  const auto until = std::chrono::steady_clock::now() + 20s;
  const auto wait_for = [&](bool some) {
    while ((fabric.usage().queue_pairs > 0) != some && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(1ms);
    EXPECT_EQ(fabric.usage().queue_pairs > 0, some);
  };
  wait_for(true);
  char word;
  EXPECT_TRUE(receiver.link.receive(&word, 1));
  EXPECT_TRUE(sender.link.receive(&word, 1));
  wait_for(false);
  for (const Child* child : {&receiver, &sender}) {
    child->link.send(&word, 1);
    EXPECT_EQ(child->wait(), 0);
  }
}

TEST(Greeting, a_refusal_that_is_lost_is_said_again) {
  Pair pair(
      {{"R2CC_MODE", "2"}, {"R2CC_CONNECT_MS", "600000"}},
      [](const Link& link) {
        expect_accept_error(link, ErrorCode::kModeMismatch, {"R2CC_MODE=1", "R2CC_MODE=2"});
        char word;
        EXPECT_FALSE(link.receive(&word, 1));
      },
      {{"R2CC_MODE", "1"}, {"R2CC_CONNECT_MS", "600000"}},
      [](const Link& link) {
        expect_connect_error(link, ErrorCode::kModeMismatch, {"refused", "R2CC_MODE=1", "R2CC_MODE=2"});
      });
  ASSERT_TRUE(
      pair.set_up({{Action::kClose, false, 0}, {Action::kReset, false, 100}, {Action::kClose, true, 10}}));
  EXPECT_EQ(pair.sender.wait(120s), 0);
  EXPECT_EQ(pair.proxy->actions(), 3);
  const auto recorded = pair.proxy->heard();
  ASSERT_EQ(recorded.size(), 4u);
  expect_silence(pair.handle, {recorded[0], recorded[1], recorded[3]});
  close(pair.receiver.link.fd);
  EXPECT_EQ(pair.receiver.wait(120s), 0);
}

}  // namespace
}  // namespace r2ccl
