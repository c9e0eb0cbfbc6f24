// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a scenario file. It gives scenarios, or a list of problems each of which has a sentence and
// stands where it says; never anything else. What was taken keeps the promises that scenario.h makes to
// whoever runs it.
#include <algorithm>
#include <set>
#include <string>

#include "cmake/fuzz/input.h"
#include "harness/scenario/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace r2bench;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  try {
    const std::vector<Scenario> scenarios = parse_scenarios("fuzz.yaml", text);
    FUZZ_CHECK(!scenarios.empty() && scenarios.size() <= 256);
    for (const Scenario& scenario : scenarios) {
      FUZZ_CHECK(scenario.version == 1 && !scenario.name.empty() && scenario.repeats >= 1 &&
                 scenario.pairs >= 0);
      FUZZ_CHECK(scenario.fabric.nodes >= 1 && scenario.fabric.ranks_per_node >= 1 &&
                 scenario.fabric.nics_per_node >= 0);
      FUZZ_CHECK(scenario.workload.iters >= 1 && scenario.workload.warmup >= 0 &&
                 scenario.workload.channels >= 0);
      FUZZ_CHECK(scenario.timeouts.job.count() > 0 && scenario.timeouts.setup.count() > 0 &&
                 scenario.timeouts.stall.count() > 0 && scenario.timeouts.close.count() > 0);
      FUZZ_CHECK(!scenario.modes.empty());
      std::set<std::string> labels;
      for (const Mode& mode : scenario.modes) FUZZ_CHECK(labels.insert(mode.label).second);
      for (const RankFault& fault : scenario.rank_faults) {
        FUZZ_CHECK(fault.node >= 0 && fault.node < scenario.fabric.nodes);
        FUZZ_CHECK(fault.local_rank >= 0 && fault.local_rank < scenario.fabric.ranks_per_node);
        FUZZ_CHECK(fault.at_iter.has_value() != fault.at_time.has_value());
      }
    }
  } catch (const ScenarioError& error) {
    FUZZ_CHECK(!error.problems().empty());
    for (const Problem& problem : error.problems()) {
      FUZZ_CHECK(!problem.message.empty() && problem.line >= 0 && problem.column >= 0);
      FUZZ_CHECK(problem.line <= lines);
    }
  }
  return 0;
}
