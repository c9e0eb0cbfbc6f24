// SPDX-License-Identifier: Apache-2.0
// Which edits of a result.json pass `r2bench validate`: each value of complete results is changed, one at a
// time. golden/edits_unnoticed.txt lists the places where a change cannot be known from the file alone;
// README.md says why. After an intended change: R2BENCH_UPDATE_GOLDEN=1 report_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "harness/measure/testing/sample_result.h"
#include "harness/report/consistency.h"
#include "harness/report/recheck.h"
#include "harness/report/result_file.h"
#include "harness/report/schema.h"
#include "harness/report/testing/judged_json.h"
#include "harness/report/testing/sample_pairs.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

/// What validate says of it; empty: good.
std::string said_of(const Json& result) {
  static const Json schema = read_json_file(R2BENCH_SCHEMA);
  for (const Mismatch& mismatch : schema_mismatches(schema, result)) return in_words(mismatch);
  for (const Mismatch& mismatch : unknown_metrics(result)) return in_words(mismatch);
  for (const std::string& conclusion : conclusion_mismatches(result)) return conclusion;
  for (const std::string& contradiction : contradictions(result)) return contradiction;
  return "";
}

/// Other values that a forger may write.
std::vector<Json> edits_of(const Json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_null()) return {1};
  if (value.is_number_integer()) return {value.get<int64_t>() + 1, value.get<int64_t>() * 2 + 10};
  if (value.is_number()) return {value.get<double>() * 1.3 + 0.7, value.get<double>() * 0.7};
  std::string text = value.get<std::string>();
  std::vector<Json> edits = {text + "x"};
  const auto digit = std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  if (digit != text.end()) {
    *digit = *digit == '9' ? '8' : char(*digit + 1);
    edits.emplace_back(text);
  }
  return edits;
}

/// "/runs/1/faults/0/name" as "/runs/*/faults/*/name"; the names of settings and of facts do not matter.
std::string shape_of(const std::string& place) {
  std::istringstream parts(place.substr(1));
  std::string shape, before;
  for (std::string part; std::getline(parts, part, '/'); before = part) {
    const bool index = !part.empty() &&
                       std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    shape += "/" + (index || before == "settings" || before == "environment" ? "*" : part);
  }
  return shape;
}

/// Of a long list the ends and the middle stand for all.
bool stands_for_others(const Json& result, const Json::json_pointer& place) {
  const Json& list = result.at(place.parent_pointer());
  if (!list.is_array() || list.size() < 12) return false;
  const size_t index = std::stoul(place.back());
  return index != 0 && index != list.size() / 2 && index + 1 != list.size();
}

std::set<std::string> unnoticed_edits(Json result) {
  std::set<std::string> shapes;
  const Json flat = result.flatten();
  for (const auto& [place, unused] : flat.items()) {
    const Json::json_pointer pointer(place);
    const Json before = result.at(pointer);
    if (before.is_structured() || stands_for_others(result, pointer)) continue;  // an empty list is no value
    for (const Json& edit : edits_of(before)) {
      if (edit == before) continue;
      result[pointer] = edit;
      try {
        if (said_of(result).empty()) shapes.insert(shape_of(place));
      } catch (const std::exception& error) {
        ADD_FAILURE() << place << " = " << edit << ": " << error.what();
      }
    }
    result[pointer] = before;
  }
  EXPECT_EQ(said_of(result), "") << "all is as it was";
  return shapes;
}

std::vector<Json> complete_results() {
  return {read_json_file(R2BENCH_REFERENCE), judged_json(sample_pairs_scenario(), sample_pairs_result())};
}

TEST(Edits, complete_results_are_good) {
  for (const Json& result : complete_results()) EXPECT_EQ(said_of(result), "") << result.at("scenario");
  EXPECT_EQ(said_of(read_json_file(std::string(R2BENCH_SAMPLE_RUN) + "/result.json")), "") << "an older one";
}

TEST(Edits, only_what_the_file_says_once_can_be_changed) {
  std::set<std::string> shapes;
  for (const Json& result : complete_results()) shapes.merge(unnoticed_edits(result));
  std::string text;
  for (const std::string& shape : shapes) text += shape + "\n";
  const std::string path = std::string(R2BENCH_GOLDEN_DIR) + "/edits_unnoticed.txt";
  if (std::getenv("R2BENCH_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream stream(path);
  std::ostringstream stored;
  stored << stream.rdbuf();
  EXPECT_EQ(text, stored.str());
}

}  // namespace
}  // namespace r2bench
