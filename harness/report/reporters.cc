// SPDX-License-Identifier: Apache-2.0
// The list of formats: a new one is a pair of files and one line here.
#include "harness/report/events.h"
#include "harness/report/json.h"
#include "harness/report/junit.h"
#include "harness/report/report.h"
#include "harness/report/terminal.h"
#include "harness/report/timeline.h"

namespace r2bench {

std::vector<std::unique_ptr<Reporter>> file_reporters() {
  std::vector<std::unique_ptr<Reporter>> all;
  all.push_back(std::make_unique<JsonReporter>());
  all.push_back(std::make_unique<TimelineReporter>());
  all.push_back(std::make_unique<JunitReporter>());
  all.push_back(std::make_unique<EventsReporter>());
  all.push_back(std::make_unique<TerminalReporter>());
  return all;
}

}  // namespace r2bench
