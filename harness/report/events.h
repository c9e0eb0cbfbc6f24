// SPDX-License-Identifier: Apache-2.0
// events.jsonl: what happened in order of time, one JSON object per line. Where a log was cut, its mode's
// last line is
// {"mode", "event": "events_left_out", "a": how many}: whoever counts from the file must look for it.
#pragma once

#include "harness/report/report.h"

namespace r2bench {

inline constexpr const char* kEventsLeftOut = "events_left_out";

class EventsReporter : public Reporter {
 public:
  std::string file_name() const override { return "events.jsonl"; }
  void write(const Report& report, std::ostream& out) const override;
};

}  // namespace r2bench
