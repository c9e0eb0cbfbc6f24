// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/secure_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "harness/launch/rendezvous.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const std::string kSecret = "0123456789abcdef";

/// Both ends of a connection; each end introduces itself while the other one does.
struct Pair {
  explicit Pair(const std::string& of_runner = kSecret, const std::string& of_agent = kSecret) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    std::thread other([&] { agent = SecureLink(ends[1], of_agent, SecureLink::End::kAgent, 5s); });
    runner = SecureLink(ends[0], of_runner, SecureLink::End::kRunner, 5s);
    other.join();
  }
  SecureLink runner, agent;
};

TEST(SecureLink, carries_messages_and_binary_data_both_ways) {
  Pair pair;
  const std::vector<uint8_t> bytes = {0, 1, 2, 255};
  ASSERT_TRUE(pair.agent.send({{"type", "events"}, {"data", json::binary(bytes)}}));
  const auto events = pair.runner.receive(5s);
  ASSERT_TRUE(events);
  EXPECT_EQ((*events)["data"].get_binary(), json::binary_t(bytes));
  ASSERT_TRUE(pair.runner.send({{"n", 1}}));
  ASSERT_TRUE(pair.runner.send({{"n", 2}}));
  EXPECT_EQ((*pair.agent.receive(5s))["n"], 1);
  EXPECT_EQ((*pair.agent.receive(5s))["n"], 2);
  EXPECT_FALSE(pair.agent.receive(0ms));
  EXPECT_FALSE(pair.agent.closed());
}

TEST(SecureLink, who_has_another_secret_is_not_heard) {
  Pair pair(kSecret, "another secret of the right length");
  ASSERT_TRUE(pair.agent.send({{"type", "hello"}}));
  EXPECT_FALSE(pair.runner.receive(5s));
  EXPECT_EQ(pair.runner.why(), "the peer does not know the job's secret");
  // Nor the other way round.
  Pair back("another secret of the right length", kSecret);
  ASSERT_TRUE(back.runner.send({{"type", "prepare"}}));
  EXPECT_FALSE(back.agent.receive(5s));
  EXPECT_EQ(back.agent.why(), "the peer does not know the job's secret");
}

TEST(SecureLink, a_short_secret_is_refused) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const SecureLink link(ends[0], "short", SecureLink::End::kRunner, 1s);
  EXPECT_TRUE(link.closed());
  EXPECT_NE(link.why().find("16 characters"), std::string::npos) << link.why();
  close(ends[1]);
}

/// Sits between the two ends of a link and can change what passes.
struct Relay {
  explicit Relay() {
    int left[2], right[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, left), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, right), 0);
    near = left[1], far = right[1];
    std::thread agent_end([&] { agent = SecureLink(right[0], kSecret, SecureLink::End::kAgent, 5s); });
    std::thread runner_end([&] { runner = SecureLink(left[0], kSecret, SecureLink::End::kRunner, 5s); });
    const std::string one = take(near, 40), two = take(far, 40);
    give(far, one), give(near, two);
    agent_end.join(), runner_end.join();
  }
  ~Relay() { close(near), close(far); }
  static std::string take(int fd, size_t bytes) {
    std::string text(bytes, '\0');
    EXPECT_EQ(recv(fd, text.data(), bytes, MSG_WAITALL), ssize_t(bytes));
    return text;
  }
  static std::string take_all(int fd) {
    std::string text(65536, '\0');
    text.resize(size_t(std::max<ssize_t>(0, recv(fd, text.data(), text.size(), 0))));
    return text;
  }
  static void give(int fd, const std::string& text) {
    EXPECT_EQ(send(fd, text.data(), text.size(), 0), ssize_t(text.size()));
  }
  SecureLink runner, agent;
  int near = -1, far = -1;
};

TEST(SecureLink, a_changed_frame_closes_the_link) {
  Relay relay;
  ASSERT_TRUE(relay.agent.send({{"type", "fire"}, {"id", 1}}));
  std::string frame = Relay::take_all(relay.far);
  frame.back() = char(frame.back() ^ 1);
  Relay::give(relay.near, frame);
  EXPECT_FALSE(relay.runner.receive(5s));
  EXPECT_TRUE(relay.runner.closed());
}

TEST(SecureLink, a_frame_is_taken_once_and_in_one_direction_only) {
  Relay relay;
  ASSERT_TRUE(relay.agent.send({{"type", "fire"}, {"id", 1}}));
  const std::string frame = Relay::take_all(relay.far);
  Relay::give(relay.near, frame);
  EXPECT_TRUE(relay.runner.receive(5s));
  Relay::give(relay.far, frame);  // back to who sent it
  EXPECT_FALSE(relay.agent.receive(5s));
  EXPECT_TRUE(relay.agent.closed());
  Relay::give(relay.near, frame);  // once more
  EXPECT_FALSE(relay.runner.receive(5s));
  EXPECT_TRUE(relay.runner.closed());
}

TEST(SecureLink, says_when_the_peer_is_gone) {
  Pair pair;
  pair.agent = SecureLink();
  EXPECT_FALSE(pair.runner.receive(5s));
  EXPECT_EQ(pair.runner.why(), "the peer closed the connection");
}

TEST(Rendezvous, callers_find_the_runner_by_its_addresses) {
  Rendezvous rendezvous(kSecret);
  EXPECT_NE(rendezvous.addresses().find("127.0.0.1:" + std::to_string(rendezvous.port())), std::string::npos);
  SecureLink agent;
  std::string why;
  // The first address has no listener: the second is taken.
  const std::string addresses = "127.0.0.1:1,127.0.0.1:" + std::to_string(rendezvous.port());
  std::thread caller([&] { agent = call_runner(addresses, kSecret, {{"name", "b"}}, 5s, why); });
  const auto found = rendezvous.accept(5s);
  caller.join();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->hello["name"], "b");
  EXPECT_EQ(interface_of(agent.fd()), "lo");
  EXPECT_EQ(interface_of(found->link.fd()), "lo");
}

TEST(Rendezvous, callers_find_the_runner_by_ipv6) {
  if (access("/proc/net/if_inet6", R_OK) != 0) GTEST_SKIP() << "this kernel has no IPv6";
  Rendezvous rendezvous(kSecret);
  const std::string port = std::to_string(rendezvous.port());
  if (rendezvous.addresses().find("[::1]:" + port) == std::string::npos)
    GTEST_SKIP() << "the loopback has no address of IPv6";
  for (const std::string& address : {"[::1]:" + port, "::1:" + port}) {
    SecureLink agent;
    std::string why;
    std::thread caller([&] { agent = call_runner(address, kSecret, {{"name", "b"}}, 5s, why); });
    const auto found = rendezvous.accept(5s);
    caller.join();
    ASSERT_TRUE(found) << address << ": " << why;
    EXPECT_EQ(interface_of(agent.fd()), "lo");
    EXPECT_EQ(interface_of(found->link.fd()), "lo");
  }
}

TEST(Rendezvous, a_stranger_is_sent_away_with_a_note) {
  Rendezvous rendezvous(kSecret);
  SecureLink agent;
  std::string why;
  std::thread caller([&] {
    agent = call_runner("127.0.0.1:" + std::to_string(rendezvous.port()), "not the secret at all",
                        {{"name", "b"}}, 1s, why);
  });
  EXPECT_FALSE(rendezvous.accept(5s));
  caller.join();
  ASSERT_EQ(rendezvous.refused().size(), 1u);
  EXPECT_NE(rendezvous.refused()[0].find("127.0.0.1 was sent away"), std::string::npos);
}

TEST(Rendezvous, a_runner_that_is_not_there_has_a_reason) {
  std::string why;
  const SecureLink link = call_runner("127.0.0.1:1", kSecret, {{"name", "b"}}, 0ms, why);
  EXPECT_TRUE(link.closed());
  EXPECT_EQ(why, "127.0.0.1:1: Connection refused");
}

}  // namespace
}  // namespace r2bench
