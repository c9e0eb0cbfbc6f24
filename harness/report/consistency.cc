// SPDX-License-Identifier: Apache-2.0
#include "harness/report/consistency.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "harness/judge/fault_times.h"
#include "harness/judge/metric.h"
#include "harness/measure/statistics.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

std::optional<double> number(const Json& json) {
  return json.is_number() ? std::optional(json.get<double>()) : std::nullopt;
}

std::optional<double> number_at(const Json& json, const std::string& place) {
  const Json::json_pointer pointer(place);
  return json.contains(pointer) ? number(json.at(pointer)) : std::nullopt;
}

/// Results that were shortened have six digits: `scale` is the largest number that went into either.
bool agree(double a, double b, double scale = 0) {
  return std::fabs(a - b) <= 2e-5 * std::max({1.0, std::fabs(a), std::fabs(b), std::fabs(scale)});
}

/// What one run says twice.
class RunCheck {
 public:
  RunCheck(const Json& run, std::vector<std::string>& found)
      : run_(run), metrics_(run.at("metrics")), found_(found) {}

  void check() {
    check_correctness();
    check_faults();
    for (const FaultTime& time : kFaultTimes) check_times(time.name);
    check_marks();
    check_rounds();
    check_rates();
    check_metrics();
    check_wakeup();
    check_ends();
  }

 private:
  void say(const std::string& what) { found_.push_back(run_.at("mode").get<std::string>() + ": " + what); }

  /// Both as JSON: counts, and maps of counts.
  void same(const std::string& what, const Json& said, const Json& follows, const std::string& from) {
    if (said != follows)
      say(what + " is " + said.dump() + ", but " + follows.dump() + " follows from " + from);
  }
  void close(const std::string& what, std::optional<double> said, double follows, const std::string& from,
             double scale = 0) {
    if (said && !agree(*said, follows, scale))
      say(what + " is " + Json(*said).dump() + ", but " + Json(follows).dump() + " follows from " + from);
  }

  std::vector<const Json*> sampled() const {
    std::vector<const Json*> faults;
    for (const Json& fault : run_.at("faults"))
      if (fault.at("sampled") == true) faults.push_back(&fault);
    return faults;
  }

  void check_correctness() {
    const Json& c = metrics_.at("correctness");
    const bool right = c.at("wrong_elements") == 0 && c.at("duplicated") == 0 && c.at("lost") == 0 &&
                       c.at("size_errors") == 0 && c.at("checked_elements") > 0;
    same("correctness.exact", c.at("exact"), right, "its counts");
    same("row.wrong", run_.at("row").at("wrong"), c.at("wrong_elements"), "correctness.wrong_elements");
  }

  void check_faults() {
    const Json& counts = metrics_.at("faults");
    size_t witnessed = 0, unrecovered = 0, after_heal = 0;
    std::map<std::string, size_t> dropped, detected_by;
    const bool recovers = run_.at("r2cc_mode") != 0;
    for (const Json& fault : run_.at("faults")) {
      witnessed += fault.at("witnessed") == true;
      if (fault.at("sampled") == false) {
        if (fault.at("witnessed") == true && fault.at("why_not_sampled").is_string())
          ++dropped[fault.at("why_not_sampled")];
        continue;
      }
      if (fault.at("detected_by").is_string()) ++detected_by[fault.at("detected_by")];
      unrecovered += recovers && fault.at("recover_ms").is_null();
      after_heal += fault.value("recovered_after_heal", false) && !fault.at("recover_ms").is_null();
    }
    const char* from = "its list of faults";
    same("faults.witnessed", counts.at("witnessed"), witnessed, from);
    same("faults.sampled", counts.at("sampled"), sampled().size(), from);
    if (counts.contains("dropped")) same("faults.dropped", counts.at("dropped"), dropped, from);
    same("faults.unrecovered", counts.at("unrecovered"), unrecovered, from);
    if (counts.contains("recovered_after_heal"))
      same("faults.recovered_after_heal", counts.at("recovered_after_heal"), after_heal, from);
    same("recovery.detected_by", metrics_.at("recovery").at("detected_by"), detected_by, from);
    double floor_ms = 0;
    for (const Json* fault : sampled()) floor_ms = std::max(floor_ms, fault->at("floor_ms").get<double>());
    close("recovery.floor_ms", number_at(metrics_, "/recovery/floor_ms"), floor_ms, from);
  }

  void check_times(const std::string& family) {
    std::vector<double> times;
    for (const Json* fault : sampled())
      if (const auto time = number(fault->at(family))) times.push_back(*time);
    const Json& said = metrics_.at("recovery").at(family);
    // A rate that never came back counts for as long as it was waited for, which only the summary says.
    const size_t waited = family == "recover_ms" ? metrics_.at("faults").at("unrecovered").get<size_t>() : 0;
    same("recovery." + family + ".n", said.at("n"), times.size() + waited, "its list of faults");
    if (waited > 0 || times.empty()) return;
    const Distribution d = summarize(std::move(times));
    for (const auto& [name, value] :
         {std::pair{"p50", d.p50}, std::pair{"p95", d.p95}, std::pair{"p99", d.p99}, std::pair{"max", d.max}})
      close("recovery." + family + "." + name, number(said.at(name)), value, "its list of faults");
  }

  /// A time is the distance of its marks.
  void check_marks() {
    for (const Json& fault : run_.at("faults")) {
      const std::string of = " of " + fault.at("name").get<std::string>();
      for (const auto& [time, from, to] : {std::tuple{"detect_ms", "t0_at_ms", "detected_at_ms"},
                                           std::tuple{"migrate_ms", "detected_at_ms", "migrated_at_ms"}}) {
        const auto begin = number(fault.at(from)), end = number(fault.at(to));
        if (begin && end)
          close(time + of, number(fault.at(time)), std::max(0.0, *end - *begin),
                std::string(from) + " and " + to, *end);
      }
      const auto struck = number(fault.at("t0_at_ms"));
      for (const char* mark : {"detected_at_ms", "migrated_at_ms", "recovered_at_ms"})
        if (const auto at = number(fault.at(mark)); at && struck && *at < *struck && !agree(*at, *struck))
          say(mark + of + " is before its t0");
    }
  }

  void check_rounds() {
    const Json rounds = run_.value("rounds", Json::array());
    if (rounds.empty()) return;
    std::map<std::string, uint64_t> sums;
    for (const Json& round : rounds)
      for (const auto& [name, count] : round.items()) sums[name] += count.get<uint64_t>();
    for (const auto& [name, sum] : sums)
      for (const char* group : {"recovery", "balance"})
        if (metrics_.at(group).is_object() && metrics_.at(group).contains(name))
          same(std::string(group) + "." + name, metrics_.at(group).at(name), sum, "its rounds");
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
      if (measured == 0 && !t.at("retained").is_null())
        say("throughput.retained is " + t.at("retained").dump() + ", but no round was measured");
      // Of several rounds it is a mean of ratios.
      const auto before = number(t.at("before_gbps")), after = number(t.at("after_gbps"));
      if (measured == 1 && before && *before > 0 && after)
        close("throughput.retained", number(t.at("retained")), *after / *before, "the rates beside it");
    }
    if (!metrics_.contains("restored")) return;
    const Json& r = metrics_.at("restored");
    const auto before = number(r.at("before_ms")), after = number(r.at("after_ms"));
    if (before && after && *after > 0)
      close("restored.ratio", number(r.at("ratio")), *before / *after, "the times beside it");
  }

  /// `metrics.values` and the other place of a metric. Of a count with repeats the value is that of a round.
  void check_metrics() {
    const Json values = metrics_.value("values", Json::object());
    const bool repeats = run_.value("rounds", Json::array()).size() > 1;
    for (const Metric& metric : all_metrics()) {
      const auto value = number(values.value(metric.info.name, Json()));
      if (!value) continue;
      if (metric.by_round && repeats) {
        check_most_of_rounds(metric.info.name, *value);
        continue;
      }
      const size_t dot = metric.info.name.find('.');
      std::string place = metric.place;
      if (place.empty() && dot != std::string::npos)
        place =
            "/metrics/recovery/" + metric.info.name.substr(0, dot) + "/" + metric.info.name.substr(dot + 1);
      if (const auto other = place.empty() ? std::nullopt : number_at(run_, place); other)
        close("metrics.values." + metric.info.name, value, *other, place);
    }
  }

  void check_most_of_rounds(const std::string& metric, double value) {
    std::optional<double> most;
    for (const Json& round : run_.at("rounds"))
      if (const auto count = number(round.value(metric, Json()))) most = std::max(most.value_or(0), *count);
    if (most) close("metrics.values." + metric, value, *most, "its rounds");
  }

  void check_wakeup() {
    const Json& of_runner = run_.at("wakeup_ms");
    if (!metrics_.contains("values") || of_runner.at("n") == 0) return;  // older results had no cap
    if (const auto p99 = number(of_runner.at("p99")))
      close("recovery.wakeup_p99_ms", number_at(metrics_, "/recovery/wakeup_p99_ms"),
            std::min(*p99, kWakeupCapMs), "wakeup_ms and its cap");
  }

  void check_ends() {
    same("row.iterations", run_.at("row").at("iterations"), run_.at("iteration_ms").size(), "iteration_ms");
    if (run_.at("outcome") != "ok") return;
    for (const Json& rank : run_.at("ranks"))
      if (rank.at("outcome") != "ok")
        say("its outcome is ok, but that of " + rank.at("label").get<std::string>() + " is " +
            rank.at("outcome").get<std::string>());
  }

  const Json& run_;
  const Json& metrics_;
  std::vector<std::string>& found_;
};

}  // namespace

std::vector<std::string> contradictions(const nlohmann::json& result) {
  std::vector<std::string> found;
  if (result.at("evidence") == "hardware" && result.at("fabric").at("kind") != "verbs")
    found.push_back("evidence: is hardware, but the fabric is " +
                    result.at("fabric").at("kind").get<std::string>());
  std::map<std::string, size_t> modes;
  for (const Json& run : result.at("runs")) {
    const std::string mode = run.at("mode");
    if (++modes[mode] == 2) found.push_back(mode + ": there are several runs of this mode");
    RunCheck(run, found).check();
  }
  return found;
}

}  // namespace r2bench
