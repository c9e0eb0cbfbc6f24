// SPDX-License-Identifier: Apache-2.0
#include "harness/report/xml.h"

namespace r2bench {

std::string xml_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\n':
        result += "&#10;";
        break;
      case '\t':
        result += "&#9;";
        break;
      default:
        // XML 1.0 has no other control characters, not even escaped.
        if (byte >= 0x20) result += c;
    }
  }
  return result;
}

}  // namespace r2bench
