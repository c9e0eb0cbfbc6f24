// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "faultinject/plan/kind.h"
#include "harness/judge/nccl_tests_row.h"
#include "harness/judge/ports.h"
#include "harness/judge/settle_bound.h"
#include "harness/measure/statistics.h"
#include "harness/report/consistency_parts.h"
#include "harness/scenario/node_name.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

/// Whether it is the result of one job. Older results have no times of begins; there it is not known.
bool one_job(const ModeResult& mode) { return mode.iteration_begin_ms.size() == mode.iteration_ms.size(); }

/// Bytes that all receivers get in one operation of all communicators, by rings or directly.
double delivered_bytes(const Scenario& scenario) {
  const Communicator group = communicator_of(scenario, 0);
  const double ranks = group.size, groups = double(scenario.fabric.ranks()) / ranks;
  const double bytes = double(scenario.workload.bytes) * groups;
  switch (scenario.workload.op) {
    case Operation::kAllReduce:
      return 2 * (ranks - 1) * bytes;
    case Operation::kSendRecv:
      return ranks * bytes;
    default:
      return (ranks - 1) * bytes;
  }
}

class Speed {
 public:
  Speed(const ReadBack& all, const Json& run, const ModeResult& mode, Findings& findings)
      : scenario_(all.scenario),
        work_(all.scenario.workload),
        run_(run),
        metrics_(run.at("metrics")),
        environment_(all.json.at("environment")),
        repeats_(all.json.at("repeats") > 1),
        mode_(mode),
        findings_(findings) {}

  void check() {
    check_row();
    check_labels();
    check_operations();
    check_cpu();
    check_stall();
    check_ports();
    check_rounds();
  }

 private:
  void check_row() {
    const NcclTestsRow follows =
        nccl_tests_row(work_, communicator_of(scenario_, 0).size, mode_.iteration_ms);
    const NcclTestsRow& row = mode_.row;
    const char *work = "the workload", *times = "iteration_ms";
    findings_.same("row.size_bytes", row.size_bytes, follows.size_bytes, work);
    findings_.same("row.count", row.count, follows.count, work);
    findings_.same("row.type", row.type, follows.type, work);
    findings_.same("row.redop", row.redop, follows.redop, work);
    if (run_.at("row").contains("root")) findings_.same("row.root", row.root, follows.root, work);
    findings_.same("row.iterations", row.iterations, follows.iterations, times);
    if (mode_.iteration_ms.empty()) return;
    findings_.close("row.time_us", row.time_us, follows.time_us, times);
    findings_.close("row.algbw_gbytes", row.algbw, follows.algbw, "bytes and time");
    findings_.close("row.busbw_gbytes", row.busbw, follows.busbw, "bytes, time, ranks and operation");
  }

  void check_operations() {
    const auto& ms = mode_.iteration_ms;
    const auto& begin = mode_.iteration_begin_ms;
    double least_ms = std::accumulate(ms.begin(), ms.end(), 0.0);
    for (size_t i = 0; i < std::min(begin.size(), ms.size()); ++i) {
      least_ms = std::max(least_ms, begin[i] + ms[i]);
      if (i > 0 && begin[i] < begin[i - 1] && !agree(begin[i], begin[i - 1]))
        findings_.say("iteration_begin_ms[" + std::to_string(i) + "] is before the one before it");
      else if (i > 0 && work_.engine == Engine::kCpu && begin[i] < begin[i - 1] + ms[i - 1] &&
               !agree(begin[i], begin[i - 1] + ms[i - 1]))
        findings_.say("iteration_begin_ms[" + std::to_string(i) +
                      "] is before the end of the operation before it");
    }
    if (!begin.empty() && begin.size() != ms.size())
      findings_.same("iteration_begin_ms has a length that", begin.size(), ms.size(), "iteration_ms");
    if (mode_.duration_s * 1e3 < least_ms && !agree(mode_.duration_s * 1e3, least_ms))
      findings_.say("duration_s is " + Json(mode_.duration_s).dump() + ", but its operations took " +
                    Json(least_ms / 1e3).dump() + " s");
    if (mode_.outcome != Outcome::kOk || work_.engine == Engine::kExec) return;
    // With repeats a job goes on until all faults have struck.
    const size_t iters = std::max(size_t(work_.iters), size_t{1});
    const size_t jobs = one_job(mode_) ? 1 : std::max(ms.size() / iters, size_t{1});
    const bool goes_on = repeats_ && !mode_.faults.empty();
    if (goes_on ? ms.size() < jobs * iters : ms.size() != jobs * iters)
      findings_.same("row.iterations", ms.size(), jobs * iters, "the workload");
    if (one_job(mode_) || !goes_on) check_ranks(jobs);
  }

  void check_labels() {
    const int per_node = std::max(scenario_.fabric.ranks_per_node, 1);
    for (const RankResult& rank : mode_.ranks)
      findings_.same("the label of rank " + std::to_string(rank.rank), rank.label,
                     node_name(rank.rank / per_node) + "/rank" + std::to_string(rank.rank % per_node),
                     "the fabric");
  }

  /// Every rank did every operation, and compared it.
  void check_ranks(size_t jobs) {
    if (mode_.ranks.empty()) return;
    findings_.same("the number of its ranks", mode_.ranks.size(), scenario_.fabric.ranks(), "the fabric");
    const bool renewed = std::any_of(mode_.ranks.begin(), mode_.ranks.end(),
                                     [](const RankResult& rank) { return rank.renewal.has_value(); });
    if (renewed) return;  // an operation is done again
    for (const RankResult& rank : mode_.ranks)
      findings_.same("iterations of " + rank.label, rank.iterations, mode_.iteration_ms.size() / jobs,
                     "iteration_ms");
    if (work_.engine != Engine::kCpu) return;
    const Correctness& c = mode_.correctness;
    const uint64_t operations = mode_.iteration_ms.size() + jobs * uint64_t(work_.warmup);
    findings_.same("correctness.checked_iterations", c.checked_iterations,
                   work_.verify ? operations * mode_.ranks.size() : 0, "its operations");
    if (c.checked_iterations > 0 &&
        (c.checked_elements == 0 || c.checked_elements % c.checked_iterations != 0) &&
        work_.op != Operation::kBroadcast)
      findings_.say("correctness.checked_elements is " + std::to_string(c.checked_elements) +
                    ", which is not the same in each of " + std::to_string(c.checked_iterations) +
                    " iterations");
  }

  void check_cpu() {
    if (!metrics_.contains("cpu")) return;
    const Json& cpu = metrics_.at("cpu");
    for (const RankResult& rank : mode_.ranks) {
      double of_sides = 0;
      for (const double side : rank.cpu_by_side_s) of_sides += side;
      if (!rank.cpu_by_side_s.empty() && rank.cpu_by_side_s.size() != 2)
        findings_.say("cpu_by_side_s of " + rank.label + " has " + std::to_string(rank.cpu_by_side_s.size()) +
                      " numbers, and there are two sides");
      // Between two operations a rank does nothing, but its threads need not be asleep.
      if (of_sides > 1.01 * rank.cpu_s)
        findings_.say("the sides of " + rank.label + " used " + std::to_string(of_sides) +
                      " s of CPU, more than its cpu_s");
    }
    for (const char* key : {"seconds", "gbytes", "s_per_gb"})
      if (cpu.at(key).is_null() == mode_.cpu.known())
        findings_.say(std::string("cpu.") + key + " is " + cpu.at(key).dump() +
                      ", which the numbers beside it do not allow");
    if (!mode_.cpu.known()) return;
    findings_.close("cpu.s_per_gb", number(metrics_.at("cpu").at("s_per_gb")), mode_.cpu.per_gb(),
                    "seconds and gbytes");
    double seconds = 0;
    for (const RankResult& rank : mode_.ranks) seconds += rank.cpu_s;
    if (one_job(mode_) && seconds > 0)
      findings_.close("cpu.seconds", mode_.cpu.seconds, seconds, "its ranks");
    if (work_.engine != Engine::kCpu || mode_.correctness.collnet_operations > 0 ||
        mode_.outcome != Outcome::kOk)
      return;
    const double gbytes = delivered_bytes(scenario_) * double(mode_.iteration_ms.size()) / 1e9;
    findings_.between("cpu.gbytes", mode_.cpu.gbytes, 0.99 * gbytes, 1.01 * gbytes,
                      "bytes, ranks and operations");
  }

  /// The longest operation that was open at the first fault or began later.
  void check_stall() {
    if (!run_.contains("stall_ms") || !one_job(mode_) || mode_.iteration_ms.empty()) return;
    std::optional<double> first_ms, longest;
    for (const Json& fault : run_.at("faults"))
      if (const auto at = number(fault.at("t0_at_ms")); at && fault.at("witnessed") == true)
        first_ms = std::min(first_ms.value_or(HUGE_VAL), *at);
    if (mode_.outcome == Outcome::kOk && first_ms)
      for (size_t i = 0; i < mode_.iteration_ms.size(); ++i)
        if (mode_.iteration_begin_ms[i] + mode_.iteration_ms[i] > *first_ms)
          longest = std::max(longest.value_or(0), mode_.iteration_ms[i]);
    const std::optional<double> said = number(run_.at("stall_ms"));
    if (longest && said)
      findings_.close("stall_ms", said, *longest, "iteration_ms");
    else if (longest.has_value() != said.has_value())
      findings_.same("stall_ms", run_.at("stall_ms"), longest ? Json(*longest) : Json(), "iteration_ms");
  }

  /// Only virtual NICs are held to the rate of the scenario, if not all are.
  void check_ports() {
    const Fabric& fabric = scenario_.fabric;
    const bool small = fabric.ranks() <= 4096 && fabric.nics_per_node <= 256 && work_.channels <= 4096;
    if (fabric.kind != FabricKind::kVhca || environment_.contains("topology") || !small) return;
    findings_.close("throughput.ports_gbps", number(metrics_.at("throughput").at("ports_gbps")),
                    ports_gbps(scenario_, ModeKind(mode_.r2cc_mode)), "the fabric");
  }

  /// Of each round the last strike that took something from a NIC begins the window.
  std::vector<const FaultSample*> last_strikes() const {
    std::map<size_t, const FaultSample*> last;
    for (const FaultSample& fault : mode_.faults) {
      if (fault.t0_ns == 0 || fault.why_not_sampled == kTookNothing ||
          fault.why_not_sampled == kNoNicStruck || leaves_last_place(fault.strike, fault.why_not_sampled))
        continue;
      const FaultSample*& of_round = last[fault.repetition];
      if (of_round == nullptr || fault.t0_ns >= of_round->t0_ns) of_round = &fault;
    }
    std::vector<const FaultSample*> all;
    for (const auto& [round, fault] : last) all.push_back(fault);
    return all;
  }

  void check_rounds() {
    const Throughput& t = mode_.throughput;
    const std::vector<const FaultSample*> last = last_strikes();
    if (t.rounds > last.size())
      findings_.say("throughput.rounds.of is " + std::to_string(t.rounds) + ", but faults struck in " +
                    std::to_string(last.size()));
    if (t.rounds == 0 || t.rounds != last.size()) return;  // a strike after the last operation begins none
    const char* from = "the last faults of its rounds";
    double limit = 0, before = 0, bound_ms = 0, least = HUGE_VAL, most = 0;
    bool known = true;
    for (const FaultSample* fault : last) {
      limit += fault->limit / double(last.size());
      before += fault->before_gbps / double(last.size());
      least = std::min(least, fault->before_gbps);
      most = std::max(most, fault->before_gbps);
      const faultinject::FaultKind* kind = faultinject::find_fault_kind(fault->kind);
      known = known && kind != nullptr;
      if (kind) bound_ms = std::max(bound_ms, settle_bound_ms(kind->moves_traffic(), fault->window_ms));
    }
    findings_.close("throughput.limit", t.limit, limit, from);
    if (known)
      findings_.close("throughput.bound_ms", number(metrics_.at("throughput").at("bound_ms")), bound_ms,
                      from);
    if (t.rounds_measured == 0) return;
    if (t.rounds_measured == t.rounds)
      findings_.close("throughput.before_gbps", t.before_gbps, before, from);
    else
      findings_.between("throughput.before_gbps", t.before_gbps, least, most, from);
    if (least > 0)
      findings_.between("throughput.retained", t.retained, t.after_gbps / most, t.after_gbps / least,
                        "after_gbps and the rates before its faults");
    if (t.rounds_settled == 0 && t.rounds_measured == 1)
      findings_.close("throughput.rounds.worst_unsettled", t.worst_unsettled, t.retained, "retained");
  }

  const Scenario& scenario_;
  const Workload& work_;
  const Json& run_;
  const Json& metrics_;
  const Json& environment_;
  const bool repeats_;
  const ModeResult& mode_;
  Findings& findings_;
};

}  // namespace

void check_speed(const ReadBack& all, const Json& run, const ModeResult& mode, Findings& findings) {
  Speed(all, run, mode, findings).check();
}

}  // namespace r2bench
