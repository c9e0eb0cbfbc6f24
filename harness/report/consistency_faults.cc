// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "faultinject/plan/kind.h"
#include "harness/judge/fault_times.h"
#include "harness/judge/settle_bound.h"
#include "harness/measure/statistics.h"
#include "harness/report/consistency_parts.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

class FaultList : private Findings {
 public:
  FaultList(const Json& run, const Findings& findings)
      : Findings(findings), run_(run), metrics_(run.at("metrics")) {}

  void check() {
    check_counts();
    check_planned();
    check_jobs_without_fault();
    for (const FaultTime& time : kFaultTimes) check_times(time.name);
    check_marks();
    check_recovery();
    check_healed_rounds();
    check_each();
  }

 private:
  static bool rate_known(const Json& fault) { return fault.value("why_no_rate_before", Json()).is_null(); }

  std::vector<const Json*> sampled() const {
    std::vector<const Json*> faults;
    for (const Json& fault : run_.at("faults"))
      if (fault.at("sampled") == true) faults.push_back(&fault);
    return faults;
  }

  void check_counts() {
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
      unrecovered += recovers && fault.at("recover_ms").is_null() && rate_known(fault);
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
    // A rate that never came back counts for as long as it was waited for. Older results do not say how long.
    size_t waited = family == "recover_ms" ? metrics_.at("faults").at("unrecovered").get<size_t>() : 0;
    for (const Json* fault : sampled())
      if (const auto time = number(fault->at(family))) {
        times.push_back(*time);
      } else if (const auto until = number(fault->value("waited_ms", Json())); until && waited > 0) {
        times.push_back(*until);
        --waited;
      }
    const Json& said = metrics_.at("recovery").at(family);
    same("recovery." + family + ".n", said.at("n"), times.size() + waited, "its list of faults");
    check_order("recovery." + family, said, *this);
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

  /// A job that ended early need not have come to all of them.
  void check_planned() {
    const size_t planned = metrics_.at("faults").at("planned"), listed = run_.at("faults").size();
    if (run_.at("outcome") == "ok")
      same("faults.planned", planned, listed, "its list of faults");
    else if (planned > listed)
      say("faults.planned is " + std::to_string(planned) + ", but " + std::to_string(listed) + " are listed");
  }

  /// Each job has one round. Those of a job that ended before its faults were armed are not listed.
  void check_jobs_without_fault() {
    const auto said = number(metrics_.at("faults").value("jobs_without_fault", Json()));
    if (!said) return;
    std::map<size_t, bool> seen;  // by round
    for (const Json& fault : run_.at("faults"))
      seen[fault.at("repetition")] |= fault.at("witnessed").get<bool>();
    size_t without = 0;
    for (const auto& [round, witnessed] : seen) without += !witnessed;
    const size_t cut_short = run_.value("/outcomes/cancelled"_json_pointer, size_t{0});
    if (*said + double(cut_short) < double(without))
      say("faults.jobs_without_fault is " + std::to_string(size_t(*said)) + ", but in " +
          std::to_string(without) + " rounds no fault took effect");
  }

  /// In open time, which is no more than the time between its marks.
  void check_recovery() {
    for (const Json& fault : run_.at("faults")) {
      const std::string of = " of " + fault.at("name").get<std::string>();
      const auto struck = number(fault.at("t0_at_ms")), back = number(fault.at("recovered_at_ms")),
                 healed = number(fault.at("healed_at_ms")), time = number(fault.at("recover_ms"));
      if (back.has_value() != time.has_value())
        say("recover_ms" + of + " is " + fault.at("recover_ms").dump() + ", but recovered_at_ms is " +
            fault.at("recovered_at_ms").dump());
      if (struck && back && time && *time > *back - *struck && !agree(*time, *back - *struck, *back))
        say("recover_ms" + of + " is " + fault.at("recover_ms").dump() + ", but " +
            Json(*back - *struck).dump() + " is the time from t0_at_ms to recovered_at_ms");
      const bool is_waited_for =
          fault.at("sampled") == true && !time && rate_known(fault) && run_.at("r2cc_mode") != 0;
      if (fault.contains("waited_ms") && fault.at("waited_ms").is_null() == is_waited_for)
        say("waited_ms" + of + " is " + fault.at("waited_ms").dump() + ", but recover_ms is " +
            fault.at("recover_ms").dump());
      if (healed && struck && *healed < *struck && !agree(*healed, *struck))
        say("healed_at_ms" + of + " is before its t0");
      if (!fault.contains("recovered_after_heal") || (healed && back && agree(*healed, *back))) continue;
      same("recovered_after_heal" + of, fault.at("recovered_after_heal"), healed && back && *back >= *healed,
           "healed_at_ms and recovered_at_ms");
    }
  }

  /// A round was healed if all its faults were, but for those that are over once they struck.
  void check_healed_rounds() {
    if (!metrics_.contains("restored")) return;
    std::map<size_t, bool> healed;
    for (const Json& fault : run_.at("faults")) {
      if (fault.at("t0_at_ms").is_null()) continue;
      if (const Json& why = fault.at("why_not_sampled");
          why.is_string() && leaves_last_place(fault.at("strike"), why.get<std::string>()))
        continue;
      const faultinject::FaultKind* kind = faultinject::find_fault_kind(fault.at("kind").get<std::string>());
      const bool over = kind != nullptr && kind->ends == faultinject::Ends::kAfterStrikes;
      bool& round = healed.try_emplace(fault.at("repetition").get<size_t>(), true).first->second;
      round = round && (over || !fault.at("healed_at_ms").is_null());
    }
    const auto most =
        std::count_if(healed.begin(), healed.end(), [](const auto& round) { return round.second; });
    const size_t of = metrics_.at("restored").at("rounds").at("of");
    if (of > size_t(most))
      say("restored.rounds.of is " + std::to_string(of) + ", but " + std::to_string(most) +
          " rounds were healed");
  }

  void check_each() {
    std::set<std::tuple<std::string, size_t, size_t>> seen;
    for (const Json& fault : run_.at("faults")) {
      const std::string name = fault.at("name"), of = " of " + name;
      const size_t repetition = fault.at("repetition"), strike = fault.at("strike");
      seen.emplace(name, repetition, strike);
      if (fault.at("sampled") == !fault.at("why_not_sampled").is_null())
        say("sampled" + of + " is " + fault.at("sampled").dump() + ", but why_not_sampled is " +
            fault.at("why_not_sampled").dump());
      if (fault.at("witnessed") == fault.at("t0_at_ms").is_null())
        say("witnessed" + of + " is " + fault.at("witnessed").dump() + ", but t0_at_ms is " +
            fault.at("t0_at_ms").dump());
      if (!rate_known(fault) && (fault.at("sampled") == false || !fault.at("recover_ms").is_null() ||
                                 number(fault.at("before_gbps")).value_or(0) > 0))
        say("why_no_rate_before" + of + " is " + fault.at("why_no_rate_before").dump() +
            ", but sampled, recover_ms and before_gbps are " + fault.at("sampled").dump() + ", " +
            fault.at("recover_ms").dump() + " and " + fault.at("before_gbps").dump());
      if (fault.at("witnessed") == false && fault.at("sampled") == true)
        say("sampled" + of + ", but not witnessed");
    }
    // Rounds and strikes are numbered from 0.
    for (const auto& [name, repetition, strike] : seen)
      if (strike > 0 && !seen.contains({name, repetition, strike - 1}))
        say("strike " + std::to_string(strike) + " of " + name + " is listed, but not the one before it");
  }

  const Json& run_;
  const Json& metrics_;
};

}  // namespace

void check_order(const std::string& what, const Json& distribution, Findings& findings) {
  double last = 0;
  for (const char* statistic : {"p50", "p95", "p99", "max"}) {
    const auto value = number(distribution.at(statistic));
    if (value.has_value() != (distribution.at("n") != 0))
      findings.say(what + "." + statistic + " is " + distribution.at(statistic).dump() + ", but its n is " +
                   distribution.at("n").dump());
    if (!value) continue;
    if (*value < last && !agree(*value, last))
      findings.say(what + "." + statistic + " is " + Json(*value).dump() + ", but a lower percentile is " +
                   Json(last).dump());
    last = *value;
  }
}

void check_fault_list(const Json& run, Findings& findings) { FaultList(run, findings).check(); }

}  // namespace r2bench
