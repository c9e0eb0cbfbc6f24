// SPDX-License-Identifier: Apache-2.0
// junit.xml: one test case per expectation, for CI systems. Unknown is an error, not a failure and not a
// skip: a gate must not open on it.
#pragma once

#include "harness/report/report.h"

namespace r2bench {

class JunitReporter : public Reporter {
 public:
  std::string file_name() const override { return "junit.xml"; }
  void write(const Report& report, std::ostream& out) const override;
};

}  // namespace r2bench
