// SPDX-License-Identifier: Apache-2.0
// Link over a pair of sockets: what is lost with a connection is said again, in order and once; what is
// forged or old changes nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "r2ccl/control/interface.h"
#include "r2ccl/control/link.h"

namespace r2ccl::control {
namespace {

struct Ends {
  Stream one, two;
};

Ends connect() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  return {Stream(Descriptor(fds[0])), Stream(Descriptor(fds[1]))};
}

constexpr uint16_t kNumber = 7;

class LinkTest : public ::testing::Test {
 protected:
  LinkTest() : LinkTest(connect()) {}
  explicit LinkTest(Ends ends)
      : token(random_token()),
        connector(std::move(ends.one), token, true),
        acceptor(std::move(ends.two), token, false) {
    say(connector, 100);  // the greeting
    EXPECT_EQ(hear(acceptor), std::vector<uint64_t>{100});
    say(acceptor, 200);
    EXPECT_EQ(hear(connector), std::vector<uint64_t>{200});
    const Token nonce = random_token();
    connector.rekey(nonce);
    acceptor.rekey(nonce);
  }

  static void say(Link& link, uint64_t number) { link.say(kNumber, std::as_bytes(std::span(&number, 1))); }
  static std::vector<uint64_t> hear(Link& link) {
    std::vector<uint64_t> numbers;
    link.fill();
    Message message;
    for (;;) {
      auto got = link.next(message);
      EXPECT_TRUE(got.ok());
      if (!got || !*got) return numbers;
      EXPECT_EQ(message.type, kNumber);
      numbers.push_back(message.as<uint64_t>().value());
    }
  }
  /// What the connector's question looks like on the wire.
  static std::vector<std::byte> take(Stream& stream) {
    stream.fill();
    return stream.incoming;
  }
  bool reconnect() {
    Ends ends = connect();
    connector.ask(std::move(ends.one), 1, 2);
    ends.two.fill();
    return acceptor.accept(std::move(ends.two));
  }

  Token token;
  Link connector, acceptor;
};

TEST_F(LinkTest, what_was_lost_with_the_connection_is_heard_over_the_next_once_and_in_order) {
  say(connector, 1);
  say(acceptor, 11);
  EXPECT_EQ(hear(acceptor), std::vector<uint64_t>{1});  // heard, but the connector does not know
  say(connector, 2);
  connector.close();
  acceptor.close();
  say(connector, 3);
  say(acceptor, 12);
  ASSERT_TRUE(reconnect());
  EXPECT_TRUE(connector.asking());
  say(connector, 4);
  EXPECT_EQ(hear(connector), (std::vector<uint64_t>{11, 12}));
  EXPECT_TRUE(connector.up());
  EXPECT_EQ(hear(acceptor), (std::vector<uint64_t>{2, 3, 4}));
  say(acceptor, 13);
  EXPECT_EQ(hear(connector), std::vector<uint64_t>{13});
}

TEST_F(LinkTest, many_outages_lose_nothing) {
  uint64_t said = 0, heard = 0;
  unsigned random = 1;
  for (int round = 0; round < 200; ++round) {
    for (unsigned i = (random = random * 1103515245 + 12345) >> 16 & 7; i > 0; --i) say(connector, said++);
    if (random & 0x1000000) {
      for (const uint64_t number : hear(acceptor)) ASSERT_EQ(number, heard++);
    }
    hear(connector);
    connector.close();
    if (random & 0x2000000) acceptor.close();
    ASSERT_TRUE(reconnect());
    EXPECT_TRUE(hear(connector).empty());
  }
  for (const uint64_t number : hear(acceptor)) ASSERT_EQ(number, heard++);
  EXPECT_EQ(heard, said);
  EXPECT_GT(said, 300u);
}

TEST_F(LinkTest, a_question_is_good_for_one_connection) {
  Ends first = connect();
  connector.ask(std::move(first.one), 1, 2);
  const std::vector<std::byte> question = take(first.two);
  ASSERT_TRUE(Link::asked(question));
  EXPECT_EQ(Link::asked(question)->channel, 2u);
  ASSERT_TRUE(acceptor.accept(std::move(first.two)));
  hear(connector);
  const uint32_t before = acceptor.generation();
  Ends second = connect();
  second.two.incoming = question;
  EXPECT_FALSE(acceptor.accept(std::move(second.two)));
  EXPECT_EQ(acceptor.generation(), before);
  say(connector, 5);
  EXPECT_EQ(hear(acceptor), std::vector<uint64_t>{5});
}

TEST_F(LinkTest, a_forged_or_truncated_question_changes_nothing) {
  Ends ends = connect();
  connector.ask(std::move(ends.one), 1, 2);
  const std::vector<std::byte> question = take(ends.two);
  connector.close();
  for (size_t at = 0; at < question.size(); ++at) {
    Ends other = connect();
    other.two.incoming = question;
    other.two.incoming[at] ^= std::byte{1};
    EXPECT_FALSE(acceptor.accept(std::move(other.two))) << "byte " << at;
    Ends third = connect();
    third.two.incoming.assign(question.begin(), question.begin() + long(at));
    EXPECT_FALSE(acceptor.accept(std::move(third.two))) << at << " bytes";
  }
  EXPECT_TRUE(acceptor.up()) << "it still has its connection";
  ASSERT_TRUE(reconnect());
  hear(connector);
  say(acceptor, 9);
  EXPECT_EQ(hear(connector), std::vector<uint64_t>{9});
}

TEST_F(LinkTest, an_answer_that_is_none_makes_the_connection_useless_and_the_next_one_works) {
  Ends ends = connect();
  connector.ask(std::move(ends.one), 1, 2);
  const char nonsense[64] = "this is no answer, whatever it may say of itself .............";
  ASSERT_EQ(write(ends.two.fd(), nonsense, sizeof nonsense), ssize_t(sizeof nonsense));
  connector.fill();
  Message message;
  EXPECT_FALSE(connector.next(message).ok());
  connector.close();
  say(connector, 6);
  ASSERT_TRUE(reconnect());
  hear(connector);
  EXPECT_EQ(hear(acceptor), std::vector<uint64_t>{6});
}

TEST(Link, before_both_have_agreed_on_keys_nothing_is_resumed) {
  const Token token = random_token();
  Ends ends = connect();
  Link acceptor(std::move(ends.two), token, false);
  EXPECT_FALSE(acceptor.resumable());
  EXPECT_FALSE(acceptor.accept(std::move(ends.one)));
}

// What is said before both have agreed on keys: the connector's first message, and the answer.
class Greeting : public ::testing::Test {
 protected:
  Greeting() : Greeting(connect()) {}
  explicit Greeting(Ends ends)
      : connector(std::move(ends.one), token, true), acceptor(std::move(ends.two), token, false) {
    connector.say(kHello, std::as_bytes(std::span(&hello, 1)));
  }

  /// The acceptor hears the first message and answers it.
  void answer() { answer(acceptor); }
  void answer(Link& other) {
    EXPECT_EQ(hear(other), kHello);
    other.say(kWelcome, std::as_bytes(std::span(&nonce, 1)));
    other.rekey(nonce);
  }
  void hear_answer() {
    EXPECT_EQ(hear(connector), kWelcome);
    connector.rekey(nonce);
  }
  static uint16_t hear(Link& link) {
    link.fill();
    Message message;
    auto got = link.next(message);
    EXPECT_TRUE(got.ok());
    return got && *got ? message.type : uint16_t{0};
  }
  /// Bytes of the connector's next connection, and where its other end is.
  Stream say_again() {
    Ends ends = connect();
    connector.begin_again(std::move(ends.one));
    ends.two.fill();
    return std::move(ends.two);
  }
  static Stream stream_of(const std::vector<std::byte>& bytes) {
    Ends ends = connect();
    ends.two.incoming = bytes;
    return std::move(ends.two);
  }
  /// Both go on as if nothing had been.
  void expect_conversation() { expect_conversation(acceptor); }
  void expect_conversation(Link& other) {
    for (const uint16_t type : {uint16_t{10}, uint16_t{11}}) {
      connector.say(type, {});
      EXPECT_EQ(hear(other), type);
      other.say(type, {});
      EXPECT_EQ(hear(connector), type);
    }
  }

  static constexpr uint16_t kHello = 1, kWelcome = 2;
  const uint64_t hello = 0x1234567890;
  const Token token = random_token();
  const Token nonce = random_token();
  Link connector, acceptor;
};

TEST_F(Greeting, a_lost_answer_comes_again_with_what_followed) {
  answer();
  acceptor.say(20, {});
  connector.fill();
  EXPECT_GT(connector.waiting(), kHeaderBytes);
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_TRUE(acceptor.accept(say_again()));
    EXPECT_EQ(connector.waiting(), 0u) << "half an answer of the last connection is no part of this one";
  }
  hear_answer();
  EXPECT_EQ(hear(connector), 20);
  expect_conversation();
}

TEST_F(Greeting, a_first_message_that_was_lost_is_the_first_over_the_next_connection) {
  say_again();
  Stream third = say_again();
  const auto first = Link::first(third.incoming, token);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->attempt, 2u);
  EXPECT_EQ(first->message.as<uint64_t>().value(), hello);
  Link other(std::move(third), token, false);
  answer(other);
  hear_answer();
  expect_conversation(other);
}

TEST_F(Greeting, the_connection_may_break_when_the_answer_has_just_come) {
  answer();
  hear_answer();
  acceptor.say(20, {});
  connector.close();
  connector.say(21, {});
  Ends ends = connect();
  connector.ask(std::move(ends.one), 1, 2);
  ends.two.fill();
  ASSERT_TRUE(acceptor.accept(std::move(ends.two)));
  EXPECT_EQ(hear(connector), 20);
  EXPECT_EQ(hear(acceptor), 21);
  expect_conversation();
}

TEST_F(Greeting, an_old_first_message_changes_nothing) {
  answer();
  Stream second = say_again();
  const std::vector<std::byte> recorded = second.incoming;
  ASSERT_TRUE(acceptor.accept(std::move(second)));
  const uint32_t before = acceptor.generation();
  EXPECT_FALSE(acceptor.accept(stream_of(recorded)));
  EXPECT_EQ(acceptor.generation(), before);
  hear_answer();
  expect_conversation();
}

TEST_F(Greeting, once_the_connector_is_known_to_have_the_answer_no_first_message_is_taken) {
  answer();
  const std::vector<std::byte> never_arrived = say_again().incoming;
  ASSERT_TRUE(acceptor.accept(say_again()));
  hear_answer();
  const uint32_t before = acceptor.generation();
  Encoder forger(direction_key(token, Token{}, true), 1000);  // whoever has the token
  std::vector<std::byte> later;
  forger.append(kHello, std::as_bytes(std::span(&hello, 1)), later);
  connector.say(10, {});
  EXPECT_EQ(hear(acceptor), 10);
  EXPECT_FALSE(acceptor.accept(stream_of(never_arrived)));
  EXPECT_FALSE(acceptor.accept(stream_of(later)));
  EXPECT_EQ(acceptor.generation(), before);
  expect_conversation();
}

TEST_F(Greeting, a_wish_to_go_on_shows_that_the_answer_has_come) {
  answer();
  hear_answer();
  connector.close();
  Ends ends = connect();
  connector.ask(std::move(ends.one), 1, 2);
  ends.two.fill();
  ASSERT_TRUE(acceptor.accept(std::move(ends.two)));
  Encoder forger(direction_key(token, Token{}, true), 1000);
  std::vector<std::byte> later;
  forger.append(kHello, std::as_bytes(std::span(&hello, 1)), later);
  EXPECT_FALSE(acceptor.accept(stream_of(later)));
  hear(connector);
  expect_conversation();
}

TEST_F(Greeting, a_forged_or_truncated_first_message_changes_nothing) {
  answer();
  const std::vector<std::byte> again = say_again().incoming;
  const uint32_t before = acceptor.generation();
  for (size_t at = 0; at < again.size(); ++at) {
    std::vector<std::byte> forged = again;
    forged[at] ^= std::byte{1};
    EXPECT_FALSE(acceptor.accept(stream_of(forged))) << "byte " << at;
    EXPECT_FALSE(Link::first(forged, token)) << "byte " << at;
    EXPECT_FALSE(acceptor.accept(stream_of({again.begin(), again.begin() + long(at)}))) << at << " bytes";
  }
  Encoder stranger(direction_key(random_token(), Token{}, true), 1000);
  std::vector<std::byte> other_token;
  stranger.append(kHello, std::as_bytes(std::span(&hello, 1)), other_token);
  EXPECT_FALSE(acceptor.accept(stream_of(other_token)));
  EXPECT_EQ(acceptor.generation(), before);
  ASSERT_TRUE(acceptor.accept(say_again()));
  hear_answer();
  expect_conversation();
}

TEST_F(Greeting, a_connector_says_its_first_message_even_if_there_has_never_been_a_connection) {
  Link late(Stream(), token, true);
  late.say(kHello, std::as_bytes(std::span(&hello, 1)));
  late.say(5, {});  // nobody could understand it
  Ends ends = connect();
  late.begin_again(std::move(ends.one));
  ends.two.fill();
  const auto first = Link::first(ends.two.incoming, token);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->message.type, kHello);
  EXPECT_EQ(ends.two.incoming.size(), kHeaderBytes + sizeof hello);
}

// --- forked children --------------------------------------------------------------------------------------

/// What `look` says in a forked child that has closed what it must.
bool in_child(const std::function<bool()>& look) {
  const pid_t child = fork();
  if (child == 0) {
    close_all_in_child();
    _exit(look() ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(ForkedChild, has_no_copy_of_any_connection_however_many_there_are) {
  constexpr rlim_t kPairs = 2600;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, std::max(before, 2 * kPairs + 100));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 2 * kPairs + 100) GTEST_SKIP() << "ulimit -n is " << limit.rlim_cur;
  {
    std::vector<Ends> all(kPairs);
    for (Ends& ends : all) ends = connect();
    EXPECT_TRUE(in_child([&] {
      return std::none_of(all.begin(), all.end(),
                          [](const Ends& ends) { return is_open(ends.one.fd()) || is_open(ends.two.fd()); });
    }));
    EXPECT_TRUE(is_open(all.back().two.fd())) << "the parent's own";
  }
  limit.rlim_cur = before;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(ForkedChild, has_no_copy_of_a_connection_that_is_still_being_made) {
  Endpoint where;
  auto listener = listen_any({}, where);
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  auto connecting = start_connect(where);
  ASSERT_TRUE(connecting.ok()) << connecting.error().message;
  EXPECT_TRUE(in_child([&] { return is_open(listener->get()) && !is_open(connecting->get()); }));
  EXPECT_TRUE(is_open(connecting->get()));
}

TEST(ForkedChild, keeps_what_has_the_number_of_a_listener_that_was_closed) {
  Descriptor listener(open("/dev/null", O_RDONLY | O_CLOEXEC));
  listener.close_in_child();
  Descriptor moved = std::move(listener);
  const int number = moved.get();
  EXPECT_TRUE(in_child([&] { return !is_open(number); }));
  moved = Descriptor();
  const Descriptor other(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(other.get(), number);
  EXPECT_TRUE(in_child([&] { return is_open(number); }));
}

TEST(ForkedChild, keeps_what_was_given_away) {
  Descriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
  one.close_in_child();
  const Descriptor given(one.release());
  EXPECT_TRUE(in_child([&] { return is_open(given.get()); }));
}

}  // namespace
}  // namespace r2ccl::control
