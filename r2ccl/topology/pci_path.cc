// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/topology/pci_path.h"

#include <algorithm>
#include <cctype>

namespace r2ccl::topology {
namespace {

bool all_hex(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

}  // namespace

bool is_bus_id(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon < 4 || colon > 8) return false;
  const std::string_view rest = text.substr(colon + 1);
  return all_hex(text.substr(0, colon)) && rest.size() == 7 && rest[2] == ':' && rest[5] == '.' &&
         all_hex(rest.substr(0, 2)) && all_hex(rest.substr(3, 2)) && all_hex(rest.substr(6));
}

std::string_view last_component(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string_view trim_to_pci(std::string_view path) {
  while (!path.empty()) {
    if (is_bus_id(last_component(path))) return path;
    const size_t slash = path.rfind('/');
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
  return path;
}

}  // namespace r2ccl::topology
