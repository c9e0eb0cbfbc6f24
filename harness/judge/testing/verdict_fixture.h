// SPDX-License-Identifier: Apache-2.0
// The sample run, judged.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "harness/judge/verdict.h"
#include "harness/measure/testing/sample_result.h"

namespace r2bench {

class VerdictTest : public testing::Test {
 protected:
  Scenario scenario = sample_scenario();
  RunResult result = sample_result();
  ModeResult& baseline() { return result.modes[0]; }
  ModeResult& migrate() { return result.modes[1]; }

  Judgement of(const std::string& name) {
    for (const Judgement& j : judge(scenario, result).expectations) {
      if (j.name() == name) return j;
    }
    ADD_FAILURE() << "no expectation " << name;
    return {};
  }
  Verdict verdict() { return judge(scenario, result).verdict; }
};

}  // namespace r2bench
