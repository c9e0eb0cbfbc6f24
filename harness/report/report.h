// SPDX-License-Identifier: Apache-2.0
// One pair of files per format, all behind one small interface: a finished run in, text out.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "harness/measure/result.h"
#include "harness/judge/verdict.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// What every format is made from. The three belong together: `judged` is judge(scenario, result).
struct Report {
  const Scenario& scenario;
  const RunResult& result;
  const Judged& judged;
};

class Reporter {
 public:
  virtual ~Reporter() = default;
  /// Name of the file within the run's folder.
  virtual std::string file_name() const = 0;
  virtual void write(const Report& report, std::ostream& out) const = 0;
};

/// Every format that is written beside a run: result.json, timeline.json, junit.xml, events.jsonl,
/// report.txt.
std::vector<std::unique_ptr<Reporter>> file_reporters();

}  // namespace r2bench
