// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/host_list.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace r2bench {

std::vector<std::string> host_list(const std::string& text, const std::string& option,
                                   const std::string& more) {
  std::vector<std::string> hosts;
  for (size_t from = 0; !text.empty() && from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    const std::string host = text.substr(from, to - from);
    from = to + 1;
    if (host.empty())
      throw std::invalid_argument(option + ": '" + text + "' has an empty name; give hosts as HOST,HOST");
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
