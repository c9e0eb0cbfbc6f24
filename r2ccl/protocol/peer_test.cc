// SPDX-License-Identifier: Apache-2.0
// What two ends must agree on, and what one of them knows of the other.
#include "r2ccl/protocol/peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <functional>

namespace r2ccl {
namespace {

wire::Hello hello_of(const char* host) {
  wire::Hello hello{};
  hello.magic = wire::kHandleMagic;
  hello.version = wire::kWireVersion;
  hello.mode = 2;
  hello.strict_ack = 1;
  hello.process = 77;
  hello.requests = 32;
  hello.ring_lines = wire::kRingLines;
  hello.nics = 2;
  hello.home_nic = 1;
  hello.channel = 5;
  std::strncpy(hello.host, host, sizeof hello.host - 1);
  std::strncpy(hello.nic_names[0], "mlx5_0", sizeof hello.nic_names[0] - 1);
  std::strncpy(hello.nic_names[1], "mlx5_1", sizeof hello.nic_names[1] - 1);
  return hello;
}

/// Why two ends that would agree do not after `change`.
std::string differs(const std::function<void(wire::Hello&)>& change) {
  wire::Hello theirs = hello_of("b");
  change(theirs);
  const auto agreed = agree(hello_of("a"), theirs);
  return agreed ? "" : agreed.error().message;
}

TEST(Agree, two_of_a_kind_do) {
  EXPECT_EQ(differs([](wire::Hello&) {}), "");
  EXPECT_EQ(differs([](wire::Hello& h) { h.nics = 8, h.home_nic = 7, h.copied_bytes = 64; }), "");
  EXPECT_EQ(differs([](wire::Hello& h) { h.strict_ack = 2; }), "") << "any number but 0 is yes";
}

TEST(Agree, the_error_says_who_runs_what) {
  EXPECT_EQ(differs([](wire::Hello& h) { h.magic = 1; }), "b does not speak R2CCL's protocol");
  const std::string version = std::to_string(wire::kWireVersion);
  EXPECT_EQ(differs([](wire::Hello& h) { h.version = 300; }),
            "b speaks wire version 300, a speaks " + version);
  EXPECT_EQ(differs([](wire::Hello& h) { h.mode = 0; }), "b runs R2CC_MODE=0, a runs R2CC_MODE=2");
  EXPECT_EQ(differs([](wire::Hello& h) { h.strict_ack = 0; }), "b runs R2CC_STRICT_ACK=0, a the opposite");
  EXPECT_EQ(differs([](wire::Hello& h) { h.host[0] = 0, h.mode = 0; }),
            "the peer runs R2CC_MODE=0, a runs R2CC_MODE=2");
}

TEST(Agree, the_error_has_a_code_of_its_own) {
  const auto code = [](const std::function<void(wire::Hello&)>& change) {
    wire::Hello theirs = hello_of("b");
    change(theirs);
    return agree(hello_of("a"), theirs).error().code;
  };
  EXPECT_EQ(code([](wire::Hello& h) { h.magic = 1; }), ErrorCode::kBadHandle);
  EXPECT_EQ(code([](wire::Hello& h) { h.version = 300; }), ErrorCode::kVersionMismatch);
  EXPECT_EQ(code([](wire::Hello& h) { h.mode = 0; }), ErrorCode::kModeMismatch);
  EXPECT_EQ(code([](wire::Hello& h) { h.strict_ack = 0; }), ErrorCode::kModeMismatch);
  EXPECT_EQ(code([](wire::Hello& h) { h.ring_lines = 1; }), ErrorCode::kVersionMismatch);
}

TEST(Agree, limits_that_would_be_written_beyond_are_refused) {
  const std::string refused = "b has other limits (requests, ring, NICs) than this plugin";
  EXPECT_EQ(differs([](wire::Hello& h) { h.ring_lines = 32; }), refused);
  EXPECT_EQ(differs([](wire::Hello& h) { h.requests = 64; }), refused);
  EXPECT_EQ(differs([](wire::Hello& h) { h.nics = 0, h.home_nic = 0; }), refused);
  EXPECT_EQ(differs([](wire::Hello& h) { h.nics = wire::kMaxNics + 1; }), refused);
  EXPECT_EQ(differs([](wire::Hello& h) { h.home_nic = h.nics; }), refused);
}

TEST(Agree, a_host_name_without_an_end_is_cut) {
  const std::string why = differs([](wire::Hello& h) {
    std::memset(h.host, 'x', sizeof h.host);
    h.mode = 0;
  });
  EXPECT_EQ(why.substr(0, 70), std::string(64, 'x') + " runs ");
}

TEST(Peer, is_named_by_what_is_known) {
  Peer peer;
  EXPECT_EQ(peer.name(), "the peer");
  control::Endpoint where;
  where.family = AF_INET;
  where.port = htons(4711);
  where.address[0] = 127, where.address[3] = 1;
  peer.listens(where);
  EXPECT_EQ(peer.name(), "the peer at " + control::text(where));
  wire::Hello hello = hello_of("node7");
  hello.copied_bytes = 64;
  peer.greeted(hello);
  EXPECT_EQ(peer.copied_bytes(), 64u);
  EXPECT_EQ(peer.name(), "node7");
  EXPECT_EQ(peer.nic_name(1), "mlx5_1");
  EXPECT_EQ(peer.home_nic(), 1);
  EXPECT_EQ(peer.process(), 77u);
  EXPECT_EQ(peer.channel(), 5u);
}

TEST(Peer, names_without_an_end_are_cut) {
  wire::Hello hello = hello_of("b");
  std::memset(hello.host, 'h', sizeof hello.host);
  std::memset(hello.nic_names, 'n', sizeof hello.nic_names);
  Peer peer;
  peer.greeted(hello);
  EXPECT_EQ(peer.name(), std::string(sizeof hello.host - 1, 'h'));
  EXPECT_EQ(peer.nic_name(0), std::string(sizeof hello.nic_names[0] - 1, 'n'));
}

TEST(Peer, knows_which_of_its_nics_are_left) {
  Peer peer;
  peer.greeted(hello_of("b"));
  EXPECT_TRUE(peer.known_nic(1));
  EXPECT_FALSE(peer.known_nic(2));
  EXPECT_FALSE(peer.nic_down(0));
  peer.nic_changed({0, wire::NicState::kDown}, 100);
  EXPECT_TRUE(peer.nic_down(0));
  EXPECT_FALSE(peer.nic_left(0));
  EXPECT_FALSE(peer.nic_down(1));
  peer.nic_changed({0, wire::NicState::kLeft}, 200);
  EXPECT_TRUE(peer.nic_down(0) && peer.nic_left(0));
  EXPECT_FALSE(peer.nic_left(1));
  EXPECT_EQ(peer.nic_changed_at(0), 200u);
  peer.nic_changed({0, wire::NicState::kUp}, 300);
  EXPECT_FALSE(peer.nic_down(0) || peer.nic_left(0));
}

TEST(Peer, is_told_whether_a_port_is_down_or_the_nic_takes_no_buffers) {
  EXPECT_EQ(state_of_lost(true), wire::NicState::kDown);
  EXPECT_EQ(state_of_lost(false), wire::NicState::kLeft);
}

}  // namespace
}  // namespace r2ccl
