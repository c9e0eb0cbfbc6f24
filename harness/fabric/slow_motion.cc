#include "harness/fabric/slow_motion.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "r2ccl/base/config.h"

namespace r2bench {
namespace {

constexpr int kMaxFactor = 4096;
constexpr int kMaxTransportTimeout = 31;  // IBTA: five bits
const std::string kTransportTimeout = "NCCL_IB_TIMEOUT";

bool is_milliseconds(const std::string& variable) {
  return variable.starts_with("R2CC_") && variable.ends_with("_MS");
}

std::string slowed(const std::string& variable, const std::string& value, int factor) {
  // What is no number is left for the core to refuse.
  if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos || value.size() > 9)
    return value;
  if (variable != kTransportTimeout) return std::to_string(std::stoll(value) * factor);
  return std::to_string(
      std::min(std::stoi(value) + std::countr_zero(unsigned(factor)), kMaxTransportTimeout));
}

void slow_environment(std::map<std::string, std::string>& environment, int factor) {
  for (auto& [variable, value] : environment)
    if (is_milliseconds(variable) || variable == kTransportTimeout) value = slowed(variable, value, factor);
}

/// Whether the expectation has a number of milliseconds that was multiplied.
bool slow_expectation(Expectation& expectation, int factor) {
  const MetricInfo* metric = find_metric(expectation.metric);
  auto* numeric = std::get_if<Numeric>(&expectation.condition);
  if (metric == nullptr || metric->unit != Unit::kMilliseconds || numeric == nullptr) return false;
  bool changed = false;
  for (Term& term : numeric->bound.terms) {
    const bool named = std::any_of(term.factors.begin(), term.factors.end(),
                                   [](const Factor& f) { return std::holds_alternative<Quantity>(f); });
    if (named) continue;
    term.factors.emplace_back(double(factor));
    changed = true;
  }
  return changed;
}

}  // namespace

int slow_motion_factor(const Fabric& fabric, uint64_t payload_bits_per_s, int unlimited) {
  if (fabric.nic_rate_bits_per_s == 0) return unlimited;
  const uint64_t all = uint64_t(fabric.nodes) * uint64_t(fabric.nics_per_node) * fabric.nic_rate_bits_per_s;
  int factor = 1;
  while (factor < kMaxFactor && all / uint64_t(factor) > payload_bits_per_s) factor *= 2;
  return factor;
}

Scenario in_slow_motion(Scenario scenario, int factor) {
  if (factor < 1 || factor > kMaxFactor || !std::has_single_bit(unsigned(factor)))
    throw std::invalid_argument("slow motion is by a power of two, up to " + std::to_string(kMaxFactor));
  if (factor == 1) return scenario;
  const uint64_t by = uint64_t(factor);
  scenario.fabric.nic_rate_bits_per_s /= by;
  scenario.fabric.latency *= factor;
  for (faultinject::FaultSpec& fault : scenario.faults) {
    fault.trigger.after *= factor;
    fault.trigger.phase_up_to *= factor;
    if (fault.duration) *fault.duration *= factor;
    fault.rate_bits_per_s /= by;
    fault.delay *= factor;
    fault.jitter *= factor;
  }
  for (RankFault& fault : scenario.rank_faults) {
    if (fault.at_time) *fault.at_time *= factor;
    fault.duration *= factor;
  }
  for (auto* bound : {&scenario.timeouts.setup, &scenario.timeouts.stall, &scenario.timeouts.job})
    *bound *= factor;

  const auto defaults = r2ccl::Config::from([](const char*) -> const char* { return nullptr; });
  slow_environment(scenario.env, factor);
  for (const auto& entry : defaults.value().entries())
    if (is_milliseconds(entry.variable) || entry.variable == kTransportTimeout)
      scenario.env.emplace(entry.variable, slowed(entry.variable, entry.value, factor));
  for (Mode& mode : scenario.modes) slow_environment(mode.env, factor);

  const std::string note = " (ms × " + std::to_string(factor) + ": slow motion)";
  for (Expectation& expectation : scenario.expectations)
    if (slow_expectation(expectation, factor)) expectation.wanted += note;
  scenario.overrides["slow_motion"] = std::to_string(factor);
  return scenario;
}

}  // namespace r2bench
