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

/// Why something is unknown: a key of result.json, which programs may rely on. Sentences may change.
enum class DoubtKind {
  kExpectsNothing,
  kModeNotRun,
  kFaultNotSeen,
  kTraceLost,
  kEffectsNotRecorded,
  kRoundsNotRecorded,
  kFaultsAdded,  ///< by `r2bench inject`, or ended by it
  kClocks,       ///< of two hosts, which ran apart faster than any clock does
  kFaultsNotStruck,
  kCutShort,       ///< the only one that follows from a run's being cut short
  kNoValue,        ///< the metric has no value, or the right side has none
  kProvesNothing,  ///< it is met, but that proves nothing (Metric::doubt)
  kTooFewPairs,
};
/// "expects_nothing", "mode_not_run" …
const char* name(DoubtKind kind);

struct Doubt {
  DoubtKind kind;
  std::string text;  ///< a sentence
};

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
  /// Of a verdict that is unknown. kCutShort only if the rest of the run could have decided it.
  std::optional<DoubtKind> doubt;
  bool implied =
      false;     ///< not in the file: a job is expected to end well unless the scenario says otherwise
  int line = 0;  ///< in the scenario file; 0 when implied

  std::string name() const { return mode + "." + metric; }
};

struct Judged {
  Verdict verdict = Verdict::kUnknown;
  std::vector<Judgement> expectations;
  std::vector<Doubt> doubts;  ///< why a verdict that could be pass is not
};

Judged judge(const Scenario& scenario, const RunResult& result);

/// "pass", "fail", "unknown".
const char* name(Verdict verdict);
/// DESIGN's exit codes: 0, 1, 2.
int exit_code(Verdict verdict);

}  // namespace r2bench
