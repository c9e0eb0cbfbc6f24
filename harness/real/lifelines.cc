// SPDX-License-Identifier: Apache-2.0
#include "harness/real/lifelines.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "r2ccl/control/interface.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSshVariable = "SSH_CONNECTION=";

std::string word_of(const std::string& text, size_t number) {
  std::istringstream words(text);
  std::string word;
  for (size_t i = 0; i <= number; ++i)
    if (!(words >> word)) return "";
  return word;
}

/// The parent's id, by /proc/PID/stat; the name in it may hold spaces.
int parent_of(const std::string& proc, int pid) {
  std::ifstream file(fs::path(proc) / std::to_string(pid) / "stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t end = text.rfind(')');
  return end == std::string::npos ? 0 : atoi(word_of(text.substr(end + 1), 1).c_str());
}

std::string chosen_by_nccl(const std::string& names) {
  const auto all = r2ccl::control::interfaces();
  if (!all) return "";
  const r2ccl::control::Interface* taken = r2ccl::control::choose(all.value(), {names, "", ""});
  return taken == nullptr ? "" : taken->name;
}

}  // namespace

std::vector<std::string> default_routes(const std::string& proc) {
  std::vector<std::string> interfaces;
  std::ifstream four(fs::path(proc) / "net" / "route");
  for (std::string line; std::getline(four, line);)
    if (word_of(line, 1) == "00000000" && word_of(line, 7) == "00000000")
      interfaces.push_back(word_of(line, 0));
  std::ifstream six(fs::path(proc) / "net" / "ipv6_route");
  const std::string nowhere(32, '0');
  for (std::string line; std::getline(six, line);)
    if (word_of(line, 0) == nowhere && word_of(line, 1) == "00" && word_of(line, 9) != "lo")
      interfaces.push_back(word_of(line, 9));
  return interfaces;
}

std::string ssh_connection(const std::string& proc) {
  for (int pid = getpid(), steps = 0; pid > 1 && steps < 64; pid = parent_of(proc, pid), ++steps) {
    std::ifstream file(fs::path(proc) / std::to_string(pid) / "environ");
    for (std::string entry; std::getline(file, entry, '\0');)
      if (entry.rfind(kSshVariable, 0) == 0) return entry.substr(strlen(kSshVariable));
  }
  return "";
}

std::string interface_with_address(const std::string& address) {
  const size_t scope = address.find('%');
  if (scope != std::string::npos) return address.substr(scope + 1);
  std::string plain = address.rfind("::ffff:", 0) == 0 && address.find('.') != std::string::npos
                          ? address.substr(strlen("::ffff:"))
                          : address;
  in6_addr wanted{};
  const int family = plain.find(':') == std::string::npos ? AF_INET : AF_INET6;
  ifaddrs* all = nullptr;
  if (inet_pton(family, plain.c_str(), &wanted) != 1 || getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* each = all; each != nullptr && found.empty(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
    const bool same =
        family == AF_INET
            ? memcmp(&reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, &wanted, 4) == 0
            : memcmp(&reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr, &wanted, 16) == 0;
    if (same) found = each->ifa_name;
  }
  freeifaddrs(all);
  return found;
}

bool carries(const std::string& interface, const std::string& upper, const std::string& sys) {
  if (interface == upper) return true;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(sys) / "class" / "net" / interface, none)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("upper_", 0) == 0 && carries(name.substr(strlen("upper_")), upper, sys)) return true;
  }
  return false;
}

std::vector<Lifeline> lifelines(const LifelineSources& sources) {
  std::vector<Lifeline> all;
  const auto add = [&](const std::string& interface, const std::string& what, const std::string& mend) {
    if (!interface.empty()) all.push_back({interface, what, mend});
  };
  for (const std::string& interface : default_routes(sources.proc))
    add(interface, "the machine's default route leaves by it", "take another NIC as the target");
  const std::string ssh = word_of(ssh_connection(sources.proc), 2);
  add(interface_with_address(ssh), "the ssh session that this job runs in came in over it (" + ssh + ")",
      "log in by another interface's address, or take another NIC as the target");
  add(sources.runner_link, "the host's connection to r2bench run goes over it",
      "start with names in --hosts that lead over another network, or take another NIC as the target");
  if (!sources.socket_names.empty())
    add(chosen_by_nccl(sources.socket_names),
        "the ranks' control connections go over it (NCCL_SOCKET_IFNAME=" + sources.socket_names + ")",
        "set NCCL_SOCKET_IFNAME to another interface, or take another NIC as the target");
  return all;
}

}  // namespace r2bench
