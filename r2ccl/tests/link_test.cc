// Link over a pair of sockets: what is lost with a connection is said again, in order and once; what is
// forged or old changes nothing.
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

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

}  // namespace
}  // namespace r2ccl::control
