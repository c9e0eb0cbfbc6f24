// SPDX-License-Identifier: Apache-2.0
// `modes:` and what --modes makes of it.
#include <algorithm>

#include "harness/scenario/sections.h"
#include "harness/scenario/suggest.h"

namespace r2bench {
namespace {

const std::vector<std::string> kModeNames = {"baseline", "migrate", "balance", "allreduce"};

std::optional<ModeKind> kind_from(const std::string& word) {
  const auto found = std::find(kModeNames.begin(), kModeNames.end(), word);
  if (found == kModeNames.end()) return std::nullopt;
  return static_cast<ModeKind>(found - kModeNames.begin());
}

/// One entry of the list: a name, or a map with `mode`, `label`, `env`, `transport`, `plugin` and `beside`.
std::optional<Mode> read_mode(Document& document, const YAML::Node& node) {
  Mode mode;
  std::string word;
  YAML::Node at = node;
  if (node.IsScalar()) {
    word = node.Scalar();
    mode.label = word;
  } else {
    MapReader map(document, node, "a mode");
    const auto given = map.text("mode");
    if (!given) {
      if (node.IsMap() && !map.has("mode"))
        document.report(node, "a mode needs 'mode', one of " + list_of(kModeNames));
      map.text("label"), map.string_map("env"), read_transport(map), read_own_plugin(document, map),
          read_other_side(document, map), map.finish();
      return std::nullopt;
    }
    word = *given;
    at.reset(map.get("mode"));
    mode.label = map.text("label").value_or(word);
    mode.env = map.string_map("env");
    check_env(document, map.get("env"), mode.env);
    mode.transport = read_transport(map);
    mode.plugin = read_own_plugin(document, map);
    mode.beside = read_other_side(document, map);
    map.finish();
    if (!good_name(mode.label) || mode.label == "all") {
      document.report(
          map.has("label") ? map.get("label") : node,
          "'" + mode.label + "' is no good label; use one word of " + kNameRule + ", that is not 'all'");
    }
  }
  const auto kind = read_kind(document, at, word);
  if (!kind) return std::nullopt;
  mode.kind = *kind;
  return mode;
}

void keep_chosen(Document& document, const std::vector<std::string>& chosen, std::vector<Mode>& modes) {
  std::vector<Mode> kept;
  const auto fail = [&](const std::string& message) {
    document.problems().push_back({"--modes", 0, 0, message, ""});
  };
  for (const std::string& word : chosen) {
    const auto in_file =
        std::find_if(modes.begin(), modes.end(), [&](const Mode& m) { return m.label == word; });
    const auto kind = kind_from(word);
    const bool twice = std::any_of(kept.begin(), kept.end(), [&](const Mode& m) { return m.label == word; });
    if (twice) {
      fail("'" + word + "' is given twice");
    } else if (in_file != modes.end()) {
      kept.push_back(*in_file);
    } else if (!kind) {
      std::vector<std::string> words = kModeNames;
      for (const Mode& mode : modes) words.push_back(mode.label);
      const std::string suggestion = did_you_mean(word, words);
      fail("unknown mode '" + word + "'" +
           (suggestion.empty() ? "; the modes are " + list_of(kModeNames) : suggestion));
    } else {
      kept.push_back({*kind, word, {}, std::nullopt, std::nullopt});
    }
  }
  modes = std::move(kept);
}

}  // namespace

std::optional<ModeKind> read_kind(Document& document, const YAML::Node& at, const std::string& word) {
  const auto kind = kind_from(word);
  if (kind) return kind;
  const std::string suggestion = did_you_mean(word, kModeNames);
  document.report(at, "unknown mode '" + word + "'" +
                          (suggestion.empty() ? "; the modes are " + list_of(kModeNames) : suggestion));
  return std::nullopt;
}

void read_modes(Document& document, const YAML::Node& node, const LoadOptions& options, Scenario& scenario,
                std::vector<std::string>& file_labels) {
  if (!node.IsDefined()) return;
  if (!node.IsSequence() || node.size() == 0) {
    document.report(
        node, std::string("'modes' must be a list such as [baseline, migrate], but is ") + kind_of(node));
    return;
  }
  for (const auto& entry : node) {
    const auto mode = read_mode(document, entry);
    if (!mode) continue;
    if (std::find(file_labels.begin(), file_labels.end(), mode->label) != file_labels.end()) {
      document.report(entry, "mode '" + mode->label + "' is given twice; give one of them another 'label'");
    }
    file_labels.push_back(mode->label);
    scenario.modes.push_back(*mode);
  }
  if (!options.modes.empty()) keep_chosen(document, options.modes, scenario.modes);
}

}  // namespace r2bench
