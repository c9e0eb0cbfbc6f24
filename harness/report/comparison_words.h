// SPDX-License-Identifier: Apache-2.0
// How the formats of a comparison write a row: numbers, and the sentence for what is worse or unknown.
#pragma once

#include <optional>
#include <string>

#include "harness/judge/compare.h"

namespace r2bench {

/// "0.412", "never" for what never came, "–" for what is not known.
std::string value_text(const ComparisonRow& row, const std::optional<double>& value);
/// "+0.412", "-3.20", "never".
std::string signed_text(double value);
/// "0.004", "< 0.001".
std::string p_text(double p);
/// "nic_down migrate recover_ms".
std::string title(const ComparisonRow& row);
/// What is worse, by how much, and what it was held against; or why it is unknown.
std::string sentence(const ComparisonRow& row);
/// "pass", "fail: 2 of 9 are worse", "unknown: 1 of 9 cannot be told".
std::string verdict_text(const SampleComparison& comparison);

}  // namespace r2bench
