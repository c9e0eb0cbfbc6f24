// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/shorter.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace r2bench {
namespace {

constexpr int kLeastBetween = 10;  // iterations: fewer say little about a rate
constexpr double kAfterFault = 2;  // times as long: a backup NIC carries the load of two
const std::string kIteration = "iteration";

bool at_iteration(const faultinject::FaultSpec& fault) {
  return fault.trigger.kind == faultinject::Trigger::Kind::kEvent && fault.trigger.event == kIteration &&
         fault.trigger.value.has_value();
}

bool has_time(const faultinject::FaultSpec& fault) {
  using Kind = faultinject::Trigger::Kind;
  return fault.trigger.kind == Kind::kTime || fault.trigger.after.count() > 0 ||
         fault.trigger.phase_up_to.count() > 0 || fault.duration || fault.every.count() > 0 ||
         fault.kind->ends == faultinject::Ends::kAfterItsTime || fault.rates.size() > 1;
}

int divided(uint64_t iteration, int divisor) {
  return int((iteration + uint64_t(divisor) / 2) / uint64_t(divisor));
}

/// The iterations at which something happens, in order.
std::vector<int> marks(const Scenario& scenario) {
  std::vector<int> at;
  for (const auto& fault : scenario.faults)
    if (at_iteration(fault)) at.push_back(int(*fault.trigger.value));
  for (const RankFault& fault : scenario.rank_faults)
    if (fault.at_iter) at.push_back(*fault.at_iter);
  std::sort(at.begin(), at.end());
  return at;
}

bool leaves_enough(const Scenario& scenario, int divisor) {
  int last = 0;
  std::vector<int> at = marks(scenario);
  at.push_back(scenario.workload.iters);
  for (const int mark : at) {
    const int now = divided(uint64_t(mark), divisor);
    if (now - last < kLeastBetween) return false;
    last = now;
  }
  return true;
}

}  // namespace

std::chrono::duration<double> expected_time(const Scenario& scenario) {
  const Fabric& fabric = scenario.fabric;
  if (fabric.nic_rate_bits_per_s == 0) return {};
  // What a node sends for one operation; a ring passes twice where it reduces and gathers.
  const double ranks = communicator_of(scenario, 0).size;
  const double passes = scenario.workload.op == Operation::kAllReduce ? 2 * (ranks - 1) / ranks : 1;
  const double each = passes * 8 * double(scenario.workload.bytes) * fabric.ranks_per_node /
                      (double(fabric.nic_rate_bits_per_s) * fabric.nics_per_node);
  const std::vector<int> at = marks(scenario);
  const double before = at.empty() ? scenario.workload.iters : at.front();
  return std::chrono::duration<double>(each * (before + kAfterFault * (scenario.workload.iters - before)));
}

int shorter_divisor(const Scenario& scenario, std::chrono::seconds budget) {
  if (scenario.pairs > 0 || !scenario.rank_faults.empty() ||
      std::any_of(scenario.faults.begin(), scenario.faults.end(), has_time))
    return 1;
  const double time = expected_time(scenario).count();
  int divisor = 1;
  while (time / divisor > double(budget.count()) && leaves_enough(scenario, divisor + 1)) ++divisor;
  return divisor;
}

Scenario shorter(Scenario scenario, int divisor) {
  if (divisor < 1) throw std::invalid_argument("a scenario is made shorter by 1 or more");
  if (divisor == 1) return scenario;
  scenario.workload.iters = divided(uint64_t(scenario.workload.iters), divisor);
  if (scenario.workload.iters < 1)
    throw std::invalid_argument("by " + std::to_string(divisor) + " no iteration of the scenario is left");
  for (auto& fault : scenario.faults)
    if (at_iteration(fault)) fault.trigger.value = uint64_t(divided(*fault.trigger.value, divisor));
  for (RankFault& fault : scenario.rank_faults)
    if (fault.at_iter) fault.at_iter = divided(uint64_t(*fault.at_iter), divisor);
  scenario.overrides["shorter"] = std::to_string(divisor);
  return scenario;
}

}  // namespace r2bench
