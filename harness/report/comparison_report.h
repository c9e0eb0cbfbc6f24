// SPDX-License-Identifier: Apache-2.0
// A comparison in each format that people and CI services read. What has not been measured is never printed
// as a number.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/compare.h"

namespace r2bench {

/// A table, the rows that are worse or unknown in sentences, and the notes.
std::string comparison_text(const SampleComparison& comparison);
/// The same for GitHub's step summary, under a heading.
std::string comparison_markdown(const SampleComparison& comparison);
/// GitHub workflow commands, a line each: ::error for what is worse, ::warning for what is unknown.
std::string comparison_annotations(const SampleComparison& comparison);
/// One test case per row; worse is a failure, unknown an error.
std::string comparison_junit(const SampleComparison& comparison);
/// github-action-benchmark's array for `customSmallerIsBetter` or `customBiggerIsBetter`: of the metrics for
/// which `better` is better.
nlohmann::ordered_json benchmark_action_json(const SampleComparison& comparison, Better better);
/// Bencher Metric Format: benchmark → measure → value.
nlohmann::ordered_json bencher_json(const SampleComparison& comparison);

/// Everything in it, for scripts: the rows with every number, and the notes. What is not known is null.
nlohmann::ordered_json comparison_json(const SampleComparison& comparison);

/// Name and content of each file: comparison.txt, comparison.md, comparison.json, junit.xml,
/// benchmark_smaller.json, benchmark_bigger.json, bencher.json.
std::vector<std::pair<std::string, std::string>> comparison_files(const SampleComparison& comparison);

}  // namespace r2bench
