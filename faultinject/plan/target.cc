// SPDX-License-Identifier: Apache-2.0
// Targets: patterns of nodes and NICs, and the choice of a queue pair.
#include <algorithm>
#include <charconv>

#include "faultinject/plan/plan.h"

namespace faultinject {
namespace {

bool parse_number(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

// Matches one "[a-b]" (numbers of any length, or single characters) at the start of text; calls itself back
// through pattern_matches for the rest, once per length that fits.
bool class_matches(std::string_view inside, std::string_view rest, std::string_view text) {
  const size_t dash = inside.find('-');
  const std::string_view low = inside.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : inside.substr(dash + 1);
  uint64_t from = 0, to = 0, number = 0;
  if (parse_number(low, from) && parse_number(high, to)) {
    for (size_t length = 1; length <= text.size() && length <= 18; length++) {
      if (!parse_number(text.substr(0, length), number)) break;
      if (number >= from && number <= to && pattern_matches(rest, text.substr(length))) return true;
    }
    return false;
  }
  if (low.size() != 1 || high.size() != 1 || text.empty()) return false;
  return text[0] >= low[0] && text[0] <= high[0] && pattern_matches(rest, text.substr(1));
}

// A sentence on what is wrong with a pattern, or nothing.
std::string pattern_fault(std::string_view pattern) {
  if (pattern.empty()) return "is empty";
  bool open = false;
  size_t start = 0;
  for (size_t i = 0; i < pattern.size(); i++) {
    if (pattern[i] == '[') {
      if (open) return "has a '[' inside a '[...]'";
      open = true;
      start = i + 1;
    } else if (pattern[i] == ']') {
      if (!open) return "has a ']' without '['";
      const std::string_view inside = pattern.substr(start, i - start);
      const size_t dash = inside.find('-');
      const std::string_view low = inside.substr(0, dash);
      const std::string_view high = dash == std::string_view::npos ? low : inside.substr(dash + 1);
      uint64_t from = 0, to = 0;
      const bool numbers = parse_number(low, from) && parse_number(high, to);
      if (!numbers && (low.size() != 1 || high.size() != 1))
        return "has a range that is neither [0-3] nor [a-c]";
      if (numbers ? from > to : low[0] > high[0]) return "has a range that runs backwards";
      open = false;
    }
  }
  return open ? "has a '[' without ']'" : "";
}

}  // namespace

bool pattern_matches(std::string_view pattern, std::string_view text) {
  while (!pattern.empty()) {
    const char c = pattern[0];
    if (c == '*') {
      for (size_t skip = 0; skip <= text.size(); skip++)
        if (pattern_matches(pattern.substr(1), text.substr(skip))) return true;
      return false;
    }
    if (c == '[') {
      const size_t close = pattern.find(']');
      if (close == std::string_view::npos) return false;
      return class_matches(pattern.substr(1, close - 1), pattern.substr(close + 1), text);
    }
    if (text.empty() || (c != '?' && c != text[0])) return false;
    pattern.remove_prefix(1);
    text.remove_prefix(1);
  }
  return text.empty();
}

Target parse_target(std::string_view text, const std::string& file, int line, int column) {
  const auto fail = [&](const std::string& why) -> PlanError {
    return PlanError(file, line, column,
                     "target '" + std::string(text) + "' " + why +
                         "; write NODE/NIC, with /port:N or /qp:N behind it where wanted, e.g. 'node1/nic0', "
                         "'node*/nic[0-1]', '*/nic0/qp:3'");
  };
  Target target;
  target.text = std::string(text);
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) throw fail("names no NIC");
  target.node = std::string(text.substr(0, slash));
  std::string_view rest = text.substr(slash + 1);
  size_t second = rest.find('/');
  target.nic = std::string(rest.substr(0, second));
  if (const std::string why = pattern_fault(target.node); !why.empty())
    throw fail("has a node part that " + why);
  if (const std::string why = pattern_fault(target.nic); !why.empty())
    throw fail("has a NIC part that " + why);
  if (target.nic != "*" && target.nic.rfind("nic", 0) != 0 && target.nic[0] != '?' && target.nic[0] != '[' &&
      target.nic[0] != '*')
    throw fail("has a NIC part '" + target.nic + "' that can match no NIC (NICs are called nic0, nic1, …)");
  bool has_qp = false;
  while (second != std::string_view::npos) {
    rest = rest.substr(second + 1);
    second = rest.find('/');
    const std::string_view part = rest.substr(0, second);
    uint64_t number = 0;
    if (part.rfind("port:", 0) == 0) {
      if (target.port != 0) throw fail("names two ports");
      if (part != "port:*" && (!parse_number(part.substr(5), number) || number == 0 || number > 254))
        throw fail("has a port '" + std::string(part.substr(5)) + "'; ports count from 1");
      target.port = uint32_t(number);
      continue;
    }
    if (part.rfind("qp:", 0) != 0)
      throw fail("has a part '" + std::string(part) +
                 "' that is not port:N, qp:N, qp:all, qp:random or qp:busiest");
    if (has_qp) throw fail("names two queue pairs");
    has_qp = true;
    const std::string_view which = part.substr(3);
    if (which == "all" || which == "*") {
      target.qp.kind = QpSelector::Kind::kAll;
    } else if (which == "random") {
      target.qp.kind = QpSelector::Kind::kRandom;
    } else if (which == "busiest") {
      target.qp.kind = QpSelector::Kind::kBusiest;
    } else if (parse_number(which, number) && number <= UINT32_MAX) {
      target.qp = {QpSelector::Kind::kIndex, uint32_t(number)};
    } else {
      throw fail("has a part '" + std::string(part) +
                 "' that is not port:N, qp:N, qp:all, qp:random or qp:busiest");
    }
  }
  return target;
}

bool matches(const Target& target, std::string_view node, uint32_t nic, std::optional<uint32_t> qp_index) {
  if (!pattern_matches(target.node, node)) return false;
  if (!pattern_matches(target.nic, "nic" + std::to_string(nic))) return false;
  if (target.qp.kind != QpSelector::Kind::kIndex || !qp_index) return true;
  return target.qp.index == *qp_index;
}

namespace {

/// The first name of a pattern such as "nic[0-6]", with one range of numbers and else only letters, that
/// `known` lacks: what it names one by one has to be there. Patterns with * and ? take what there is.
std::optional<std::string> first_missing(const std::string& pattern, const std::vector<std::string>& known) {
  const size_t open = pattern.find('['), close = pattern.find(']');
  if (open == std::string::npos || pattern.find_first_of("*?") != std::string::npos ||
      pattern.find('[', open + 1) != std::string::npos)
    return std::nullopt;
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  const size_t dash = inside.find('-');
  uint64_t from = 0, to = 0;
  if (dash == std::string::npos || !parse_number(inside.substr(0, dash), from) ||
      !parse_number(inside.substr(dash + 1), to))
    return std::nullopt;
  for (uint64_t number = from; number <= to && number - from <= known.size(); ++number) {
    const std::string name = pattern.substr(0, open) + std::to_string(number) + pattern.substr(close + 1);
    if (std::find(known.begin(), known.end(), name) == known.end()) return name;
  }
  return std::nullopt;
}

void check_pattern(const FaultSpec& spec, const std::string& what, const std::string& node_pattern,
                   const std::string& nic_pattern, const std::vector<NodeShape>& nodes) {
  std::vector<std::string> names;
  uint32_t most_nics = 0;
  bool node_found = false, nic_found = false;
  for (const NodeShape& node : nodes) {
    names.push_back(node.name);
    most_nics = std::max(most_nics, node.nics);
    if (!pattern_matches(node_pattern, node.name)) continue;
    node_found = true;
    for (uint32_t nic = 0; nic < node.nics; nic++)
      nic_found = nic_found || pattern_matches(nic_pattern, "nic" + std::to_string(nic));
  }
  std::vector<std::string> nics;
  for (uint32_t nic = 0; nic < most_nics; nic++) nics.push_back("nic" + std::to_string(nic));
  const std::optional<std::string> no_node = node_found ? first_missing(node_pattern, names) : std::nullopt;
  const std::optional<std::string> no_nic = nic_found ? first_missing(nic_pattern, nics) : std::nullopt;
  if (nic_found && !no_node && !no_nic) return;
  std::string list;
  for (size_t i = 0; i < names.size() && i < 8; i++) list += (i ? ", " : "") + names[i];
  if (names.size() > 8) list += ", … (" + std::to_string(names.size()) + " nodes)";
  std::string why;
  if (no_node) {
    why = "there is no node '" + *no_node + "' (there are: " + list + ")";
  } else if (!node_found) {
    why = "there is no node '" + node_pattern + "' (there are: " + list + ")";
    if (const auto near = nearest(node_pattern, names)) why += "; did you mean '" + *near + "'?";
  } else {
    why = "no node that matches '" + node_pattern + "' has a NIC '" + no_nic.value_or(nic_pattern) +
          "' (there are: nic0";
    if (most_nics > 1) why += " to nic" + std::to_string(most_nics - 1);
    why += ")";
    if (most_nics == 0) why = "the nodes have no NICs";
  }
  throw PlanError(spec.file, spec.line, spec.column, what + ": " + why);
}

}  // namespace

void check_targets(const FaultSpec& spec, const std::vector<NodeShape>& nodes) {
  const std::string what = "target '" + spec.target.text + "'";
  check_pattern(spec, what, spec.target.node, spec.target.nic, nodes);
  uint32_t most_ports = 0;
  for (const NodeShape& node : nodes)
    if (pattern_matches(spec.target.node, node.name))
      most_ports = std::max(most_ports, node.ports == 0 ? UINT32_MAX : node.ports);
  if (spec.target.port > most_ports)
    throw PlanError(spec.file, spec.line, spec.column,
                    what + ": there is no port " + std::to_string(spec.target.port) + " (each NIC has " +
                        std::to_string(most_ports) + (most_ports == 1 ? " port)" : " ports)"));
  if (spec.target.peer_node.empty()) return;
  check_pattern(spec, "peer '" + spec.target.peer_node + "/" + spec.target.peer_nic + "'",
                spec.target.peer_node, spec.target.peer_nic, nodes);
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
  size_t best = SIZE_MAX;
  std::optional<std::string> found;
  for (const std::string& candidate : known) {
    // Levenshtein with adjacent swaps, one row kept twice: the words are short.
    const size_t n = word.size(), m = candidate.size();
    std::vector<std::vector<size_t>> d(n + 1, std::vector<size_t>(m + 1));
    for (size_t i = 0; i <= n; i++) d[i][0] = i;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++)
      for (size_t j = 1; j <= m; j++) {
        d[i][j] =
            std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (word[i - 1] != candidate[j - 1])});
        if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1])
          d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    if (d[n][m] < best) {
      best = d[n][m];
      found = candidate;
    }
  }
  const size_t allowed = std::max<size_t>(1, word.size() / 3);
  return best <= allowed ? found : std::nullopt;
}

}  // namespace faultinject
