// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/base/hca_filter.h"

#include <cstdlib>
#include <string>

namespace r2ccl {

bool passes_hca_filter(std::string_view filter, std::string_view device, int port) {
  if (filter.empty()) return true;
  std::string_view rest = filter;
  const bool exclude = rest.front() == '^';
  if (exclude) rest.remove_prefix(1);
  bool exact = false;
  if (!rest.empty() && rest.front() == '=') {
    exact = true;
    rest.remove_prefix(1);
  }
  bool match = false;
  while (!rest.empty() && !match) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (item.empty()) continue;
    const size_t colon = item.find(':');
    if (colon != std::string_view::npos) {
      const std::string_view behind = item.substr(colon + 1);
      const std::string number(behind.substr(0, behind.find(':')));  // NCCL 2.30: a rail and a plane follow
      if (!number.empty() && std::atoi(number.c_str()) != port) continue;
      item = item.substr(0, colon);
      if (item.empty()) continue;
    }
    match = exact ? device == item : device.substr(0, item.size()) == item;
  }
  return match != exclude;
}

}  // namespace r2ccl
