// SPDX-License-Identifier: Apache-2.0
#include "harness/run/runner.h"
#include "harness/base/format.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "harness/base/revision.h"
#include "harness/judge/evaluate.h"
#include "harness/judge/pool.h"
#include "harness/judge/strikes.h"
#include "harness/measure/statistics.h"
#include "harness/real/real_faults.h"
#include "harness/run/job.h"
#include "harness/run/mps.h"
#include "r2ccl/base/clock.h"
#include "r2ccl/base/config.h"

namespace r2bench {
namespace {

std::vector<const Mode*> chosen_modes(const Scenario& scenario, const RunOptions& options) {
  std::vector<const Mode*> modes;
  if (options.modes.empty())
    for (const Mode& mode : scenario.modes) modes.push_back(&mode);
  for (const std::string& label : options.modes) {
    const Mode* mode = scenario.find_mode(label);
    if (!mode) throw UsageError("the scenario '" + scenario.name + "' has no mode '" + label + "'");
    modes.push_back(mode);
  }
  if (modes.empty()) throw UsageError("the scenario '" + scenario.name + "' has no mode to run");
  return modes;
}

/// What would end a job before it has begun, told before anything is started.
void check_plugin_and_memory(const Scenario& scenario, const std::vector<const Mode*>& modes) {
  for (const Mode* mode : modes) {
    // The settings of R2CCL are read here as its processes will.
    const auto check = [&](const std::string& plugin, const std::map<std::string, std::string>& environment,
                           const std::string& whose) {
      if (plugin.find('/') != std::string::npos && access(plugin.c_str(), R_OK) != 0)
        throw UsageError(scenario.source_file + ": plugin " + plugin + " cannot be read: " + strerror(errno));
      if (plugin != Workload{}.plugin) return;
      const auto config = r2ccl::Config::from([&](const char* variable) -> const char* {
        const auto found = environment.find(variable);
        return found != environment.end() ? found->second.c_str() : std::getenv(variable);
      });
      if (!config)
        throw UsageError(scenario.source_file + ": env of " + whose + "mode '" + mode->label +
                         "': " + config.error().message);
    };
    auto environment = mode->env;
    environment.insert(scenario.env.begin(), scenario.env.end());
    check(scenario.plugin_of(*mode), environment, "");
    if (!mode->beside) continue;
    auto other = mode->beside->env;
    other.insert(environment.begin(), environment.end());
    check(scenario.plugin_of(*mode, *mode->beside), other, "the other side of ");
  }
  if (scenario.workload.engine == Engine::kNccl) {
    const std::string& library = scenario.workload.nccl.library;
    if (library.find('/') != std::string::npos && access(library.c_str(), R_OK) != 0)
      throw UsageError(scenario.source_file + ": library " + library + " cannot be read: " + strerror(errno));
    return;  // the buffers are the GPUs'
  }
  if (scenario.workload.engine == Engine::kExec) return;
  const double wanted =
      2.0 * double(scenario.workload.bytes) * scenario.fabric.ranks();  // input and output of each rank
  const double memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  if (wanted > memory)
    throw UsageError(scenario.source_file + ": workload.bytes is " + std::to_string(scenario.workload.bytes) +
                     " for each of " + std::to_string(scenario.fabric.ranks()) +
                     " ranks, input and output: more than the " + std::to_string(uint64_t(memory) >> 20) +
                     " MiB of this machine");
}

void check_shape(const Scenario& scenario, const RunOptions& options) {
  if (scenario.fabric.ranks() < 2) throw UsageError("a job needs two ranks or more; the scenario has one");
  if (scenario.fabric.topology && !options.fabric.empty() && options.fabric != name(FabricKind::kVhca))
    throw UsageError(
        "the scenario declares a topology, which only virtual NICs follow; run it on vhca, or without "
        "'fabric.topology'");
  if (options.cluster && scenario.workload.nccl.mps && !std::getenv("CUDA_MPS_PIPE_DIRECTORY"))
    throw UsageError(
        "'mps: true' starts CUDA's MPS on this machine only. With --launcher, start it on each host "
        "(nvidia-cuda-mps-control -d, with CUDA_MPS_PIPE_DIRECTORY set) and set CUDA_MPS_PIPE_DIRECTORY "
        "here, "
        "too; if each rank has a GPU of its own, add --set workload.mps=false");
  try {
    const std::string fabric = options.fabric.empty() ? name(scenario.fabric.kind) : options.fabric;
    // Each host of a cluster looks by itself whether it may.
    check_real_faults(scenario, fabric, options.allow_real_faults, options.cluster || geteuid() == 0);
  } catch (const FabricError& e) {
    throw UsageError(e.what());
  }
  std::vector<faultinject::NodeShape> nodes;
  for (int n = 0; n < scenario.fabric.nodes; ++n)
    nodes.push_back({node_name(n), uint32_t(scenario.fabric.nics_per_node)});
  try {
    for (const auto& fault : scenario.faults) faultinject::check_targets(fault, nodes);
  } catch (const faultinject::PlanError& e) {
    throw UsageError(e.what());
  }
}

std::vector<const ModeResult*> pointers_to(const std::vector<ModeResult>& jobs) {
  std::vector<const ModeResult*> pointers;
  for (const ModeResult& job : jobs) pointers.push_back(&job);
  return pointers;
}

/// Each mode against the reference, pair by pair.
std::vector<Overhead> overheads(const std::vector<const Mode*>& modes,
                                const std::vector<std::vector<ModeResult>>& jobs) {
  std::vector<Overhead> result;
  const size_t reference = reference_mode(modes);
  for (size_t m = 0; m < modes.size(); ++m) {
    if (m == reference) continue;
    Overhead overhead = overhead_between(pointers_to(jobs[m]), pointers_to(jobs[reference]));
    overhead.mode = modes[m]->label;
    overhead.against = modes[reference]->label;
    result.push_back(std::move(overhead));
  }
  return result;
}

}  // namespace

std::map<std::string, std::string> machine_facts() {
  std::map<std::string, std::string> facts;
  utsname system{};
  if (uname(&system) == 0) {
    facts["kernel"] = std::string(system.sysname) + " " + system.release;
    facts["machine"] = system.machine;
  }
  facts["cores"] = std::to_string(std::thread::hardware_concurrency());
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; std::getline(cpu, line);)
    if (line.rfind("model name", 0) == 0) {
      facts["cpu"] = line.substr(std::min(line.size(), line.find(':') + 2));
      break;
    }
  facts["revision"] = build_revision();
  facts["compiler"] = "g++ " __VERSION__;
#ifdef NDEBUG
  facts["build"] = "optimised, without assertions";
#else
  facts["build"] = "with assertions";
#endif
#if defined(__SANITIZE_ADDRESS__)
  facts["sanitizer"] = "address";
#elif defined(__SANITIZE_THREAD__)
  facts["sanitizer"] = "thread";
#endif
  return facts;
}

namespace {

/// Each repeat of the faults is a job of its own: a device that is removed stays so for the processes that
/// have it open, a command ends by itself, and communicators are renewed once in a job.
bool repeats_as_jobs(const Scenario& scenario) {
  return scenario.workload.engine == Engine::kExec || scenario.workload.nccl.renewal ||
         std::any_of(scenario.faults.begin(), scenario.faults.end(),
                     [](const auto& fault) { return fault.kind->ends == faultinject::Ends::kNeverForJob; });
}

/// How often each mode runs, and what becomes of `--repeats` and `pairs` in that.
struct Rounds {
  size_t repeats_per_job = 1;
  size_t pairs = 0;
  size_t count = 1;          ///< jobs of each mode
  bool jobs_repeat = false;  ///< a round is one repeat of the faults

  Rounds(const Scenario& scenario, size_t repeats)
      : pairs(size_t(std::max(scenario.pairs, 0))), jobs_repeat(repeats > 1 && repeats_as_jobs(scenario)) {
    repeats_per_job = jobs_repeat ? 1 : repeats;
    count = jobs_repeat ? repeats : std::max<size_t>(pairs, 1);
  }
  std::string log_prefix(const std::string& mode, size_t round) const {
    const char* part = pairs ? "-pair" : "-repeat";
    return mode + (count > 1 ? part + std::to_string(round) : std::string()) + "-";
  }
};

RunResult begin_result(const Scenario& scenario, const RunOptions& options,
                       const std::optional<MpsDaemon>& mps) {
  RunResult result;
  result.scenario = scenario.name;
  result.source = scenario.source_file;
  result.seed = options.seed.value_or(scenario.seed);
  result.repeats = options.repeats > 0 ? options.repeats : size_t(std::max(scenario.repeats, 1));
  result.started_at = utc_now();
  result.environment = machine_facts();
  if (scenario.fabric.topology) result.environment["topology"] = in_words(*scenario.fabric.topology);
  if (mps) result.environment["mps"] = mps->describe();
  if (scenario.workload.groups != Groups::kAll) result.environment["groups"] = name(scenario.workload.groups);
  return result;
}

void note_facts(const JobRecord& record, RunResult& result) {
  result.evidence = record.evidence;
  for (const auto& [fact, value] : record.facts) result.environment[fact] = value;
  if (!record.plugin.empty()) result.environment["plugin"] = record.plugin;
}

/// Stands for a job that could not begin, where others have run: the run is over, and none of its results are
/// lost. Its outcome keeps it from being taken for anything that the mode did.
ModeResult not_begun(const Scenario& scenario, const Mode& mode, const std::string& why) {
  JobRecord record;
  record.mode = &mode;
  record.outcome = Outcome::kCancelled;
  record.error = "the job could not begin: " + why;
  record.start_ns = record.end_ns = r2ccl::now_ns();
  return evaluate(scenario, record);
}

}  // namespace

RunResult run_scenario(const Scenario& scenario, const RunOptions& options, const std::atomic<bool>& cancel) {
  const std::vector<const Mode*> modes = chosen_modes(scenario, options);
  check_shape(scenario, options);
  check_plugin_and_memory(scenario, modes);
  const BuildPaths paths = find_build(options, scenario.workload.engine);
  std::optional<MpsDaemon> mps;  // for all modes
  if (scenario.workload.nccl.mps) mps.emplace();
  RunResult result = begin_result(scenario, options, mps);
  const Rounds rounds(scenario, result.repeats);
  std::vector<std::vector<ModeResult>> jobs(modes.size());
  bool over = false, any = false;
  for (size_t round = 0; round < rounds.count && !cancel && !over; ++round) {
    for (size_t k = 0; k < modes.size() && !cancel && !over; ++k) {
      // Turn the order from pair to pair, so that what drifts with time does not favour one mode.
      const size_t m = (k + round) % modes.size();
      Progress progress;
      progress.mode = modes[m]->label;
      progress.mode_index = m;
      progress.mode_count = modes.size();
      progress.pair = round;
      progress.pairs = rounds.pairs;
      try {
        Job job(scenario, *modes[m], options, paths, rounds.repeats_per_job,
                result.seed + (rounds.jobs_repeat ? round : 0), rounds.log_prefix(modes[m]->label, round),
                cancel, progress);
        if (mps) job.share(mps->environment());
        const JobRecord record = job.run();
        note_facts(record, result);
        jobs[m].push_back(evaluate(scenario, record));
        any = true;
      } catch (const FabricError& e) {
        if (!any) throw UsageError(e.what());
        jobs[m].push_back(not_begun(scenario, *modes[m], e.what()));
        over = true;
      }
    }
  }
  result.cancelled = cancel || over;
  for (const std::vector<ModeResult>& of_mode : jobs) {
    if (of_mode.empty()) continue;
    std::vector<const ModeResult*> all;
    for (const ModeResult& job : of_mode) all.push_back(&job);
    result.modes.push_back(pool(all));
  }
  if (rounds.pairs > 0 && modes.size() > 1) result.overheads = overheads(modes, jobs);
  if (rounds.pairs > 0)
    for (size_t round = 0; round < rounds.count; ++round)
      for (auto& of_mode : jobs)
        if (round < of_mode.size()) result.jobs.push_back(std::move(of_mode[round]));
  return result;
}

}  // namespace r2bench
