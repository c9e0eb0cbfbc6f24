// SPDX-License-Identifier: Apache-2.0
// A YAML mapping with a closed set of keys: every key is read once, knows what is allowed where, and where it
// stands in the file. For the files of this folder only.
#pragma once

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "faultinject/plan/joined.h"
#include "faultinject/plan/plan.h"
#include "faultinject/plan/units.h"

namespace faultinject {

struct Place {
  const std::string& file;
  int line = 0, column = 0;
  Place(const std::string& f, const YAML::Node& node) : file(f) {
    const YAML::Mark mark = node.Mark();
    if (!mark.is_null()) line = mark.line + 1, column = mark.column + 1;
  }
  [[noreturn]] void fail(const std::string& message) const { throw PlanError(file, line, column, message); }
};

inline std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const auto near = nearest(word, known);
  return near ? "; did you mean '" + *near + "'?" : "";
}

// A mapping with a closed set of keys, each at most once.
class Mapping {
 public:
  Mapping(const YAML::Node& node, const std::string& file, const std::string& what,
          const std::vector<std::string>& keys)
      : node_(node), file_(file) {
    if (!node.IsMap()) Place(file, node).fail(what + " must be a mapping with the keys " + joined(keys));
    std::vector<std::string> seen;
    for (const auto& pair : node) {
      const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "?";
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        Place(file, pair.first)
            .fail("unknown key '" + key + "' in " + what + suggestion(key, keys) + " (keys: " + joined(keys) +
                  ")");
      if (std::find(seen.begin(), seen.end(), key) != seen.end())
        Place(file, pair.first).fail("key '" + key + "' appears twice in " + what);
      seen.push_back(key);
    }
  }
  bool has(const char* key) const { return bool(node_[key]); }
  YAML::Node at(const char* key) const { return node_[key]; }
  Place place(const char* key) const { return Place(file_, node_[key]); }

  std::string text(const char* key) const {
    const YAML::Node value = node_[key];
    if (!value.IsScalar() || value.Scalar().empty())
      place(key).fail(std::string("'") + key + "' must be one value");
    return value.Scalar();
  }
  uint64_t number(const char* key, uint64_t least) const {
    const std::string value = text(key);
    if (value.find_first_not_of("0123456789") != std::string::npos || value.size() > 18)
      place(key).fail("'" + value + "' is not a whole number; '" + key + "' counts from " +
                      std::to_string(least));
    const uint64_t number = std::stoull(value);
    if (number < least)
      place(key).fail(std::string("'") + key + "' must be " + std::to_string(least) + " or more");
    return number;
  }
  bool boolean(const char* key) const {
    const std::string value = text(key);
    if (value == "true" || value == "yes") return true;
    if (value == "false" || value == "no") return false;
    place(key).fail("'" + value + "' is neither true nor false");
  }
  template <typename Parse>
  auto quantity(const char* key, Parse parse) const {
    const std::string value = text(key);
    try {
      return parse(value);
    } catch (const UnitError& error) {
      place(key).fail(std::string("'") + key + "': " + error.what());
    }
  }
  std::chrono::nanoseconds span(const char* key) const { return quantity(key, parse_duration); }

  // One of `words`; its index.
  size_t choice(const char* key, const std::vector<std::string>& words) const {
    const std::string value = text(key);
    for (size_t i = 0; i < words.size(); i++)
      if (words[i] == value) return i;
    std::string list;
    for (size_t i = 0; i < words.size(); i++)
      list += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
    place(key).fail(std::string("'") + key + ": " + value + "' must be " + list + suggestion(value, words));
  }

  // A name that `number_of` knows, e.g. of a completion status.
  int named(const char* key, const char* what, std::optional<int> (*number_of)(std::string_view),
            const std::vector<std::string>& names) const {
    const std::string value = text(key);
    if (const auto number = number_of(value)) return *number;
    place(key).fail("unknown " + std::string(what) + " '" + value + "'" + suggestion(value, names) +
                    " (there are " + joined(names) + ")");
  }

 private:
  YAML::Node node_;
  const std::string& file_;
};

// 'at', 'on', 'after', 'phase', 'repeat' and 'every' of a fault (trigger.cc).
const std::vector<std::string>& trigger_keys();
void parse_trigger(const Mapping& fault, const std::string& file, FaultSpec& spec);

// What only some kinds have (parameters.cc). A parameter that would be ignored is an error.
const std::vector<std::string>& parameter_keys();
void parse_parameters(const Mapping& fault, const std::string& file, FaultSpec& spec);

}  // namespace faultinject
