// SPDX-License-Identifier: Apache-2.0
// A list of words as one text, for messages and command lines.
#pragma once

#include <string>
#include <vector>

namespace faultinject {

/// "a, b, c"; nothing for an empty list.
inline std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

}  // namespace faultinject
