// SPDX-License-Identifier: Apache-2.0
// Lists on a command line.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace r2bench {

/// "a,b" as {a, b}. Throws std::invalid_argument, whose text names the entry, if one is empty.
inline std::vector<std::string> comma_list(const std::string& text) {
  std::vector<std::string> entries;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    entries.push_back(text.substr(from, to - from));
    if (entries.back().empty())
      throw std::invalid_argument("entry " + std::to_string(entries.size()) + " of '" + text + "' is empty");
    from = to + 1;
  }
  return entries;
}

}  // namespace r2bench
