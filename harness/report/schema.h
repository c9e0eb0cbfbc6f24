// SPDX-License-Identifier: Apache-2.0
// Checks JSON against the part of JSON Schema (draft 2020-12) that results/schema.json uses: type, enum,
// const, properties, required, additionalProperties, items, minimum, $ref to #/$defs. A keyword that it does
// not know is an error: a schema must never promise more than is checked.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace r2bench {

/// What does not fit in a JSON value, and the JSON pointer of its place; "" is the whole.
struct Mismatch {
  std::string where;
  std::string what;
};

/// "/runs/1/mode is 3, but must be …"
std::string in_words(const Mismatch& mismatch);

/// Empty when `value` is valid.
/// Throws std::invalid_argument when the schema itself has an unknown keyword or a dangling $ref.
std::vector<Mismatch> schema_mismatches(const nlohmann::json& schema, const nlohmann::json& value);

}  // namespace r2bench
