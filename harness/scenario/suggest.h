// SPDX-License-Identifier: Apache-2.0
// Lists and near misses in messages.
#pragma once

#include <string>
#include <vector>

namespace r2bench {

/// "; did you mean 'word'?" for the candidate that is near enough to be meant, or "" when none is.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

/// "a, b or c"
std::string list_of(const std::vector<std::string>& words);

}  // namespace r2bench
