// SPDX-License-Identifier: Apache-2.0
// On which line of a JSON text each value stands, which a parsed value no longer says.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace r2bench {

/// The JSON pointer of a member, from that of its object.
std::string member_pointer(const std::string& object, const std::string& key);

/// The line, from 1, of each value by its JSON pointer: that of its key, or in an array the one on which it
/// begins. `text` has to be JSON.
std::map<std::string, size_t> json_lines(const std::string& text);

}  // namespace r2bench
