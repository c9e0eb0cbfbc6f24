// SPDX-License-Identifier: Apache-2.0
// result.json, the machine's view of a run; its schema is results/schema.json.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/report/report.h"

namespace r2bench {

inline constexpr int kResultSchemaVersion = 2;

/// The whole of result.json. Values that are not known are null, never 0.
nlohmann::ordered_json to_json(const Report& report);

class JsonReporter : public Reporter {
 public:
  std::string file_name() const override { return "result.json"; }
  void write(const Report& report, std::ostream& out) const override;
};

/// What a result says of them.
nlohmann::ordered_json fabric_json(const Fabric& fabric);
nlohmann::ordered_json workload_json(const Workload& work);

}  // namespace r2bench
