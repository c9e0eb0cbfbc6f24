// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "harness/judge/metric.h"
#include "harness/report/consistency_parts.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

/// They need the names of devices, or the event log.
const std::set<std::string> kNotInResult = {"error_names_nic", "renewed_in_migration"};

}  // namespace

void check_values(const ReadBack& all, const Json& run, const ModeResult& mode, Findings& findings) {
  const Json values = run.at("metrics").value("values", Json::object());  // not in older results
  for (const Metric& metric : all_metrics()) {
    const std::string& name = metric.info.name;
    if (!values.contains(name) || kNotInResult.contains(name)) continue;
    const Value value = metric.value({all.scenario, all.result, mode});
    Json follows;
    if (value.word) follows = *value.word;
    if (value.number && std::isfinite(*value.number)) follows = *value.number;
    const Json& said = values.at(name);
    const std::string what = "metrics.values." + name, from = "the rest of the run";
    if (said.is_number() && follows.is_number())
      findings.close(what, number(said), follows.get<double>(), from);
    else
      findings.same(what, said, follows, from);
  }
}

}  // namespace r2bench
