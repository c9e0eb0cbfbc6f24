// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "harness/judge/beside.h"
#include "harness/judge/metric.h"
#include "harness/report/consistency_parts.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

/// They need the names of devices, or the event log.
const std::set<std::string> kNotInResult = {"error_names_nic", "renewed_in_migration"};

/// What two sides in one job show of each other.
void check_beside(const ReadBack& all, const Json& run, const ModeResult& mode, Findings& findings) {
  if (!mode.beside) return;
  const Json& said = run.at("metrics").at("beside");
  const size_t iters = size_t(all.scenario.workload.iters), round = 32 * mode.beside->copies;
  if (iters % round)
    findings.say("beside.copies is " + std::to_string(mode.beside->copies) + ", but the job's " +
                 std::to_string(iters) + " operations are no multiple of " + std::to_string(round));
  const SidesCompared follows = compare_sides(mode, iters);
  const char* from = "iteration_ms";
  if (said.at("ratio").is_number() && follows.ratio)
    findings.close("beside.ratio", number(said.at("ratio")), *follows.ratio, from);
  else
    findings.same("beside.ratio", said.at("ratio"), follows.ratio ? Json(*follows.ratio) : Json(), from);
  findings.same("beside.operations", said.at("operations"), follows.operations, from);
  findings.same("beside.why_not", said.at("why_not"),
                follows.why_not.empty() ? Json() : Json(follows.why_not), from);
}

}  // namespace

void check_values(const ReadBack& all, const Json& run, const ModeResult& mode, Findings& findings) {
  check_beside(all, run, mode, findings);
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
