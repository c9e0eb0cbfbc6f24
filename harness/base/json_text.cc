// SPDX-License-Identifier: Apache-2.0
#include "harness/base/json_text.h"

namespace r2bench {

nlohmann::json json_from(std::string_view text, bool throws) {
  return nlohmann::json::parse(text, nullptr, throws);
}

std::string json_text(const nlohmann::json& json, int indent) { return json.dump(indent); }

}  // namespace r2bench
