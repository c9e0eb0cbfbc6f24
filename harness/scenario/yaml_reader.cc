// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/yaml_reader.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <utility>

#include "harness/scenario/suggest.h"

namespace r2bench {

Document::Document(std::string file, std::string text) : file_(std::move(file)) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines_.push_back(std::move(line));
  }
}

void Document::add_override(const YAML::Node& node, std::string origin) {
  overrides_.emplace_back(node, std::move(origin));
}

void Document::add_place(const YAML::Node& node, YAML::Mark mark) { places_.emplace_back(node, mark); }

const std::string& Document::line_text(int line) const {
  static const std::string kNone;
  return line >= 1 && static_cast<size_t>(line) <= lines_.size() ? lines_[static_cast<size_t>(line) - 1]
                                                                 : kNone;
}

void Document::report(const YAML::Node& at, const std::string& message, size_t column_offset) {
  for (const auto& [node, origin] : overrides_) {
    if (node.is(at)) {
      problems_.push_back({origin, 0, 0, message, ""});
      return;
    }
  }
  YAML::Mark mark = at.Mark();
  for (const auto& [node, place] : places_)
    if (mark.is_null() && node.is(at)) mark = place;
  if (mark.is_null()) {
    problems_.push_back({file_, 0, 0, message, ""});
    return;
  }
  report_line(mark.line + 1, mark.column + 1 + static_cast<int>(column_offset), message);
}

void Document::report_line(int line, int column, const std::string& message) {
  problems_.push_back({file_, line, column, message, line_text(line)});
}

const char* kind_of(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      return "a map";
    case YAML::NodeType::Sequence:
      return node.size() == 0 ? "an empty list" : "a list";
    case YAML::NodeType::Scalar:
      return "a single value";
    case YAML::NodeType::Null:
      return "empty";
    case YAML::NodeType::Undefined:
      break;
  }
  return "missing";
}

bool holds_nul(Document& document, const YAML::Node& value) {
  if (value.Scalar().find('\0') == std::string::npos) return false;
  document.report(value, "a value must not hold a NUL character; what stands behind it would be lost");
  return true;
}

MapReader::MapReader(Document& document, const YAML::Node& node, std::string where)
    : document_(document), node_(node), where_(std::move(where)) {
  if (!node.IsDefined() || node.IsNull()) return;
  if (!node.IsMap()) {
    document_.report(node, "'" + where_ + "' must be a map of keys and values, but is " + kind_of(node));
    return;
  }
  usable_ = true;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      document_.report(entry.first, "a key in '" + where_ + "' must be a word");
    } else if (!seen.insert(entry.first.Scalar()).second) {
      document_.report(entry.first, "'" + entry.first.Scalar() + "' is given twice in '" + where_ + "'");
    }
  }
}

bool MapReader::has(const std::string& key) { return get(key).IsDefined(); }

YAML::Node MapReader::get(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  if (!usable_) return YAML::Node(YAML::NodeType::Undefined);
  // operator[] of a const node never inserts, and gives an undefined node for an absent key.
  return std::as_const(node_)[key];
}

std::optional<std::string> MapReader::text(const std::string& key) {
  const YAML::Node value = get(key);
  if (!value.IsDefined()) return std::nullopt;
  if (!value.IsScalar()) {
    document_.report(value, "'" + key + "' must be a single value, but is " + kind_of(value));
    return std::nullopt;
  }
  if (holds_nul(document_, value)) return std::nullopt;
  return value.Scalar();
}

std::optional<int64_t> MapReader::integer(const std::string& key, int64_t low, int64_t high) {
  const auto value = text(key);
  if (!value) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size()) {
    document_.report(get(key), "'" + key + "' must be a whole number, but is '" + *value + "'");
    return std::nullopt;
  }
  if (number < low || number > high) {
    document_.report(get(key), "'" + key + "' is " + *value + ", but must be between " + std::to_string(low) +
                                   " and " + std::to_string(high));
    return std::nullopt;
  }
  return number;
}

std::optional<uint64_t> MapReader::seed(const std::string& key) {
  const auto value = text(key);
  if (!value) return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size()) {
    document_.report(get(key),
                     "'" + key + "' must be a whole number of at most 64 bits, but is '" + *value + "'");
    return std::nullopt;
  }
  return number;
}

std::optional<bool> MapReader::boolean(const std::string& key) {
  const auto value = text(key);
  if (!value) return std::nullopt;
  if (*value == "true" || *value == "yes" || *value == "on") return true;
  if (*value == "false" || *value == "no" || *value == "off") return false;
  document_.report(get(key), "'" + key + "' must be true or false, but is '" + *value + "'");
  return std::nullopt;
}

std::optional<size_t> MapReader::choice(const std::string& key, const std::vector<std::string>& names,
                                        const char* what) {
  const auto value = text(key);
  if (!value) return std::nullopt;
  const auto found = std::find(names.begin(), names.end(), *value);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  const std::string suggestion = did_you_mean(*value, names);
  document_.report(get(key), std::string("unknown ") + what + " '" + *value + "'" +
                                 (suggestion.empty() ? "; '" + key + "' is " + list_of(names) : suggestion));
  return std::nullopt;
}

std::map<std::string, std::string> MapReader::string_map(const std::string& key) {
  std::map<std::string, std::string> result;
  const YAML::Node value = get(key);
  if (!value.IsDefined() || value.IsNull()) return result;
  if (!value.IsMap()) {
    document_.report(value, "'" + key + "' must be a map of names and values, but is " + kind_of(value));
    return result;
  }
  for (const auto& entry : value) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
      document_.report(entry.first, "'" + key + "' holds names with single values");
      continue;
    }
    if (holds_nul(document_, entry.first) || holds_nul(document_, entry.second)) continue;
    const std::string& variable = entry.first.Scalar();
    if (variable.empty() || variable.find('=') != std::string::npos) {
      document_.report(entry.first, "'" + variable + "' is no name of an environment variable");
      continue;
    }
    if (!result.emplace(variable, entry.second.Scalar()).second) {
      document_.report(entry.first, "'" + variable + "' is given twice in '" + key + "'");
    }
  }
  return result;
}

void MapReader::known_but(const std::string& key, const std::string& message) { refused_[key] = message; }

void MapReader::finish() {
  if (!usable_) return;
  for (const auto& entry : node_) {
    if (!entry.first.IsScalar()) continue;
    const std::string& key = entry.first.Scalar();
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    if (const auto refused = refused_.find(key); refused != refused_.end()) {
      document_.report(entry.first, refused->second);
      continue;
    }
    const std::string suggestion = did_you_mean(key, known_);
    document_.report(entry.first, "unknown key '" + key + "' in '" + where_ + "'" +
                                      (suggestion.empty() ? "; it knows " + list_of(known_) : suggestion));
  }
}

}  // namespace r2bench
