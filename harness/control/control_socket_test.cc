// SPDX-License-Identifier: Apache-2.0
#include "harness/control/control_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "harness/control/control_client.h"
#include "harness/control/control_server.h"

namespace r2bench {
namespace {

std::string name_of_this_test(const std::string& text) {
  return "test-" + std::to_string(getpid()) + "-" + text;
}

bool listed(const std::string& name) {
  const auto names = listening_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(ControlSocket, finds_those_of_this_user_that_listen) {
  const std::string text =
      "Num       RefCount Protocol Flags    Type St Inode Path\n"
      "0000000000000001: 00000002 00000000 00010000 0001 01  4711 @r2bench/1000/default\n"
      "0000000000000002: 00000003 00000000 00000000 0001 03  4712 @r2bench/1000/accepted\n"
      "0000000000000003: 00000002 00000000 00010000 0001 01  4713 @r2bench/1001/of_another\n"
      "0000000000000004: 00000002 00000000 00010000 0001 01  4714 @r2bench/1000/run-17\n"
      "0000000000000005: 00000002 00000000 00010000 0001 01  4715 @r2bench/1000/not/one\n"
      "0000000000000006: 00000002 00000000 00010000 0001 01  4716 /run/r2bench/1000/file\n"
      "0000000000000007: 00000003 00000000 00000000 0001 03  4717\n";
  EXPECT_EQ(listening_names(text, 1000), (std::vector<std::string>{"default", "run-17"}));
  EXPECT_TRUE(listening_names("", 1000).empty());
}

TEST(ControlSocket, names_are_short_and_plain) {
  EXPECT_FALSE(wrong_with_name("a.b_c-9"));
  EXPECT_TRUE(wrong_with_name(""));
  EXPECT_TRUE(wrong_with_name("a/b"));
  EXPECT_TRUE(wrong_with_name(std::string(49, 'a')));
}

TEST(ControlSocket, a_name_has_one_owner_and_is_free_once_he_is_gone) {
  const std::string name = name_of_this_test("owner");
  EXPECT_EQ(connect_to(name), -1);
  const int first = listen_at(name);
  ASSERT_GE(first, 0);
  EXPECT_EQ(listen_at(name), -1);
  EXPECT_TRUE(listed(name));
  const int caller = connect_to(name);
  ASSERT_GE(caller, 0);
  EXPECT_EQ(peer_of(caller).uid, geteuid());
  close(first);
  EXPECT_FALSE(listed(name));
  const int second = listen_at(name);
  EXPECT_GE(second, 0);
  close(caller);
  close(second);
}

TEST(ControlServer, answers_tells_errors_and_notices_who_leaves) {
  const std::string name = name_of_this_test("server");
  std::vector<uint64_t> gone;
  ControlServer server(
      listen_at(name),
      [](uint64_t, const Peer& peer, const nlohmann::json& request) -> nlohmann::json {
        EXPECT_EQ(peer.pid, getpid());
        if (request.at("type") == "bad") throw std::out_of_range("no such thing");
        return {{"same", request}};
      },
      [&](uint64_t connection) { gone.push_back(connection); });
  const auto talk = [&](MessageSocket& client, const nlohmann::json& request) {
    client.send(request);
    for (int i = 0; i < 3; ++i) server.serve(std::chrono::milliseconds(0));
    return client.receive(std::chrono::milliseconds(0)).value_or(nullptr);
  };
  std::string chosen;
  {
    MessageSocket a = connect_to_running(name, chosen), b = connect_to_running(name, chosen);
    EXPECT_EQ(chosen, name);
    EXPECT_EQ(talk(a, {{"type", "x"}})["same"]["type"], "x");
    EXPECT_EQ(talk(b, {{"type", "bad"}})["error"], "no such thing");
    EXPECT_TRUE(talk(b, {{"nothing", 1}}).contains("error"));
    EXPECT_TRUE(gone.empty());
    a.close();
    server.serve(std::chrono::milliseconds(0));
    EXPECT_EQ(gone.size(), 1u);
  }
  server.serve(std::chrono::milliseconds(0));
  EXPECT_EQ(gone.size(), 2u);
}

TEST(ControlClient, says_what_there_is) {
  std::string chosen;
  try {
    connect_to_running(name_of_this_test("nobody"), chosen);
    FAIL();
  } catch (const ControlError& error) {
    EXPECT_NE(std::string(error.what()).find("nothing runs under the name '" + name_of_this_test("nobody")),
              std::string::npos);
  }
  const int one = listen_at(name_of_this_test("one")), two = listen_at(name_of_this_test("two"));
  try {
    connect_to_running("", chosen);
    FAIL();
  } catch (const ControlError& error) {
    for (const char* name : {"one", "two"})
      EXPECT_NE(std::string(error.what()).find(name_of_this_test(name)), std::string::npos) << error.what();
  }
  close(one);
  close(two);
}

}  // namespace
}  // namespace r2bench
