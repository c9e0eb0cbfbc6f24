// SPDX-License-Identifier: Apache-2.0
#include "harness/report/against_scenario.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "harness/report/json.h"
#include "harness/scenario/load.h"
#include "harness/scenario/plan_text.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;
using Wanted = std::multimap<std::string, std::string>;  // right sides by "mode.metric"

/// The options of `r2bench run` that decide what is expected. The others change the scenario once it is read.
LoadOptions options_of(const Json& result) {
  static const std::set<std::string> kLater = {"fabric.kind", "slow_motion", "slow_motion.payload",
                                               "shorter"};
  LoadOptions options;
  const Json overrides = result.value("overrides", Json::object());
  for (const auto& [path, value] : overrides.items()) {
    const std::string text = value.get<std::string>();
    if (path == "modes") {
      std::istringstream modes(text);
      for (std::string mode; std::getline(modes, mode, ',');) options.modes.push_back(mode);
    } else if (!kLater.contains(path)) {
      options.set.emplace_back(path, text);
    }
  }
  return options;
}

class Against {
 public:
  Against(const Json& result, const Scenario& scenario) : result_(result), scenario_(scenario) {}

  std::vector<std::string> mismatches() {
    compare_settings();
    for (const Mode& mode : scenario_.modes) compare_mode(mode.label);
    for (const auto& [name, text] : found())
      if (!known_.contains(name)) say(name, "the scenario expects nothing of it");
    return std::move(mismatches_);
  }

 private:
  void say(const std::string& about, const std::string& what) { mismatches_.push_back(about + ": " + what); }

  /// What the file states, as the command line changed it; of the gate each job has its own seed and repeats.
  /// Slow motion and shorter jobs change much of it.
  void compare_settings() {
    const Json overrides = result_.value("overrides", Json::object());
    const auto compare = [&](const std::string& what, const Json& ours, const Json& theirs) {
      if (ours != theirs) say(what, "is " + ours.dump() + ", but the scenario says " + theirs.dump());
    };
    compare("scenario", result_.at("scenario"), scenario_.name);
    compare("description", result_.at("description"), scenario_.description);
    compare("pairs", result_.at("pairs"), scenario_.pairs);
    for (const char* later : {"slow_motion", "slow_motion.payload", "shorter", "fabric.kind"})
      if (overrides.contains(later)) return;
    for (const auto& [group, theirs] : {std::pair{"fabric", Json(fabric_json(scenario_.fabric))},
                                        std::pair{"workload", Json(workload_json(scenario_.workload))}})
      for (const auto& [key, value] : result_.at(group).items())
        if (theirs.contains(key) && !theirs.at(key).is_null())
          compare(std::string(group) + "." + key, value, theirs.at(key));
    if (result_.contains("plan")) compare("plan", result_.at("plan"), plan_in_words(scenario_));
    for (const Json& run : result_.at("runs"))
      if (const Mode* mode = scenario_.find_mode(run.at("mode")); mode != nullptr && run.contains("env"))
        compare(mode->label + ".env", run.at("env"), stated_environment(scenario_, *mode));
  }

  Wanted found() const {
    const Json overrides = result_.value("overrides", Json::object());
    const std::string note = overrides.contains("slow_motion")
                                 ? slow_motion_note(overrides.at("slow_motion").get<std::string>())
                                 : "";
    Wanted found;
    for (const Json& expectation : result_.at("expectations")) {
      std::string wanted = expectation.at("wanted");
      if (!note.empty() && wanted.ends_with(note)) wanted.resize(wanted.size() - note.size());
      found.emplace(expectation.at("name"), wanted);
    }
    return found;
  }

  Wanted wanted_of(const std::string& mode) const {
    Wanted wanted;
    for (const Expectation& expectation : scenario_.expectations)
      if (expectation.mode == "all" || expectation.mode == mode)
        wanted.emplace(mode + "." + expectation.metric, expectation.wanted);
    if (!wanted.contains(mode + ".outcome")) wanted.emplace(mode + ".outcome", "ok");
    return wanted;
  }

  bool ran(const std::string& mode) const {
    const Json& runs = result_.at("runs");
    return std::any_of(runs.begin(), runs.end(), [&](const Json& run) { return run.at("mode") == mode; });
  }

  bool doubted(const std::string& mode) const {
    const Json& doubts = result_.at("doubts");
    return std::find(doubts.begin(), doubts.end(), mode + ": did not run") != doubts.end();
  }

  void compare_mode(const std::string& mode) {
    const Wanted wanted = wanted_of(mode), got = found();
    for (const auto& [name, text] : wanted) known_.insert(name);
    if (!ran(mode)) {
      if (!doubted(mode))
        say(mode, "the scenario has this mode, but the result has neither a run nor a doubt");
      return;
    }
    for (auto at = wanted.begin(); at != wanted.end(); at = wanted.upper_bound(at->first)) {
      const std::multiset<std::string> theirs = texts(wanted, at->first), ours = texts(got, at->first);
      for (const std::string& text : theirs)
        if (ours.count(text) < theirs.count(text))
          say(at->first, "the scenario expects '" + text + "', but the result has " +
                             (ours.empty() ? "no such expectation" : "'" + *ours.begin() + "'"));
      for (const std::string& text : std::set<std::string>(ours.begin(), ours.end()))
        if (theirs.contains(text) && ours.count(text) > theirs.count(text))
          say(at->first, "the scenario expects '" + text + "' " + times(theirs.count(text)) +
                             ", but the result has it " + times(ours.count(text)));
    }
  }

  static std::string times(size_t count) { return count == 1 ? "once" : std::to_string(count) + " times"; }

  static std::multiset<std::string> texts(const Wanted& of, const std::string& name) {
    std::multiset<std::string> texts;
    for (auto [at, end] = of.equal_range(name); at != end; ++at) texts.insert(at->second);
    return texts;
  }

  const Json& result_;
  const Scenario& scenario_;
  std::set<std::string> known_;  // names that the scenario expects something of
  std::vector<std::string> mismatches_;
};

}  // namespace

std::vector<std::string> scenario_mismatches(const nlohmann::json& result, const std::string& file) {
  try {
    const std::vector<Scenario> cells = load_scenarios(file, options_of(result));
    const auto same = [&](const Scenario& cell) {
      return Json(cell.matrix) == result.value("matrix", Json::object());
    };
    const auto cell = std::find_if(cells.begin(), cells.end(), same);
    if (cell == cells.end()) return {"scenario: " + file + " has no cell of this result's matrix"};
    return Against(result, *cell).mismatches();
  } catch (const ScenarioError& error) {
    const Problem& first = error.problems().front();
    return {"expectations: cannot be compared with those of the scenario: " + first.file + ":" +
            std::to_string(first.line) + ": " + first.message};
  }
}

}  // namespace r2bench
