// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/suggest.h"

#include "faultinject/plan/plan.h"

namespace r2bench {

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const auto near = faultinject::nearest(word, candidates);
  return near ? "; did you mean '" + *near + "'?" : "";
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace r2bench
