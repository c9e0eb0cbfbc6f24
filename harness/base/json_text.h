// SPDX-License-Identifier: Apache-2.0
// JSON from text and back, compiled once: each source that calls nlohmann::json::parse() has a parser of its
// own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace r2bench {

/// Throws nlohmann::json::parse_error; with `throws` false the result is discarded instead (is_discarded()).
nlohmann::json json_from(std::string_view text, bool throws = true);

/// `indent`: for each level, on lines of their own; -1: all on one line. Throws nlohmann::json::type_error
/// for text that is not UTF-8.
std::string json_text(const nlohmann::json& json, int indent = -1);

}  // namespace r2bench
