// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the text of a fault plan. It is a plan, or a PlanError that says where and why; never anything
// else. Of a plan that was taken every fault has a trigger and stays within what its fields promise, and says
// so again when it is looked at.
#include <yaml-cpp/yaml.h>

#include <string>

#include "cmake/fuzz/input.h"
#include "faultinject/plan/plan.h"
#include "faultinject/plan/plan_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace faultinject;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const std::vector<NodeShape> nodes = {{"node0", 4}, {"node1", 4}, {"node10", 1}};
  try {
    const std::vector<FaultSpec> plan = parse_plan(text, "plan.yaml");
    FUZZ_CHECK(!plan.empty());
    for (const FaultSpec& fault : plan) {
      FUZZ_CHECK(find_fault_kind(fault.kind->name) == fault.kind);
      FUZZ_CHECK(fault.trigger.kind != Trigger::Kind::kManual);
      FUZZ_CHECK(fault.line >= 1 && fault.column >= 1 && fault.file == "plan.yaml" && !fault.name.empty());
      FUZZ_CHECK(fault.repeat >= 1 && fault.every.count() >= 0 && fault.trigger.after.count() >= 0);
      FUZZ_CHECK(fault.trigger.phase_up_to.count() >= 0 && fault.rates.size() <= FaultSpec::kMaxRates);
      FUZZ_CHECK(!fault.duration || fault.duration->count() >= 0);
      FUZZ_CHECK(fault.delay.count() >= 0);
      if (fault.trigger.kind == Trigger::Kind::kProbability)
        FUZZ_CHECK(fault.trigger.probability > 0 && fault.trigger.probability <= 1);
      if (fault.trigger.kind == Trigger::Kind::kEvent) FUZZ_CHECK(!fault.trigger.event.empty());
      if (fault.trigger.kind == Trigger::Kind::kAfter) FUZZ_CHECK(!fault.trigger.fault.empty());
      // What was taken as a target is one wherever it is written.
      const Target again = parse_target(fault.target.text);
      FUZZ_CHECK(again.node == fault.target.node && again.nic == fault.target.nic &&
                 again.port == fault.target.port);
      bool there = false;
      for (const NodeShape& node : nodes)
        for (uint32_t nic = 0; nic < node.nics; ++nic) there = there || matches(fault.target, node.name, nic);
      bool refused = false;
      try {
        check_targets(fault, nodes);
      } catch (const PlanError&) {
        refused = true;
      }
      // A target that matches something can be refused for its peer, or because a range names more than there
      // is.
      const bool range = (fault.target.node + fault.target.nic).find('[') != std::string::npos;
      FUZZ_CHECK(there || refused);
      FUZZ_CHECK(!refused || !there || range || !fault.target.peer_node.empty());
    }
  } catch (const PlanError& error) {
    FUZZ_CHECK(!error.message().empty() && error.line() >= 0 && error.column() >= 0);
  }
  return 0;
}
