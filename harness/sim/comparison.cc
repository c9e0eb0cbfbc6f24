// SPDX-License-Identifier: Apache-2.0
#include "harness/sim/comparison.h"

#include <time.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "r2ccl/collective/predictor.h"
#include "r2ccl/collective/rail_load.h"

namespace r2bench {

namespace collective = r2ccl::collective;
using collective::Candidate;
using collective::Job;
using collective::Plan;
using collective::Schedule;
using r2ccl::Result;

namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Result<void> simulate_into(ComparedAlgorithm& row, const Schedule& schedule, const Ports& ports,
                           uint64_t bytes, const PieceStream& stream = {}) {
  if (!have_common_rails(schedule, ports.nics)) {
    row.simulated_s = std::numeric_limits<double>::infinity();
    return {};
  }
  const double before = cpu_seconds();
  const Result<SimulationResult> result = simulate(schedule, ports, bytes, stream);
  if (!result) return result.error();
  row.cpu_s = cpu_seconds() - before;
  row.simulated_s = result.value().seconds;
  row.transfers = result.value().transfers;
  row.memory_bytes = result.value().memory_bytes;
  return {};
}

Result<ComparedAlgorithm> compared(const Job& job, const Candidate& planned, const Ports& ports,
                                   const ComparisonOptions& options) {
  const Candidate candidate =
      options.exactly ? collective::predict(job, planned, job.most_segments) : planned;
  ComparedAlgorithm row;
  row.name = name(candidate.algorithm);
  row.formula = candidate.formula;
  row.segments = candidate.segments;
  row.eligible = planned.eligible;
  row.formula_s = candidate.has_common_rails() ? options.pieces * candidate.seconds
                                               : std::numeric_limits<double>::infinity();
  const PieceStream stream{options.pieces, std::min(candidate.beside, options.pieces), job.outstanding};
  if (Result<void> done = simulate_into(row, build(job, candidate), ports, job.bytes, stream); !done)
    return done.error();
  return row;
}

}  // namespace

Ports ports_of(const Job& job) {
  Ports ports;
  ports.capacity.emplace_back();
  for (const double capacity : job.capacities) ports.capacity[0].push_back(capacity * job.bytes_per_second);
  ports.nics = job.nics;
  if (!job.nics.empty())
    ports.nic_bytes_per_second = job.bytes_per_second * static_cast<double>(job.capacities.size()) /
                                 static_cast<double>(job.nics.size());
  ports.latency_s = job.latency_s;
  ports.reduce_bytes_per_second = job.reduce_bytes_per_second;
  return ports;
}

const ComparedAlgorithm& AllReduceComparison::choice() const {
  return *std::find_if(algorithms.begin(), algorithms.end(),
                       [&](const auto& row) { return row.name == chosen; });
}

std::optional<Plan> other_plan_by_capacities(const Job& job, const Plan& plan) {
  if (!collective::rails_differ(job.nics, job.capacities.size())) return std::nullopt;
  Job unknown = job;
  unknown.nics.clear();
  Result<Plan> other = collective::plan(unknown);
  if (!other || build(job, plan.choice()) == build(unknown, other->choice())) return std::nullopt;
  return std::move(other.value());
}

Ports upstream_ports(uint32_t nodes, uint32_t per_node, double lost, double bytes_per_second) {
  Ports ports;
  ports.capacity.resize(3);
  for (uint32_t node = 0; node < nodes; ++node) {
    ports.capacity[0].push_back(bytes_per_second * (node == 0 ? 1 - lost : 1));
    ports.capacity[collective::kSurvivingRails].push_back(bytes_per_second * (1 - lost));
    ports.capacity[collective::kLostRails].push_back(node == 0 ? 0 : bytes_per_second * lost);
    for (uint32_t i = 0; i < per_node; ++i) ports.node_of_rank.push_back(node);
  }
  return ports;
}

Result<AllReduceComparison> compare_allreduce(const Job& job, const ComparisonOptions& options) {
  const Result<Plan> planned = collective::plan(job);
  if (!planned) return planned.error();
  const Plan& plan = planned.value();
  const double most = *std::max_element(job.capacities.begin(), job.capacities.end());
  Ports ports = ports_of(job);
  ports.sharing = options.sharing;

  AllReduceComparison result;
  result.bound_s = options.pieces * plan.bound_s;
  result.fault_free_ring_s = options.pieces * collective::ring_volume(job.capacities.size()) / most *
                             static_cast<double>(job.bytes) / job.bytes_per_second;
  result.chosen = name(plan.choice().algorithm);
  result.why = plan.why;
  result.nics_counted = plan.choice().rails > 0;
  for (const Candidate& candidate : plan.candidates) {
    if (options.only_chosen && &candidate != &plan.choice()) continue;
    Result<ComparedAlgorithm> row = compared(job, candidate, ports, options);
    if (!row) return row.error();
    result.algorithms.push_back(std::move(row.value()));
  }
  const auto other = options.only_chosen ? std::nullopt : other_plan_by_capacities(job, plan);
  if (other) {
    Result<ComparedAlgorithm> row = compared(job, other->choice(), ports, options);
    if (!row) return row.error();
    result.by_capacities = std::move(row.value());
  }
  const auto degraded =
      std::count_if(job.capacities.begin(), job.capacities.end(), [&](double c) { return c < most * 0.999; });
  if (degraded == 1 && job.capacities.size() >= 3 && !options.only_chosen && options.pieces == 1) {
    const auto nodes = static_cast<uint32_t>(job.capacities.size());
    const double lost = 1 - *std::min_element(job.capacities.begin(), job.capacities.end()) / most;
    ComparedAlgorithm row;
    row.name = "upstream";
    row.formula = "max(a(p), a(p-1)) + (1+1/K) x/(1-x)";
    row.segments = options.upstream_pieces;
    const double rate = job.bytes_per_second * most;
    row.formula_s = collective::upstream_time(nodes, 1, lost, options.upstream_pieces) *
                    static_cast<double>(job.bytes) / rate;
    Ports its = upstream_ports(nodes, 1, lost, rate);
    its.latency_s = job.latency_s;
    its.reduce_bytes_per_second = job.reduce_bytes_per_second;
    const Schedule schedule = collective::upstream_allreduce(nodes, 1, lost, options.upstream_pieces);
    if (Result<void> done = simulate_into(row, schedule, its, job.bytes); !done) return done.error();
    result.algorithms.push_back(std::move(row));
  }
  return result;
}

}  // namespace r2bench
