// SPDX-License-Identifier: Apache-2.0
// Which interface control connections take: NCCL's choice.
#include "r2ccl/control/interface.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

namespace r2ccl::control {
namespace {

Interface interface(const std::string& name, const char* address, int bits = 24) {
  Interface result;
  result.name = name;
  result.address.family = std::strchr(address, ':') ? AF_INET6 : AF_INET;
  EXPECT_EQ(inet_pton(result.address.family, address, result.address.address), 1);
  result.mask.resize(result.address.family == AF_INET6 ? 16 : 4);
  for (int bit = 0; bit < bits; ++bit) result.mask[size_t(bit / 8)] |= uint8_t(0x80 >> bit % 8);
  return result;
}

std::string choice(const std::vector<Interface>& all, const InterfaceWish& wish = {}) {
  const Interface* chosen = choose(all, wish);
  return chosen ? chosen->name : "none";
}

const std::vector<Interface> kHost = {
    interface("lo", "127.0.0.1", 8),      interface("docker0", "172.17.0.1", 16),
    interface("virbr0", "192.168.122.1"), interface("eno1", "10.0.0.5"),
    interface("eno2", "10.7.0.5"),        interface("lo", "::1", 128),
    interface("eno3", "fd00::5", 64)};

TEST(Interface, without_a_wish_neither_loopback_nor_what_leads_to_containers_and_guests) {
  EXPECT_EQ(choice(kHost), "eno1");
  auto with_ib = kHost;
  with_ib.push_back(interface("ibs3", "10.9.0.5"));
  EXPECT_EQ(choice(with_ib), "ibs3") << "IPoIB comes first";
  with_ib.back().running = false;
  EXPECT_EQ(choice(with_ib), "eno1");
}

TEST(Interface, of_what_is_left_docker_comes_before_loopback_and_that_before_virbr) {
  EXPECT_EQ(choice({kHost[2], kHost[0], kHost[1]}), "docker0");
  EXPECT_EQ(choice({kHost[2], kHost[0]}), "lo");
  EXPECT_EQ(choice({kHost[2]}), "virbr0");
  EXPECT_EQ(choice({kHost[5]}), "none") << "loopback's IPv6 address is never taken";
}

TEST(Interface, the_subnet_of_the_communicators_id_decides) {
  EXPECT_EQ(choice(kHost, {.names = {}, .family = {}, .comm_id = "10.7.0.99:4242"}), "eno2");
  EXPECT_EQ(choice(kHost, {.names = {}, .family = {}, .comm_id = "[fd00::99]:4242"}), "eno3");
  EXPECT_EQ(choice(kHost, {.names = {}, .family = {}, .comm_id = "10.8.0.99:4242"}), "eno1")
      << "nobody's subnet";
  auto with_ib = kHost;
  with_ib.push_back(interface("ib0", "10.9.0.5"));
  EXPECT_EQ(choice(with_ib, {.names = {}, .family = {}, .comm_id = "10.7.0.99:4242"}), "ib0");
}

TEST(Interface, a_wish_is_a_list_of_prefixes_or_names_to_take_or_to_leave) {
  const auto named = [](const std::string& names) {
    return choice(kHost, {.names = names, .family = {}, .comm_id = {}});
  };
  EXPECT_EQ(named("eno"), "eno1");
  EXPECT_EQ(named("=eno"), "none");
  EXPECT_EQ(named("=eno2,eno1"), "eno1") << "the kernel's order, not the list's";
  EXPECT_EQ(named("eno2:1"), "eno2") << "a port after the name means nothing here";
  EXPECT_EQ(named("^lo,docker"), "virbr0");
  EXPECT_EQ(named("^=lo,docker"), "docker0");
  EXPECT_EQ(named("wlan"), "none");
  EXPECT_EQ(named("e"), "eno1") << "one letter is no list to NCCL: the same as nothing";
}

TEST(Interface, a_family_can_be_asked_for) {
  EXPECT_EQ(choice(kHost, {.names = {}, .family = "AF_INET6", .comm_id = {}}), "eno3");
  EXPECT_EQ(choice(kHost, {.names = "eno", .family = "AF_INET", .comm_id = {}}), "eno1");
}

}  // namespace
}  // namespace r2ccl::control
