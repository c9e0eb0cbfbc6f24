// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/load.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>
#include <string_view>

#include <yaml-cpp/yaml.h>

#include "faultinject/plan/yaml_end.h"
#include "harness/base/input_file.h"
#include "harness/base/utf8.h"
#include "harness/scenario/sections.h"
#include "harness/scenario/suggest.h"
#include "harness/scenario/yaml_reader.h"

namespace r2bench {
namespace {

constexpr size_t kMaxBytes = 4u << 20;
constexpr size_t kMaxCells = 256;  // of a matrix: a file that would run for days is more likely a mistake

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// The number that `step` is, if a list of `size` entries has one of that number.
std::optional<size_t> entry_of(const std::string& step, size_t size) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  if (error != std::errc() || end != step.data() + step.size() || number >= size) return std::nullopt;
  return number;
}

/// `at` with `value` at the steps from `from` on; what lies beside these steps is shared with `at`. nullopt:
/// as substitute() says.
std::optional<YAML::Node> with(const YAML::Node& at, const std::vector<std::string>& steps, size_t from,
                               const YAML::Node& value) {
  if (from == steps.size()) return value;
  if (at.IsSequence()) {
    const auto entry = entry_of(steps[from], at.size());
    if (!entry || from + 1 == steps.size()) return std::nullopt;
    YAML::Node list(YAML::NodeType::Sequence);
    for (size_t i = 0; i < at.size(); ++i) {
      const auto child = i == *entry ? with(at[i], steps, from + 1, value) : at[i];
      if (!child) return std::nullopt;
      list.push_back(*child);
    }
    return list;
  }
  if (at.IsScalar()) return std::nullopt;
  YAML::Node map(YAML::NodeType::Map);
  bool found = false;
  if (at.IsMap())
    for (const auto& entry : at) {
      const bool here = entry.first.IsScalar() && entry.first.Scalar() == steps[from];
      found = found || here;
      const auto child = here ? with(entry.second, steps, from + 1, value) : entry.second;
      if (!child) return std::nullopt;
      map.force_insert(entry.first, *child);
    }
  if (!found) {
    const auto child = with(YAML::Node(), steps, from + 1, value);
    if (!child) return std::nullopt;
    map.force_insert(steps[from], *child);
  }
  return map;
}

/// Puts `value` at the dotted `path` of a tree; false when a step of the path is neither a key of a map nor
/// the number of an entry of a list ('faults.0.target').
///
/// `aliases`: some nodes may stand at several places of the tree. Then the maps and lists on the path are
/// made anew, so that nothing changes elsewhere; they lose their lines. Else the tree is changed in place.
bool substitute(YAML::Node& root, const std::string& path, const YAML::Node& value, bool aliases) {
  const std::vector<std::string> steps = split(path, '.');
  if (steps.empty()) return false;
  if (steps[0] == "faults" && (steps.size() < 3 || !std::as_const(root)["faults"].IsDefined())) return false;
  if (aliases) {
    const auto changed = with(root, steps, 0, value);
    if (changed) root.reset(*changed);
    return changed.has_value();
  }
  YAML::Node at = root;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    YAML::Node next;
    if (at.IsSequence()) {
      const auto entry = entry_of(steps[i], at.size());
      if (!entry) return false;
      next.reset(at[*entry]);
    } else {
      next.reset(at[steps[i]]);
    }
    if (next.IsDefined() && next.IsScalar()) return false;
    at.reset(next);
  }
  if (at.IsDefined() && !at.IsMap() && !at.IsNull()) return false;
  at[steps.back()] = value;
  return true;
}

/// Calls `made` with each key on the dotted `path` that substitute() has added: it has no line of its own.
void for_each_added_key(const YAML::Node& root, const std::string& path,
                        const std::function<void(const YAML::Node&)>& made) {
  YAML::Node at = root;
  for (const std::string& step : split(path, '.')) {
    YAML::Node next;
    if (at.IsSequence()) {
      if (const auto entry = entry_of(step, at.size())) next.reset(at[*entry]);
    } else if (at.IsMap()) {
      for (const auto& entry : at) {
        if (!entry.first.IsScalar() || entry.first.Scalar() != step) continue;
        if (entry.first.Mark().is_null()) made(entry.first);
        next.reset(entry.second);
      }
    }
    at.reset(next);
  }
}

/// One axis of the matrix: a dotted path and the number of its values. Values are looked up anew in each
/// parse of the text, so that they keep their line numbers.
struct Axis {
  std::string path;
  size_t values = 0;
  std::optional<std::string> set{};  ///< the command line's value, instead of the matrix's
};

/// "16 MiB" -> "16MiB": fit for a directory name.
std::string file_name_part(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-') result += c;
  }
  return result;
}

/// What tells the scenarios of the cells apart is their names: of folders, of baselines.
void check_names(Document& document, const YAML::Node& values, const std::string& path) {
  std::map<std::string, std::string> seen;  // by part of the name
  for (const auto& value : values) {
    if (!value.IsScalar()) continue;
    const auto [other, added] = seen.try_emplace(file_name_part(value.Scalar()), value.Scalar());
    if (!added)
      document.report(value, "'" + value.Scalar() + "' of '" + path + "' gives its scenario the name that '" +
                                 other->second + "' gives, '…-" + other->first +
                                 "'; values must differ in letters, digits, '.' or '-'");
  }
}

std::vector<Axis> read_axes(Document& document, const YAML::Node& root) {
  std::vector<Axis> axes;
  const YAML::Node matrix = std::as_const(root)["matrix"];
  if (!matrix.IsDefined()) return axes;
  if (!matrix.IsMap()) {
    document.report(matrix, std::string("'matrix' must be a map of paths and lists, such as "
                                        "'workload.bytes: [1 MiB, 16 MiB]', but is ") +
                                kind_of(matrix));
    return axes;
  }
  size_t cells = 1;
  for (const auto& entry : matrix) {
    const std::string path = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const std::vector<std::string> tops = {"fabric", "workload", "env",   "timeouts",
                                           "seed",   "repeats",  "pairs", "faults"};
    const std::string top = path.substr(0, path.find('.'));
    if (std::find(tops.begin(), tops.end(), top) == tops.end()) {
      document.report(entry.first, "'" + path + "' cannot vary; a matrix varies " + list_of(tops) +
                                       ", such as 'workload.bytes'" + did_you_mean(top, tops));
      continue;
    }
    if (!entry.second.IsSequence() || entry.second.size() == 0) {
      document.report(entry.second,
                      "'" + path + "' must be a list of values, but is " + kind_of(entry.second));
      continue;
    }
    if (std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.path == path; })) {
      document.report(entry.first, "'" + path + "' is given twice in 'matrix'");
      continue;
    }
    for (const auto& value : entry.second) {
      if (!value.IsScalar()) document.report(value, "a value of the matrix must be a single value");
    }
    check_names(document, entry.second, path);
    axes.push_back({path, entry.second.size()});
    cells *= entry.second.size();
    if (cells > kMaxCells) {
      document.report(matrix, "the matrix has more than " + std::to_string(kMaxCells) + " cells");
      return axes;
    }
  }
  return axes;
}

/// What is set, in order.
std::vector<std::pair<std::string, std::string>> all_sets(const LoadOptions& options) {
  auto all = options.set;
  all.insert(all.end(), options.reference.begin(), options.reference.end());
  return all;
}

void apply_sets(Document& document, YAML::Node& root, const LoadOptions& options, bool aliases) {
  for (const auto& [path, text] : all_sets(options)) {
    const std::string origin = "--set " + path + "=" + text;
    if (valid_utf8(origin) != origin.size()) {
      document.problems().push_back({origin, 0, 0, "is not in the encoding UTF-8", ""});
      continue;
    }
    try {
      const YAML::Node value = YAML::Load(text);
      document.add_override(value, origin);
      const std::string top = path.substr(0, path.find('.'));
      if (path == "matrix" || top == "matrix" || !substitute(root, path, value, aliases)) {
        document.problems().push_back({origin, 0, 0, "'" + path + "' is no key that can be set", ""});
      }
      for_each_added_key(root, path, [&](const YAML::Node& key) { document.add_override(key, origin); });
    } catch (const YAML::Exception& error) {
      document.problems().push_back({origin, 0, 0, std::string("not YAML: ") + error.msg, ""});
    }
  }
}

/// A key that the command line sets does not vary: else cells that run alike would have different names.
void hold_what_is_set(std::vector<Axis>& axes, const LoadOptions& options) {
  for (Axis& axis : axes) {
    for (const auto& [path, text] : options.set)
      if (path == axis.path) axis.set = text;
    if (axis.path == "seed" && options.seed) axis.set = std::to_string(*options.seed);
    if (axis.path == "repeats" && options.repeats) axis.set = std::to_string(*options.repeats);
    if (axis.set) axis.values = 1;
  }
}

/// A map that the command line sets replaces the values that a matrix gives to keys of it.
void check_sets(Document& document, const std::vector<Axis>& axes, const LoadOptions& options) {
  for (const auto& [path, text] : options.set)
    for (const Axis& axis : axes)
      if (axis.path.starts_with(path + "."))
        document.problems().push_back(
            {"--set " + path + "=" + text, 0, 0,
             "the matrix of the file varies '" + axis.path + "'; set that key instead", ""});
}

/// The scalar that `text` is in YAML; `text` itself if it is none, which apply_sets() or the key's reader
/// reports.
std::string scalar_of(const std::string& text) {
  try {
    const YAML::Node value = YAML::Load(text);
    return value.IsScalar() ? value.Scalar() : text;
  } catch (const YAML::Exception&) {
    return text;
  }
}

void note_overrides(Scenario& scenario, const LoadOptions& options) {
  for (const auto& [path, text] : all_sets(options)) scenario.overrides[path] = text;
  if (options.repeats) scenario.overrides["repeats"] = std::to_string(*options.repeats);
  if (options.seed) scenario.overrides["seed"] = std::to_string(*options.seed);
  std::string modes;
  for (const std::string& mode : options.modes) modes += (modes.empty() ? "" : ",") + mode;
  if (!modes.empty()) scenario.overrides["modes"] = modes;
}

/// Text in another encoding would get into results, which nothing could read again. UTF-16 and UTF-32 that
/// begin with a byte order mark are read as what they are.
void check_utf8(Document& document, const std::string& text) {
  using namespace std::string_view_literals;
  for (const std::string_view mark : {"\xff\xfe"sv, "\xfe\xff"sv, "\0\0\xfe\xff"sv})
    if (text.starts_with(mark)) return;
  const size_t good = valid_utf8(text);
  if (good == text.size()) return;
  const size_t line_begin = text.rfind('\n', good) + 1;  // npos + 1 is 0
  const auto line = 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(line_begin), '\n');
  document.report_line(int(line), int(good - line_begin) + 1,
                       "this character is not in UTF-8; save the file in the encoding UTF-8");
}

std::vector<Axis> axes_of(const std::string& file, const std::string& text) {
  Document document(file, text);
  std::vector<Axis> axes;
  check_utf8(document, text);
  if (!document.ok()) throw ScenarioError(std::move(document.problems()));
  try {
    const YAML::Node root = YAML::Load(text);
    if (const auto mark = faultinject::end_of_first_document(text))
      document.report_line(
          mark->line + 1, mark->column + 1,
          "the scenario ends before this, and the rest of the file would be ignored; write a "
          "second document into a file of its own");
    if (!root.IsMap())
      throw ScenarioError(
          {{file, 0, 0,
            root.IsNull()
                ? "the file is empty; a scenario is a map that starts with 'version: 1'"
                : std::string("a scenario is a map of keys and values, but this is ") + kind_of(root),
            ""}});
    axes = read_axes(document, root);
  } catch (const YAML::ParserException& error) {
    // yaml-cpp's word for a list in a list in a list, some hundred times.
    const std::string why = error.msg == "bad file" ? "nested too deeply" : "not YAML: " + error.msg;
    if (error.mark.is_null()) {
      document.report_line(0, 0, why);
    } else {
      document.report_line(error.mark.line + 1, error.mark.column + 1, why);
    }
  }
  if (!document.ok()) throw ScenarioError(std::move(document.problems()));
  return axes;
}

/// The scenario of one cell of the matrix; what is wrong with it goes to `document`.
Scenario read_cell(Document& document, const std::string& file, const std::string& text,
                   const std::vector<Axis>& axes, size_t cell, const LoadOptions& options) {
  // The text is parsed anew for each cell: nodes are shared handles, and a substitution would be seen by all.
  YAML::Node root = YAML::Load(text);
  const bool aliases = text.find('&') != std::string::npos;  // none without an anchor
  std::map<std::string, std::string> chosen;
  std::string suffix;
  for (const Axis& axis : axes) {
    if (axis.set) {
      const std::string value = scalar_of(*axis.set);
      suffix += "-" + file_name_part(value);
      chosen[axis.path] = value;
      continue;
    }
    const YAML::Node value = root["matrix"][axis.path][cell % axis.values];
    cell /= axis.values;
    chosen[axis.path] = value.Scalar();
    suffix += "-" + file_name_part(value.Scalar());
    if (!substitute(root, axis.path, value, aliases))
      document.report(value, "'" + axis.path + "' is no key of this file");
    const YAML::Mark mark = value.Mark();
    for_each_added_key(root, axis.path, [&](const YAML::Node& key) { document.add_place(key, mark); });
  }
  root.remove("matrix");
  check_sets(document, axes, options);
  apply_sets(document, root, options, aliases);
  Scenario scenario = read_sections(document, root, std::filesystem::path(file).stem().string(), options);
  scenario.name += suffix;
  scenario.matrix = std::move(chosen);
  scenario.source_file = file;
  scenario.source_text = text;
  note_overrides(scenario, options);
  return scenario;
}

/// A mistake outside the varied keys shows in every cell; it is said once.
void add_new(std::vector<Problem>& problems, std::vector<Problem>& of_cell) {
  for (Problem& problem : of_cell) {
    const bool known = std::any_of(problems.begin(), problems.end(), [&](const Problem& other) {
      return other.file == problem.file && other.line == problem.line && other.column == problem.column &&
             other.message == problem.message;
    });
    if (!known) problems.push_back(std::move(problem));
  }
}

}  // namespace

std::vector<Scenario> parse_scenarios(const std::string& file, const std::string& text,
                                      const LoadOptions& options) {
  std::vector<Axis> axes = axes_of(file, text);
  hold_what_is_set(axes, options);
  size_t cells = 1;
  for (const Axis& axis : axes) cells *= axis.values;
  std::vector<Scenario> scenarios;
  std::vector<Problem> problems;
  for (size_t cell = 0; cell < cells; ++cell) {
    Document document(file, text);
    scenarios.push_back(read_cell(document, file, text, axes, cell, options));
    const bool known = std::any_of(scenarios.begin(), scenarios.end() - 1, [&](const Scenario& other) {
      return other.name == scenarios.back().name;
    });
    if (known && document.ok())
      document.report_line(0, 0, "two scenarios of the matrix have the name '" + scenarios.back().name + "'");
    add_new(problems, document.problems());
  }
  if (!problems.empty()) throw ScenarioError(std::move(problems));
  return scenarios;
}

std::vector<Scenario> load_scenarios(const std::string& path, const LoadOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw ScenarioError({{path, 0, 0, "this is a directory, not a scenario file", ""}});
  }
  std::string text;
  try {
    text = read_input(path, kMaxBytes);
  } catch (const ReadError& error) {
    std::string hint;
    if (!std::filesystem::exists(path, ignored)) {
      const std::filesystem::path folder = std::filesystem::path(path).parent_path();
      std::vector<std::string> names;
      for (const auto& entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder, ignored)) {
        if (entry.path().extension() == ".yaml" && entry.is_regular_file(ignored))
          names.push_back(entry.path().filename().string());
      }
      std::sort(names.begin(), names.end());
      hint = did_you_mean(std::filesystem::path(path).filename().string(), names);
    }
    throw ScenarioError({{path, 0, 0, error.what() + hint, ""}});
  }
  return parse_scenarios(path, text, options);
}

}  // namespace r2bench
