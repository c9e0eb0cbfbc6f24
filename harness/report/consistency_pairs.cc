// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>

#include "harness/judge/nccl_tests_row.h"
#include "harness/measure/statistics.h"
#include "harness/report/consistency_parts.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;
using Jobs = std::vector<const ModeResult*>;

constexpr const char* kFrom = "the jobs";

Jobs jobs_of(const RunResult& result, const std::string& mode) {
  Jobs jobs;
  for (const ModeResult& job : result.jobs)
    if (job.mode == mode) jobs.push_back(&job);
  return jobs;
}

void check_overhead(const Json& said, const Overhead& follows, Findings& findings) {
  const std::string group = "overhead_pct.";
  const auto close = [&](const char* key, double value) {
    if (said.contains(key)) findings.close(group + key, number(said.at(key)), value, kFrom);
  };
  findings.same(group + "pairs", said.at("pairs"), follows.pairs, kFrom);
  close("mean", follows.mean_pct);
  close("upper95", follows.upper95_pct);
  close("busbw_loss_mean", follows.loss_mean_pct);
  close("busbw_loss_upper95", follows.loss_upper95_pct);
  if (said.contains("cpu_pairs"))
    findings.same(group + "cpu_pairs", said.at("cpu_pairs"), follows.cpu_pairs, kFrom);
  close("cpu_loss_mean", follows.cpu_mean_pct);
  close("cpu_loss_upper95", follows.cpu_upper95_pct);
  const Json& each = said.at("each");
  if (each.size() != follows.each_pct.size())
    return findings.same(group + "each", each.size(), follows.each_pct.size(), kFrom);
  for (size_t pair = 0; pair < each.size(); ++pair)
    findings.close(group + "each[" + std::to_string(pair) + "]", number(each[pair]), follows.each_pct[pair],
                   kFrom);
}

/// The times of a mode's operations are those of its jobs, one behind the other.
void check_times(const Workload& work, const ModeResult& mode, const Jobs& jobs, Findings& findings) {
  const size_t each = size_t(work.iters);
  const bool whole = std::all_of(jobs.begin(), jobs.end(),
                                 [](const ModeResult* job) { return job->outcome == Outcome::kOk; });
  if (!whole || work.engine == Engine::kExec || mode.iteration_ms.size() != each * jobs.size()) return;
  auto begin = mode.iteration_ms.begin();
  for (size_t job = 0; job < jobs.size(); ++job, begin += long(each))
    findings.close("time_us of job " + std::to_string(job + 1), jobs[job]->row.time_us,
                   1e3 * std::accumulate(begin, begin + long(each), 0.0) / double(each), "iteration_ms");
}

void check_mode(const ReadBack& all, const ModeResult& mode, const Jobs& jobs, Findings& findings) {
  const int ranks = communicator_of(all.scenario, 0).size;
  uint64_t wrong = 0;
  const ModeResult* bad = nullptr;
  std::vector<double> cpu;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const ModeResult& job = *jobs[i];
    wrong += job.row.wrong;
    if (bad == nullptr && job.outcome != Outcome::kOk) bad = &job;
    if (job.cpu.known()) cpu.push_back(job.cpu.per_gb());
    if (job.row.time_us > 0 && all.scenario.workload.engine != Engine::kExec)
      findings.close("busbw_gbytes of job " + std::to_string(i + 1), job.row.busbw,
                     nccl_tests_row(all.scenario.workload, ranks, {job.row.time_us / 1e3}).busbw, "its time");
  }
  findings.same("row.wrong", mode.row.wrong, wrong, kFrom);
  findings.same("outcome", name(mode.outcome), name(bad ? bad->outcome : Outcome::kOk), kFrom);
  // Of several jobs it is a mean that weighs each with its bytes.
  if (mode.cpu.known() && !cpu.empty())
    findings.between("cpu.s_per_gb", mode.cpu.per_gb(), *std::min_element(cpu.begin(), cpu.end()),
                     *std::max_element(cpu.begin(), cpu.end()), kFrom);
  check_times(all.scenario.workload, mode, jobs, findings);
}

}  // namespace

void check_pairs(const ReadBack& all, std::vector<std::string>& found) {
  const RunResult& result = all.result;
  if (result.jobs.empty() || result.modes.empty()) return;
  const Json& runs = all.json.at("runs");
  const size_t pairs = all.json.at("pairs").get<size_t>();
  const auto baseline = std::find_if(result.modes.begin(), result.modes.end(), [](const ModeResult& mode) {
    return mode.r2cc_mode == int(ModeKind::kBaseline);
  });
  const std::string reference = (baseline == result.modes.end() ? result.modes.begin() : baseline)->mode;
  for (size_t m = 0; m < runs.size(); ++m) {
    const ModeResult& mode = result.modes[m];
    Findings findings(mode.mode, found);
    const Jobs jobs = jobs_of(result, mode.mode);
    if (jobs.size() > pairs || (jobs.size() < pairs && !result.cancelled))
      findings.say(std::to_string(jobs.size()) + " jobs of it are listed, and pairs is " +
                   std::to_string(pairs));
    check_mode(all, mode, jobs, findings);
    const Json& said = runs[m].at("metrics").at("overhead_pct");
    if (!said.is_object()) continue;
    findings.same("overhead_pct.against", said.at("against"), reference, "the order of the runs");
    const PairMean mean_of =
        said.value("mean_of", "ratios") == "log_ratios" ? PairMean::kLogRatios : PairMean::kRatios;
    check_overhead(said, overhead_between(jobs, jobs_of(result, reference), mean_of), findings);
  }
  for (const ModeResult& job : result.jobs)
    if (std::none_of(result.modes.begin(), result.modes.end(),
                     [&](const ModeResult& mode) { return mode.mode == job.mode; }))
      Findings("jobs", found).say("one is of mode '" + job.mode + "', of which there is no run");
}

}  // namespace r2bench
