// SPDX-License-Identifier: Apache-2.0
#include "harness/report/schema.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "harness/report/json_lines.h"
#include "harness/scenario/suggest.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

std::vector<std::string> names_in(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : object.items()) names.push_back(name);
  return names;
}

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}

  void check(const Json& schema, const Json& value, const std::string& where) {
    static const std::set<std::string> kKnown = {"$schema", "$id",         "$defs",    "$ref",
                                                 "title",   "description", "type",     "enum",
                                                 "const",   "properties",  "required", "additionalProperties",
                                                 "items",   "minimum"};
    for (const auto& [keyword, unused] : schema.items()) {
      if (kKnown.count(keyword) == 0) throw std::invalid_argument("unknown schema keyword '" + keyword + "'");
    }
    if (schema.contains("$ref")) check(resolve(schema["$ref"]), value, where);
    if (schema.contains("type") && !has_type(schema["type"], value)) {
      mismatch(where, "must be " + schema["type"].dump() + ", but is " + value.type_name());
      return;
    }
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
      mismatch(where, "is " + value.dump() + ", but must be one of " + schema["enum"].dump());
    }
    if (schema.contains("const") && value != schema["const"]) {
      mismatch(where, "is " + value.dump() + ", but must be " + schema["const"].dump());
    }
    if (schema.contains("minimum") && value.is_number() &&
        value.get<double>() < schema["minimum"].get<double>()) {
      mismatch(where, "is " + value.dump() + ", but must be at least " + schema["minimum"].dump());
    }
    if (value.is_object()) check_object(schema, value, where);
    if (value.is_array() && schema.contains("items")) {
      for (size_t i = 0; i < value.size(); ++i)
        check(schema["items"], value[i], member_pointer(where, std::to_string(i)));
    }
  }

  std::vector<Mismatch> mismatches;

 private:
  void mismatch(const std::string& where, const std::string& what) { mismatches.push_back({where, what}); }

  const Json& resolve(const std::string& reference) const {
    const std::string prefix = "#/$defs/";
    if (reference.rfind(prefix, 0) != 0 || !root_.contains("$defs") ||
        !root_["$defs"].contains(reference.substr(prefix.size()))) {
      throw std::invalid_argument("dangling $ref '" + reference + "'");
    }
    return root_["$defs"][reference.substr(prefix.size())];
  }

  static bool has_one_type(const std::string& type, const Json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    throw std::invalid_argument("unknown type '" + type + "' in the schema");
  }

  static bool has_type(const Json& type, const Json& value) {
    if (type.is_string()) return has_one_type(type, value);
    return std::any_of(type.begin(), type.end(), [&](const Json& t) { return has_one_type(t, value); });
  }

  void check_object(const Json& schema, const Json& value, const std::string& where) {
    for (const auto& key : schema.value("required", Json::array())) {
      if (!value.contains(key.get<std::string>())) mismatch(where, "lacks " + key.dump());
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [key, inner] : value.items()) {
      const std::string at = member_pointer(where, key);
      if (properties.contains(key)) {
        check(properties[key], inner, at);
      } else if (schema.contains("additionalProperties")) {
        const Json& rest = schema["additionalProperties"];
        if (rest.is_boolean() && !rest.get<bool>()) {
          mismatch(at, "is an unknown key" + did_you_mean(key, names_in(properties)));
        } else if (rest.is_object()) {
          check(rest, inner, at);
        }
      }
    }
  }

  const Json& root_;
};

}  // namespace

std::string in_words(const Mismatch& mismatch) {
  return (mismatch.where.empty() ? "/" : mismatch.where) + " " + mismatch.what;
}

std::vector<Mismatch> schema_mismatches(const Json& schema, const Json& value) {
  Checker checker(schema);
  checker.check(schema, value, "");
  return std::move(checker.mismatches);
}

}  // namespace r2bench
