// SPDX-License-Identifier: Apache-2.0
// timeline.json: the curves and marks from which plots/timeline.py draws. Beside result.json, because it is
// large. Times are milliseconds from the first iteration of each mode's job.
#pragma once

#include "harness/report/report.h"

namespace r2bench {

class TimelineReporter : public Reporter {
 public:
  std::string file_name() const override { return "timeline.json"; }
  void write(const Report& report, std::ostream& out) const override;
};

}  // namespace r2bench
