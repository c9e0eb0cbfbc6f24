// SPDX-License-Identifier: Apache-2.0
// Reads a YAML tree strictly: every key must be asked for, every value must have the type that is asked for,
// and whatever is wrong is noted with its place and the reading goes on. Knows nothing of scenarios.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/scenario/problem.h"

namespace r2bench {

/// Where one document comes from, and what was found wrong in it so far.
class Document {
 public:
  Document(std::string file, std::string text);

  /// Values that came from elsewhere (`--set`) are reported under `origin` and not under a line of the file.
  void add_override(const YAML::Node& node, std::string origin);
  /// A node that the program has made, and that has no line of its own, is reported at `mark`.
  void add_place(const YAML::Node& node, YAML::Mark mark);

  void report(const YAML::Node& at, const std::string& message, size_t column_offset = 0);
  void report_line(int line, int column, const std::string& message);

  const std::string& file() const { return file_; }
  const std::string& line_text(int line) const;  ///< line from 1
  std::vector<Problem>& problems() { return problems_; }
  bool ok() const { return problems_.empty(); }

 private:
  std::string file_;
  std::vector<std::string> lines_;
  std::vector<std::pair<YAML::Node, std::string>> overrides_;
  std::vector<std::pair<YAML::Node, YAML::Mark>> places_;
  std::vector<Problem> problems_;
};

/// Reports a single value that holds a NUL, which no argument and no environment variable can.
bool holds_nul(Document& document, const YAML::Node& value);

/// One mapping. Call the getters, then finish(), which reports the keys that nobody asked for.
class MapReader {
 public:
  /// `node` may be undefined or null: then every key is absent. `where` is its name in messages ("fabric").
  MapReader(Document& document, const YAML::Node& node, std::string where);

  bool has(const std::string& key);
  /// The node, undefined when absent. Marks the key as known.
  YAML::Node get(const std::string& key);

  std::optional<std::string> text(const std::string& key);
  std::optional<int64_t> integer(const std::string& key, int64_t low, int64_t high);
  std::optional<uint64_t> seed(const std::string& key);
  std::optional<bool> boolean(const std::string& key);
  /// Index into `names`; unknown words are reported with a suggestion.
  std::optional<size_t> choice(const std::string& key, const std::vector<std::string>& names,
                               const char* what);
  /// A scalar through `parse`, which throws an exception whose what() is the sentence to report.
  template <typename T>
  std::optional<T> parsed(const std::string& key, const std::function<T(const std::string&)>& parse) {
    const auto value = text(key);
    if (!value) return std::nullopt;
    try {
      return parse(*value);
    } catch (const std::exception& error) {
      document_.report(get(key), "'" + key + "': " + error.what());
      return std::nullopt;
    }
  }
  /// NAME: value pairs with scalar values.
  std::map<std::string, std::string> string_map(const std::string& key);

  /// Keys that exist in other versions or places, with the sentence that says so.
  void known_but(const std::string& key, const std::string& message);
  void finish();

  const YAML::Node& node() const { return node_; }

 private:
  Document& document_;
  YAML::Node node_;
  std::string where_;
  bool usable_ = false;
  std::vector<std::string> known_;
  std::map<std::string, std::string> refused_;
};

/// "a map", "a list", "a text" … for messages.
const char* kind_of(const YAML::Node& node);

}  // namespace r2bench
