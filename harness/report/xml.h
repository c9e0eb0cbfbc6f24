// SPDX-License-Identifier: Apache-2.0
// Text within XML.
#pragma once

#include <string>

namespace r2bench {

/// As an attribute's value: quotes, angle brackets, line ends escaped; control characters that XML 1.0 does
/// not have left out.
std::string xml_escaped(const std::string& text);

}  // namespace r2bench
