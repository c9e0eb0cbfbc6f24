// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/slow_motion.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "r2ccl/base/config.h"

namespace r2bench {
namespace {

constexpr int kMaxFactor = 4096;
constexpr int kMaxTransportTimeout = 31;  // IBTA: five bits
const std::string kTransportTimeout = "NCCL_IB_TIMEOUT";

bool is_milliseconds(const std::string& variable) {
  return variable.starts_with("R2CC_") && variable.ends_with("_MS");
}

bool core_takes(const std::string& variable, long long value) {
  const std::string text = std::to_string(value);
  return bool(r2ccl::Config::from(
      [&](const char* name) -> const char* { return variable == name ? text.c_str() : nullptr; }));
}

std::string slowed(const std::string& variable, const std::string& value, int factor) {
  // What is no number is left for the core to refuse.
  if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos || value.size() > 9)
    return value;
  if (variable != kTransportTimeout) {
    const long long own = std::stoll(value);
    long long slow = own * factor;
    // Some bounds are bounded themselves. What the core did not take before is left for it to refuse.
    while (slow > own && core_takes(variable, own) && !core_takes(variable, slow)) slow /= 2;
    return std::to_string(slow);
  }
  return std::to_string(
      std::min(std::stoi(value) + std::countr_zero(unsigned(factor)), kMaxTransportTimeout));
}

/// All that a FaultSpec or a Timeouts is made of, field by field. A structured binding names every field of
/// its structure: one that is added there does not compile here before somebody has said what it is. Times
/// are known by their type; a 64-bit number must be called a Rate or an Amount; the rest is no quantity.
class Slower {
 public:
  explicit Slower(int factor) : factor_(factor) {}

  struct Rate {
    uint64_t& bits_per_s;
  };
  struct Amount {
    uint64_t& unchanged;
  };

  template <typename... Fields>
  void all(Fields&&... fields) const {
    (one(std::forward<Fields>(fields)), ...);
  }

  void one(std::chrono::nanoseconds& time) const { time *= factor_; }
  void one(std::optional<std::chrono::nanoseconds>& time) const {
    if (time) *time *= factor_;
  }
  void one(const Rate& rate) const {  // 0 is unlimited, and nothing else may become it
    if (rate.bits_per_s != 0) rate.bits_per_s = std::max<uint64_t>(rate.bits_per_s / uint64_t(factor_), 1);
  }
  void one(const Amount&) const {}
  void one(uint64_t&) const = delete;
  void one(std::optional<uint64_t>&) const {}  // the value of an event
  template <typename Field>
  requires(std::is_same_v<Field, std::string> || std::is_same_v<Field, faultinject::Target> ||
           std::is_enum_v<Field> || std::is_same_v<Field, bool> || std::is_same_v<Field, int> ||
           std::is_same_v<Field, std::optional<int>> || std::is_same_v<Field, uint32_t> ||
           std::is_same_v<Field, double>) void one(Field&) const {
  }  // names, places, choices, counts, a probability

  void one(faultinject::RateStep& step) const {
    auto& [bits_per_s, lasts] = step;
    all(Rate{bits_per_s}, lasts);
  }
  void one(std::vector<faultinject::RateStep>& steps) const {
    for (faultinject::RateStep& step : steps) one(step);
  }
  void one(faultinject::Trigger& trigger) const {
    auto& [kind, after, since_first_op, event, value, count, probability, fault, until, phase_up_to] =
        trigger;
    all(kind, after, since_first_op, event, value, Amount{count}, probability, fault, until, phase_up_to);
  }
  void one(const faultinject::FaultKind& kind, faultinject::OwnValues& own) const {
    for (size_t i = 0; i < kind.own.size(); ++i)
      if (kind.own[i].type == faultinject::Parameter::Type::kTime) own[i] *= uint64_t(factor_);
  }
  void one(faultinject::RealChange&) const {}  // a share and commands
  void one(faultinject::FaultSpec& fault) const {
    auto& [name, kind, target, trigger, duration, repeat, every, own, written, opcodes, count, events, query,
           receive, error, status, event, rates, rate_bits_per_s, delay, real, file, line, column] = fault;
    all(name, target, trigger, duration, repeat, every, written, opcodes, Amount{count}, events, query,
        receive, error, status, event, rates, Rate{rate_bits_per_s}, delay, real, file, line, column);
    one(*kind, own);
  }
  void one(RankFault& fault) const {
    auto& [name, kind, node, local_rank, at_iter, at_time, duration] = fault;
    all(name, kind, node, local_rank, at_iter, at_time, duration);
  }
  void one(Fabric& fabric) const {
    auto& [kind, nodes, ranks_per_node, nics_per_node, nic_rate_bits_per_s, latency, ports, topology] =
        fabric;
    all(kind, nodes, ranks_per_node, nics_per_node, Rate{nic_rate_bits_per_s}, latency, ports, topology);
  }
  void one(VirtualPorts&) const {}  // neither times nor rates
  void one(std::optional<NodeTopology>&) const {}
  void one(Timeouts& timeouts) const {
    auto& [setup, stall, job, close] = timeouts;
    all(setup, stall, job, close);
  }

 private:
  int factor_;
};

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
  const Slower slower(factor);
  slower.one(scenario.fabric);
  for (faultinject::FaultSpec& fault : scenario.faults) slower.one(fault);
  for (RankFault& fault : scenario.rank_faults) slower.one(fault);
  slower.one(scenario.timeouts);

  const auto defaults = r2ccl::Config::from([](const char*) -> const char* { return nullptr; });
  slow_environment(scenario.env, factor);
  for (const auto& entry : defaults.value().entries())
    if (is_milliseconds(entry.variable) || entry.variable == kTransportTimeout)
      scenario.env.emplace(entry.variable, slowed(entry.variable, entry.value, factor));
  for (Mode& mode : scenario.modes) slow_environment(mode.env, factor);

  const std::string note = slow_motion_note(std::to_string(factor));
  for (Expectation& expectation : scenario.expectations)
    if (slow_expectation(expectation, factor)) expectation.wanted += note;
  scenario.overrides["slow_motion"] = std::to_string(factor);
  return scenario;
}

}  // namespace r2bench
