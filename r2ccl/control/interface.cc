// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/control/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace r2ccl::control {
namespace {

bool ipv6_loopback(const Endpoint& address) {
  static constexpr uint8_t kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return address.family == AF_INET6 && std::memcmp(address.address, kLoopback, 16) == 0;
}

size_t bytes_of(uint16_t family) { return family == AF_INET6 ? 16 : 4; }

bool fits(std::string_view filter, std::string_view name) {
  const bool exclude = filter.starts_with('^');
  if (exclude) filter.remove_prefix(1);
  const bool exact = filter.starts_with('=');
  if (exact) filter.remove_prefix(1);
  bool match = false, any = false;
  while (!filter.empty() && !match) {
    const size_t comma = filter.find(',');
    std::string_view item = filter.substr(0, comma);
    filter = comma == std::string_view::npos ? std::string_view() : filter.substr(comma + 1);
    item = item.substr(0, item.find(':'));  // NCCL's lists may name a port
    if (item.empty()) continue;
    any = true;
    match = exact ? name == item : name.starts_with(item);
  }
  return (match || !any) != exclude;
}

/// The address in "address:port", "name:port" or "[address%interface]:port".
std::optional<Endpoint> address_of(const std::string& comm_id) {
  std::string host = comm_id.substr(0, comm_id.find(':'));
  if (comm_id.starts_with('[')) {
    const size_t end = comm_id.find_first_of("%]");
    if (end == std::string::npos) return std::nullopt;
    host = comm_id.substr(1, end - 1);
  }
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  std::optional<Endpoint> address;
  if (found->ai_family == AF_INET || found->ai_family == AF_INET6) address = endpoint_of(found->ai_addr);
  freeaddrinfo(found);
  return address;
}

bool same_subnet(const Interface& interface, const Endpoint& other) {
  if (interface.address.family != other.family || interface.mask.size() != bytes_of(other.family))
    return false;
  for (size_t i = 0; i < interface.mask.size(); ++i)
    if ((interface.address.address[i] ^ other.address[i]) & interface.mask[i]) return false;
  return other.family != AF_INET6 || interface.address.scope == other.scope || other.scope == 0;
}

}  // namespace

const Interface* choose(std::span<const Interface> all, const InterfaceWish& wish) {
  const int family = wish.family == "AF_INET" ? AF_INET : wish.family == "AF_INET6" ? AF_INET6 : -1;
  const auto first = [&](const auto& wanted) -> const Interface* {
    const auto it = std::find_if(all.begin(), all.end(), [&](const Interface& interface) {
      return interface.running && (family == -1 || interface.address.family == family) &&
             !ipv6_loopback(interface.address) && wanted(interface);
    });
    return it == all.end() ? nullptr : &*it;
  };
  const auto named = [&](std::string_view filter) {
    return first([filter](const Interface& interface) { return fits(filter, interface.name); });
  };
  if (wish.names.size() > 1) return named(wish.names);
  if (const Interface* ib = named("ib")) return ib;
  if (wish.comm_id.size() > 1)
    if (const auto other = address_of(wish.comm_id))
      if (const Interface* near = first([&](const Interface& i) { return same_subnet(i, *other); }))
        return near;
  for (const char* filter : {"^docker,lo,virbr", "docker", "lo", "virbr"})
    if (const Interface* found = named(filter)) return found;
  return nullptr;
}

Result<std::vector<Interface>> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    return Error{ErrorCode::kSystem, std::string("getifaddrs: ") + std::strerror(errno)};
  std::vector<Interface> all;
  for (const ifaddrs* it = list; it; it = it->ifa_next) {
    if (!it->ifa_addr || (it->ifa_addr->sa_family != AF_INET && it->ifa_addr->sa_family != AF_INET6))
      continue;
    Interface interface { it->ifa_name, endpoint_of(it->ifa_addr), {}, (it->ifa_flags & IFF_RUNNING) != 0 };
    if (it->ifa_netmask) {
      const Endpoint mask = endpoint_of(it->ifa_netmask);
      interface.mask.assign(mask.address, mask.address + bytes_of(interface.address.family));
    }
    all.push_back(std::move(interface));
  }
  freeifaddrs(list);
  return all;
}

}  // namespace r2ccl::control
