// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/host_list.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "harness/base/comma_list.h"

namespace r2bench {

std::vector<std::string> host_list(const std::string& text, const std::string& option,
                                   const std::string& more) {
  std::vector<std::string> hosts, names;
  try {
    if (!text.empty()) names = comma_list(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(option + ": " + error.what() + "; give hosts as HOST,HOST");
  }
  for (const std::string& host : names) {
    const bool plain = host[0] != '-' && std::all_of(host.begin(), host.end(), [&](unsigned char c) {
                         return std::isalnum(c) || c == '.' || c == '_' || c == '-' ||
                                more.find(char(c)) != std::string::npos;
                       });
    if (!plain)
      throw std::invalid_argument(option + ": '" + host +
                                  "' is no name of a host; give HOST,HOST: files are not read");
    if (std::find(hosts.begin(), hosts.end(), host) != hosts.end())
      throw std::invalid_argument(option + ": '" + host + "' twice; each host runs one agent");
    hosts.push_back(host);
  }
  return hosts;
}

}  // namespace r2bench
