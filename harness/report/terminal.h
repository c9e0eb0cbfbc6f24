// SPDX-License-Identifier: Apache-2.0
// The report as a person reads it: what happened, the numbers, what was expected, the verdict.
#pragma once

#include "harness/report/report.h"

namespace r2bench {

struct TextStyle {
  bool colour = false;
  size_t columns = 110;  ///< sentences are wrapped to this
};

class TerminalReporter : public Reporter {
 public:
  explicit TerminalReporter(TextStyle style = {}) : style_(style) {}
  std::string file_name() const override { return "report.txt"; }
  void write(const Report& report, std::ostream& out) const override;

 private:
  TextStyle style_;
};

}  // namespace r2bench
