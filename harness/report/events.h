// events.jsonl: what happened in order of time, one JSON object per line.
#pragma once

#include "harness/report/report.h"

namespace r2bench {

class EventsReporter : public Reporter {
 public:
  std::string file_name() const override { return "events.jsonl"; }
  void write(const Report& report, std::ostream& out) const override;
};

}  // namespace r2bench
