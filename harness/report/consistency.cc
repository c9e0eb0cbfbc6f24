// SPDX-License-Identifier: Apache-2.0
#include "harness/report/consistency.h"

#include <algorithm>
#include <map>
#include <optional>

#include "harness/measure/statistics.h"
#include "harness/report/consistency_parts.h"
#include "harness/report/findings.h"
#include "harness/report/read_back.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

/// What one run says twice.
class RunCheck : private Findings {
 public:
  RunCheck(const Json& run, const Findings& findings)
      : Findings(findings), run_(run), metrics_(run.at("metrics")) {}

  void check() {
    check_correctness();
    check_rounds();
    check_rates();
    check_restored();
    check_wakeup();
    check_ends();
    check_ranks();
    check_hosts();
  }

 private:
  void check_correctness() {
    const Json& c = metrics_.at("correctness");
    const bool right = c.at("wrong_elements") == 0 && c.at("duplicated") == 0 && c.at("lost") == 0 &&
                       c.at("size_errors") == 0 && c.at("checked_elements") > 0;
    same("correctness.exact", c.at("exact"), right, "its counts");
    same("row.wrong", run_.at("row").at("wrong"), c.at("wrong_elements"), "correctness.wrong_elements");
  }

  void check_rounds() {
    const Json rounds = run_.value("rounds", Json::array());
    if (rounds.empty()) return;
    std::map<std::string, uint64_t> sums;
    for (const Json& round : rounds)
      for (const auto& [name, count] : round.items()) sums[name] += count.get<uint64_t>();
    for (const auto& [name, sum] : sums)
      for (const char* group : {"recovery", "balance"})
        if (const Json counts = metrics_.value(group, Json()); counts.is_object() && counts.contains(name))
          same(std::string(group) + "." + name, counts.at(name), sum, "its rounds");
  }

  void check_rates() {
    const Json& t = metrics_.at("throughput");
    if (t.contains("rounds")) {
      const size_t of = t.at("rounds").at("of"), settled = t.at("rounds").at("settled"),
                   measured = t.at("rounds").at("measured");
      same("throughput.settled", t.at("settled"), of > 0 && settled == of, "its rounds");
      if (settled > measured || measured > of)
        say("throughput.rounds has " + std::to_string(settled) + " settled of " + std::to_string(measured) +
            " measured of " + std::to_string(of));
      const Json& rounds = t.at("rounds");
      if (measured > 0 && t.at("retained").is_null())
        say("rounds were measured, but throughput.retained is null");
      if (rounds.contains("worst_unsettled") &&
          rounds.at("worst_unsettled").is_null() == (settled < measured))
        say("throughput.rounds.worst_unsettled is " + rounds.at("worst_unsettled").dump() + ", but " +
            std::to_string(settled) + " of " + std::to_string(measured) + " rounds settled");
      if (rounds.contains("why_not") && rounds.at("why_not").is_null() == (measured < of))
        say("throughput.rounds.why_not is " + rounds.at("why_not").dump() + ", but " +
            std::to_string(measured) + " of " + std::to_string(of) + " rounds were measured");
      if (t.at("after_gbps").is_null() != (measured == 0))
        say("throughput.after_gbps is " + t.at("after_gbps").dump() + ", but " + std::to_string(measured) +
            " rounds were measured");
      if (of == 0) same("throughput.bound_ms", t.at("bound_ms"), Json(), "its rounds");
      if (run_.at("faults").empty())
        close("throughput.limit", number(t.at("limit")), 1, "its list of faults");
      if (measured == 0 && !t.at("retained").is_null())
        say("throughput.retained is " + t.at("retained").dump() + ", but no round was measured");
      // Of several rounds it is a mean of ratios.
      const auto before = number(t.at("before_gbps")), after = number(t.at("after_gbps"));
      if (measured == 1 && before && *before > 0 && after)
        close("throughput.retained", number(t.at("retained")), *after / *before, "the rates beside it");
    }
  }

  void check_restored() {
    if (!metrics_.contains("restored")) return;
    const Json& r = metrics_.at("restored");
    const auto before = number(r.at("before_ms")), after = number(r.at("after_ms"));
    if (before && after && *after > 0)
      close("restored.ratio", number(r.at("ratio")), *before / *after, "the times beside it");
    else if (!r.at("ratio").is_null())
      say("restored.ratio is " + r.at("ratio").dump() + ", but the times beside it are not known");
    const Json& rounds = r.at("rounds");
    const size_t of = rounds.at("of"), home = rounds.at("home"), late = rounds.at("late");
    if (home + late > of)
      say("restored.rounds has " + std::to_string(home) + " home and " + std::to_string(late) + " late of " +
          std::to_string(of));
    check_operations(r);
  }

  /// Of one job: those before the first fault, and some of those after it.
  void check_operations(const Json& restored) {
    const Json& ms = run_.at("iteration_ms");
    const Json begin = run_.value("iteration_begin_ms", Json::array());
    const size_t said_before = restored.at("operations_before"), said_after = restored.at("operations_after");
    for (const char* side : {"before", "after"}) {
      const std::string time = std::string(side) + "_ms", count = std::string("operations_") + side;
      if (restored.at(time).is_null() != (restored.at(count) == 0))
        say("restored." + time + " is " + restored.at(time).dump() + ", but restored." + count + " is " +
            restored.at(count).dump());
    }
    std::optional<double> struck_ms;
    for (const Json& fault : run_.at("faults"))
      if (const auto at = number(fault.at("t0_at_ms"))) struck_ms = std::min(struck_ms.value_or(*at), *at);
    if (begin.size() != ms.size() || !struck_ms || said_before + said_after == 0) return;
    std::vector<double> before, after;
    for (size_t i = 0; i < ms.size(); ++i) {
      const double from = begin[i].get<double>(), time = ms[i].get<double>();
      if (from + time <= *struck_ms)
        before.push_back(time);
      else if (from >= *struck_ms)
        after.push_back(time);
    }
    const char* from = "iteration_ms";
    same("restored.operations_before", said_before, before.size(), from);
    close("restored.before_ms", number(restored.at("before_ms")), summarize(before).p50, from);
    if (said_after > after.size())
      say("restored.operations_after is " + std::to_string(said_after) + ", but " +
          std::to_string(after.size()) + " operations began after the first fault");
    if (!after.empty())
      between("restored.after_ms", number(restored.at("after_ms")),
              *std::min_element(after.begin(), after.end()), *std::max_element(after.begin(), after.end()),
              from);
  }

  void check_wakeup() {
    const Json& of_runner = run_.at("wakeup_ms");
    check_order("wakeup_ms", of_runner, *this);
    if (!metrics_.contains("values") || of_runner.at("n") == 0) return;  // older results had no cap
    if (const auto p99 = number(of_runner.at("p99")))
      close("recovery.wakeup_p99_ms", number_at(metrics_, "/recovery/wakeup_p99_ms"),
            std::min(*p99, kWakeupCapMs), "wakeup_ms and its cap");
  }

  void check_ends() {
    const Json& settings = run_.at("settings");
    if (run_.contains("error_ms") && run_.at("outcome") != "error" && !run_.at("error_ms").is_null())
      say("error_ms is " + run_.at("error_ms").dump() + ", but its outcome is " + run_.at("outcome").dump());
    const std::string plugin = settings.contains("plugin") && settings.at("plugin").is_string()
                                   ? settings.at("plugin").get<std::string>()
                                   : "";
    if (settings.contains("R2CC_MODE") && plugin.starts_with("R2CCL "))
      same("settings.R2CC_MODE", settings.at("R2CC_MODE"), run_.at("r2cc_mode").dump(), "r2cc_mode");
    if (run_.at("outcome") != "ok") {
      if (run_.at("outcome") != "cancelled" && run_.at("error").is_null())
        say("its outcome is " + run_.at("outcome").get<std::string>() + ", but it says no error");
      return;
    }
    if (!run_.at("error").is_null()) say("its outcome is ok, but its error is " + run_.at("error").dump());
    for (const Json& rank : run_.at("ranks"))
      if (rank.at("outcome") != "ok")
        say("its outcome is ok, but that of " + rank.at("label").get<std::string>() + " is " +
            rank.at("outcome").get<std::string>());
  }

  void check_ranks() {
    for (const Json& rank : run_.at("ranks")) {
      const std::string label = rank.at("label"), of = " of " + label, outcome = rank.at("outcome");
      const bool ended_well = rank.at("exit_code") == 0 && rank.at("signal") == 0;
      if (outcome == "ok" && !ended_well)
        say("the outcome" + of + " is ok, but its exit code or signal is not 0");
      if (outcome == "killed" && rank.at("signal") == 0 && rank.at("error") != kEndUnknown)
        say("the outcome" + of + " is killed, but its signal is 0");
      if (outcome == "ok" && !rank.at("error").is_null())
        say("the outcome" + of + " is ok, but it has an error");
      const std::string log = rank.at("log");
      if (!log.empty() && !log.starts_with("logs/" + run_.at("mode").get<std::string>() + "-"))
        say("log" + of + " is '" + log + "', which is not one of this mode");
      if (!log.empty() && !log.ends_with("-rank" + rank.at("rank").dump() + ".log"))
        say("log" + of + " is '" + log + "', which is not that of this rank");
    }
  }

  /// Two clocks may both be off.
  void check_hosts() {
    if (!run_.contains("hosts")) return;
    double most = 0, second = 0;
    int node = 0;
    const Json& list = run_.at("hosts").at("list");
    for (const Json& host : list) {
      const double bound = host.at("clock_bound_ms");
      second = std::max(second, std::min(most, bound));
      most = std::max(most, bound);
      same("first_node of host " + host.at("name").get<std::string>(), host.at("first_node"), node,
           "the hosts before it");
      node += host.at("nodes").get<int>();
    }
    close("hosts.clock_bound_ms", number(run_.at("hosts").at("clock_bound_ms")),
          list.size() > 1 ? most + second : 0, "its hosts");
  }

  const Json& run_;
  const Json& metrics_;
};

void check_expectations(const Json& result, std::vector<std::string>& found) {
  std::map<std::string, size_t> seen;
  for (const Json& expectation : result.at("expectations")) {
    const std::string name = expectation.at("name"), wanted = expectation.at("wanted");
    const std::string line = expectation.at("line").dump();
    // One line of a scenario may expect something of all modes, another one the same of this mode.
    if (++seen[name + "\n" + wanted + "\n" + line] == 2)
      found.push_back(name + ": '" + wanted + "' of line " + line + " is listed twice");
    if (expectation.at("implied") != (expectation.at("line") == 0))
      found.push_back(name + ": is implied " + expectation.at("implied").dump() + ", but its line is " +
                      line);
  }
}

bool is_cut_short(const Json& run) {
  return run.at("outcome") == "cancelled" || run.value("outcomes", Json::object()).contains("cancelled");
}

/// Of several jobs; where each job is listed, they are counted.
void check_outcomes(const Json& result, std::vector<std::string>& found) {
  for (const Json& run : result.at("runs")) {
    if (!run.contains("outcomes")) continue;
    const Json& outcomes = run.at("outcomes");
    const std::string mode = run.at("mode"), outcome = run.at("outcome");
    if (!outcomes.contains(outcome) || (outcome == "ok" && outcomes.size() > 1))
      found.push_back(mode + ": its outcome is " + outcome + ", but those of its jobs are " +
                      outcomes.dump());
    std::map<std::string, size_t> listed;
    for (const Json& job : result.at("jobs"))
      if (job.at("mode") == mode) ++listed[job.at("outcome").get<std::string>()];
    if (!listed.empty() && Json(listed) != outcomes)
      found.push_back(mode + ": outcomes is " + outcomes.dump() + ", but " + Json(listed).dump() +
                      " follows from its jobs");
  }
}

/// Those that follow from a number.
void check_doubts(const Json& result, std::vector<std::string>& found) {
  const Json& doubts = result.at("doubts");
  for (const Json& run : result.at("runs")) {
    const std::string mode = run.at("mode");
    const std::string lost = run.at("trace_lost").dump() + " trace events were overwritten";
    const bool said = std::any_of(doubts.begin(), doubts.end(), [&](const Json& doubt) {
      return doubt.get<std::string>().starts_with(mode + ": " + lost);
    });
    if (run.at("trace_lost") != 0 && !doubts.empty() && !said)
      found.push_back(mode + ": trace_lost is " + run.at("trace_lost").dump() + ", but no doubt says so");
  }
}

/// Absent in older results. What was not cut short has no doubt that comes of that.
void check_doubt_kinds(const Json& result, std::vector<std::string>& found) {
  if (result.contains("doubt_kinds")) {
    const Json& kinds = result.at("doubt_kinds");
    if (kinds.size() != result.at("doubts").size())
      found.push_back("doubt_kinds: are " + std::to_string(kinds.size()) + ", but there are " +
                      std::to_string(result.at("doubts").size()) + " doubts");
    const Json& runs = result.at("runs");
    const bool cut =
        result.at("cancelled").get<bool>() || std::any_of(runs.begin(), runs.end(), is_cut_short);
    if (!cut && std::find(kinds.begin(), kinds.end(), "cut_short") != kinds.end())
      found.push_back("doubt_kinds: says cut_short, but no run was");
  }
  for (const Json& expectation : result.at("expectations")) {
    if (!expectation.contains("doubt")) continue;
    const Json& doubt = expectation.at("doubt");
    const std::string name = expectation.at("name");
    if (doubt.is_null() == expectation.at("ok").is_null())
      found.push_back(name + ": its doubt is " + doubt.dump() + ", but ok is " + expectation.at("ok").dump());
    if (doubt != "cut_short") continue;
    for (const Json& run : result.at("runs"))
      if (name.starts_with(run.at("mode").get<std::string>() + ".") && !is_cut_short(run))
        found.push_back(name + ": its doubt is cut_short, but the run's outcome is " +
                        run.at("outcome").dump());
  }
}

/// "2026-01-02T03:04:05Z"
bool is_utc(const std::string& text) {
  const std::string shape = "dddd-dd-ddTdd:dd:ddZ";
  return text.size() == shape.size() &&
         std::equal(text.begin(), text.end(), shape.begin(),
                    [](char c, char s) { return s == 'd' ? c >= '0' && c <= '9' : c == s; });
}

void check_whole(const Json& result, std::vector<std::string>& found) {
  if (result.at("evidence") == "hardware" && result.at("fabric").at("kind") != "verbs")
    found.push_back("evidence: is hardware, but the fabric is " +
                    result.at("fabric").at("kind").get<std::string>());
  if (const std::string at = result.at("started_at"); !is_utc(at))
    found.push_back("started_at: '" + at + "' is no time like 2026-01-02T03:04:05Z");
  const Json& runs = result.at("runs");
  if (result.at("pairs") != 0 && !runs.empty() && result.at("jobs").empty())
    found.push_back("pairs: is " + result.at("pairs").dump() + ", but no job is listed");
  const size_t most_rounds =
      result.at("repeats").get<size_t>() * std::max(result.at("pairs").get<size_t>(), size_t{1});
  const Json& facts = result.at("environment");
  for (const Json& run : result.at("runs")) {
    Findings findings(run.at("mode"), found);
    if (run.value("rounds", Json::array()).size() > most_rounds)
      findings.say("it has more rounds than repeats and pairs leave");
    const Json& settings = run.at("settings");
    // A mode may have another transport.
    if (result.at("runs").size() == 1 && settings.contains("plugin") && facts.contains("plugin"))
      findings.same("settings.plugin", settings.at("plugin"), facts.at("plugin"), "the environment");
  }
}

}  // namespace

std::vector<std::string> contradictions(const nlohmann::json& result) {
  std::vector<std::string> found;
  check_whole(result, found);
  check_expectations(result, found);
  check_outcomes(result, found);
  check_doubts(result, found);
  check_doubt_kinds(result, found);
  const std::optional<Scenario> scenario = scenario_of(result);
  if (!scenario)
    found.push_back("workload or fabric: this r2bench does not know its engine, operation, type or kind");
  const RunResult read = result_of(result);
  std::map<std::string, size_t> modes;
  for (size_t i = 0; i < read.modes.size(); ++i) {
    const Json& run = result.at("runs")[i];
    const std::string mode = run.at("mode");
    if (++modes[mode] == 2) found.push_back(mode + ": there are several runs of this mode");
    Findings findings(mode, found);
    RunCheck(run, findings).check();
    check_fault_list(run, findings);
    if (!scenario) continue;
    const ReadBack all{result, *scenario, read};
    check_speed(all, run, read.modes[i], findings);
    check_values(all, run, read.modes[i], findings);
  }
  if (scenario) check_pairs({result, *scenario, read}, found);
  return found;
}

}  // namespace r2bench
