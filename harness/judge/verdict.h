// SPDX-License-Identifier: Apache-2.0
// Holds a run against what its scenario expects. Three answers: pass, fail, and unknown, which is what a run
// earns that never saw its fault, checked nothing or was cut short. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

enum class Verdict { kPass, kFail, kUnknown };

struct Judgement {
  std::string mode;
  std::string metric;
  std::string wanted;                  ///< as in the scenario
  std::optional<double> wanted_value;  ///< the right side in numbers, when it is an expression
  std::string got;                     ///< in words, with unit; why not, when it is unknown
  std::optional<double> got_value;
  std::optional<std::string> got_word;  ///< of a metric that is one of some words, or free words
  std::string detail;                   ///< the job's error where it explains `got`; may be empty
  Verdict verdict = Verdict::kUnknown;
  bool implied =
      false;     ///< not in the file: a job is expected to end well unless the scenario says otherwise
  int line = 0;  ///< in the scenario file; 0 when implied

  std::string name() const { return mode + "." + metric; }
};

struct Judged {
  Verdict verdict = Verdict::kUnknown;
  std::vector<Judgement> expectations;
  std::vector<std::string> doubts;  ///< sentences: why a verdict that could be pass is not
};

Judged judge(const Scenario& scenario, const RunResult& result);

/// "pass", "fail", "unknown".
const char* name(Verdict verdict);
/// DESIGN's exit codes: 0, 1, 2.
int exit_code(Verdict verdict);

}  // namespace r2bench
