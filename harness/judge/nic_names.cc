// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/nic_names.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace r2bench {
namespace {

bool is_digit(const std::string& text, size_t at) {
  return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]));
}
bool is_alnum(const std::string& text, size_t at) {
  return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
}

/// The node's name ("node1") that begins at `at`, "" when none does.
std::string node_at(const std::string& text, size_t at) {
  size_t end = at + 4;
  while (is_digit(text, end)) ++end;
  const bool whole = (at == 0 || !is_alnum(text, at - 1)) && !is_alnum(text, end);
  return whole && end > at + 4 && text.compare(at, 4, "node") == 0 ? text.substr(at, end - at) : "";
}

/// Whose the NIC is whose name stands in [begin, end): "vhca0 of node1"; else the node named last before it
/// ("node1/nic0", "node1/rank0 (NIC vhca0 …"). "" when the text does not say so in the harness's names.
std::string owner(const std::string& text, size_t begin, size_t end) {
  if (text.compare(end, 4, " of ") == 0) return node_at(text, end + 4);
  for (size_t at = begin; (at = text.rfind("node", at)) != std::string::npos; --at) {
    if (const std::string node = node_at(text, at); !node.empty()) return node;
    if (at == 0) break;
  }
  return "";
}

/// Whether the device's name stands there as a word, and as this node's.
bool names_device(const std::string& text, const std::string& node, const std::string& device) {
  const auto in_word = [&](size_t at) { return is_alnum(text, at) || (at < text.size() && text[at] == '_'); };
  for (size_t at = text.find(device); at != std::string::npos; at = text.find(device, at + 1)) {
    const size_t end = at + device.size();
    if ((at > 0 && in_word(at - 1)) || in_word(end)) continue;
    const std::string whose = owner(text, at, end);
    if (whose.empty() || whose == node) return true;
  }
  return false;
}

}  // namespace

bool names_nic(const std::string& text, const std::string& node, const std::string& index,
               const Devices& devices) {
  bool known = false;
  for (const auto& [number, names] : devices) {
    const std::string name = "node" + std::to_string(number);
    const size_t nic = std::stoul(index);
    if (nic >= names.size() || !faultinject::pattern_matches(node, name)) continue;
    if (names_device(text, name, names[nic])) return true;
    known = true;
  }
  std::vector<std::string_view> words = {"nic", "NIC"};
  if (!known) words.insert(words.end(), {"vhca", "mlx5_", "mlx4_", "rxe", "siw"});
  for (size_t at = text.find(index); at != std::string::npos; at = text.find(index, at + 1)) {
    const size_t end = at + index.size();
    if (is_digit(text, end)) continue;
    const size_t word_end = at > 0 && text[at - 1] == ' ' ? at - 1 : at;
    for (const std::string_view word : words) {
      if (word_end < word.size() || text.compare(word_end - word.size(), word.size(), word) != 0) continue;
      const size_t begin = word_end - word.size();
      if (begin > 0 && is_alnum(text, begin - 1)) continue;  // electronic 0
      const std::string whose = owner(text, begin, end);
      if (whose.empty() || faultinject::pattern_matches(node, whose)) return true;
    }
  }
  return false;
}

std::vector<std::string> nic_indices(const std::string& target, const Fabric& fabric) {
  std::vector<std::string> indices;
  const size_t from = std::min(target.find('/'), target.size());
  const std::string nic = target.substr(std::min(from + 1, target.size()));
  const std::string pattern = nic.substr(0, nic.find('/'));
  for (int i = 0; i < fabric.nics_per_node; ++i)
    if (faultinject::pattern_matches(pattern, "nic" + std::to_string(i)))
      indices.push_back(std::to_string(i));
  return indices;
}

}  // namespace r2bench
