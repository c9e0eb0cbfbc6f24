// SPDX-License-Identifier: Apache-2.0
// What a job leaves behind, once it is over: of each rank, of its hosts, and of the faults.
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "harness/run/job.h"
#include "harness/workload/cpu/rank_config.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

Outcome outcome_of(const RankLink& rank, const RankResult& result) {
  if (rank.has_error) return Outcome::kError;
  if (result.signal) return Outcome::kKilled;
  if (result.exit_code == kRankAborted) return Outcome::kCancelled;
  return result.exit_code ? Outcome::kError : Outcome::kOk;
}

/// `status`: as waitpid's; empty: nobody knows how it ended.
RankResult result_of(const RankLink& rank, std::optional<int> status) {
  RankResult result;
  result.rank = rank.rank();
  result.node = rank.node();
  result.label = rank.label();
  result.pid = rank.pid();
  if (status && WIFSIGNALED(*status)) result.signal = WTERMSIG(*status);
  if (status && WIFEXITED(*status)) result.exit_code = WEXITSTATUS(*status);
  result.outcome = status || rank.has_error ? outcome_of(rank, result) : Outcome::kKilled;
  result.error = !status && rank.error.empty() ? kEndUnknown : rank.error;
  result.command = rank.command;
  result.renewal = rank.renewal;
  result.warnings = rank.warnings;
  result.cpu_s = double(rank.cpu_ns) / 1e9;
  for (const uint64_t ns : rank.cpu_by_side_ns) result.cpu_by_side_s.push_back(double(ns) / 1e9);
  return result;
}

void add(Correctness& sum, const Correctness& of_rank) {
  sum.wrong_elements += of_rank.wrong_elements;
  sum.duplicated += of_rank.duplicated;
  sum.lost += of_rank.lost;
  sum.size_errors += of_rank.size_errors;
  sum.checked_elements += of_rank.checked_elements;
  sum.checked_iterations += of_rank.checked_iterations;
  sum.messages += of_rank.messages;
  sum.collnet_operations += of_rank.collnet_operations;
}

/// Which of the variables that every host's ranks should have alike differ, in words.
std::string differences(const std::vector<Host*>& hosts) {
  const auto is_setting = [](const std::string& variable) {
    // Devices, interfaces and nodes have their own names on each host.
    for (const char* own : {"NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_HOSTID", "NCCL_NET_FORCE_MERGE",
                            "R2CC_TOPOLOGY", "R2CC_MEMORY_NODE"})
      if (variable == own) return false;
    if (variable.starts_with("R2CC_NODE_")) return false;
    return variable.starts_with("NCCL_") || variable.starts_with("R2CC_");
  };
  std::set<std::string> variables;
  for (const Host* host : hosts)
    for (const auto& [variable, value] : host->environment())
      if (is_setting(variable)) variables.insert(variable);
  std::string text;
  for (const std::string& variable : variables) {
    std::map<std::string, std::string> names;  // of the hosts, by what is set there
    for (const Host* host : hosts) {
      const auto found = host->environment().find(variable);
      std::string& list = names[found == host->environment().end() ? "not set" : "'" + found->second + "'"];
      list += (list.empty() ? "" : ", ") + host->facts().name;
    }
    if (names.size() < 2) continue;
    text += (text.empty() ? "" : "; ") + variable + " is ";
    bool first = true;
    for (const auto& [value, of] : names) {
      text += (first ? "" : ", and ") + value + " on " + of;
      first = false;
    }
  }
  return text;
}

std::string plugin_of(const RankLink& rank) {
  return rank.plugin_name + (rank.plugin_abi > 0 ? " v" + std::to_string(rank.plugin_abi) : "");
}

}  // namespace

void Job::collect_ranks(JobRecord& job) {
  for (RankLink& rank : ranks_) {
    for (int i = 0; i < 100 && !rank.ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    rank.poll();
    RankResult result = result_of(rank, rank.ended());
    result.log_path = log_paths_[size_t(rank.rank())];
    result.iterations = collector_->ended(size_t(rank.rank()));
    add(job.correctness, rank.correctness);
    job.labels.push_back(rank.label());
    if (rank.hello) add_fact(job.plugin, plugin_of(rank), rank.label());
    for (const auto& [fact, value] : rank.facts) add_fact(job.facts[fact], value, rank.label());
    job.ranks.push_back(std::move(result));
  }
  const auto first =
      std::find_if(ranks_.begin(), ranks_.end(), [](const RankLink& rank) { return rank.hello; });
  if (first != ranks_.end() && first->correctness.collnet_operations > 0)
    job.plugin +=
        ", " + std::to_string(first->correctness.collnet_operations) + " operations through CollNet";
  if (outcome_ != Outcome::kError) return;
  // The plugin's own words name the NIC and the reason: those of the rank that failed first.
  for (const RankLink& rank : ranks_)
    if (rank.error == error_ && !rank.plugin_words.empty())
      error_ += "; the plugin said: " + rank.plugin_words;
}

void Job::collect_hosts(JobRecord& job) {
  for (const Host* host : hosts_)
    if (const int error = host->log_error(); error != 0)
      note(job.end_ns, "log_write_failed",
           std::string("the ranks' output could not be written: ") + strerror(error));
  for (Host* host : hosts_) host->put_back();
  take_notes();
  // Before the hosts' facts: the bound of their clocks is that of all times that were converted.
  job.witnesses = board().witnesses();
  job.witnesses_lost = board().witnesses_lost();
  job.environment = hosts_[0]->environment();
  if (const std::string differing = differences(hosts_); !differing.empty())
    note(job.end_ns, "environment_differs", differing);
  job.evidence = hosts_[0]->evidence();
  for (Host* host : hosts_) job.devices.merge(host->devices());
  for (size_t h = 0; options_.cluster && h < hosts_.size(); ++h) {
    const HostFacts facts = hosts_[h]->facts();
    job.hosts.push_back({facts.name, nodes_of_hosts_[h].first, nodes_of_hosts_[h].count, facts.cores,
                         facts.kernel, facts.clock_offset_ms, facts.clock_bound_ms, facts.clock_beyond_ms});
  }
  const std::string fabric = fabric_name();
  job.ports_limit = fabric == name(FabricKind::kVhca) || fabric == name(FabricKind::kRxe);
}

/// A host that is lost now has not told all that it had seen: what it left out may be anything.
void Job::take_losses(uint64_t now_ns) {
  for (Host* host : hosts_)
    if (const auto failure = host->failure(); failure && outcome_ == Outcome::kOk) {
      outcome_ = Outcome::kCancelled;
      error_ = *failure + " before all of its record had come";
      error_ns_ = std::min(now_ns, host->heard_ns());
      note(now_ns, name(outcome_), error_);
    }
}

JobRecord Job::collect() {
  JobRecord job;
  job.mode = &mode_;
  job.end_ns = r2ccl::now_ns();
  job.start_ns = start_ns_;
  if (ticker_) job.wakeup_ms = ticker_->stop();
  for (Host* host : hosts_) host->settle();
  collector_->drain();
  take_losses(job.end_ns);
  collect_ranks(job);
  job.outcome = outcome_;
  job.error = error_;
  job.error_ns = error_ns_;
  // After an error the job only falls apart: what is measured ends with it.
  const uint64_t measured_until =
      outcome_ == Outcome::kOk ? phase_at_ns_ : (error_ns_ ? error_ns_ : job.end_ns);
  job.record = collector_->record(std::min(measured_until, job.end_ns));
  job.first_iteration_ns = collector_->first_iteration_ns();
  job.trace = collector_->events();
  job.trace_lost = collector_->lost();
  if (driver_) {
    job.firings = driver_->firings();
    if (job.outcome == Outcome::kOk) job.gave_up = driver_->gave_up();
  }
  collect_hosts(job);  // what real faults changed is put back: their witnesses say when
  if (outcome_ == Outcome::kOk) take_losses(job.end_ns);
  job.outcome = outcome_;
  job.error = error_;
  job.error_ns = error_ns_;
  job.added_faults = control_->added();
  job.faults_ended_outside = control_->ended().size();
  job.notes = notes_;
  report_progress(job.end_ns, true);
  return job;
}

}  // namespace r2bench
