// SPDX-License-Identifier: Apache-2.0
// `r2bench inject add|list|remove|heal`: acts on the fault board of whatever runs, a fabric of `exec` or a
// job of `run`.
#include <cstdint>
#include <ostream>

#include "faultinject/plan/plan_text.h"
#include "harness/cli/commands.h"
#include "harness/cli/resources.h"
#include "harness/control/control_client.h"
#include "harness/exec/witness_story.h"
#include "harness/report/table.h"

namespace r2bench {
namespace {

/// A fault as YAML text, or @file.
struct Plan {
  std::string text, file;
};

Plan read_fault(const std::string& argument) {
  if (argument.empty() || argument.front() != '@') return {argument, "fault"};
  const std::string file = argument.substr(1);
  return {read_file(file), file};
}

void print_list(const nlohmann::json& answer, const Console& console) {
  using Align = Table::Align;
  Table table({{"id", ""},
               {"kind", "", Align::kLeft},
               {"target", "", Align::kLeft},
               {"state", "", Align::kLeft},
               {"armed", ""},
               {"t0", ""},
               {"healed", ""},
               {"effects", ""},
               {"by", "", Align::kLeft}});
  const auto now = answer.at("now_ns").get<uint64_t>();
  for (const nlohmann::json& fault : answer.at("faults")) {
    const auto armed = fault.at("armed_ns").get<uint64_t>();
    const auto after = [&](const char* key) {
      const auto time = fault.at(key).get<uint64_t>();
      return time == 0 ? std::string("-") : later_by(armed, time);
    };
    table.add({fault.at("id").dump(), fault.at("kind").get<std::string>(),
               fault.at("target").get<std::string>(), fault.at("state").get<std::string>(),
               later_by(armed, now).substr(1) + " ago", after("t0_ns"), after("healed_ns"),
               fault.at("effects").dump(), fault.at("by").get<std::string>()});
  }
  console.out << table.header("").front() << "\n";
  for (const std::string& row : table.rows("")) console.out << row << "\n";
}

}  // namespace

int inject_command(const InjectArguments& arguments, const Console& console) {
  Plan plan;
  if (arguments.action == InjectArguments::Action::kAdd) {
    plan = read_fault(arguments.fault);
    faultinject::parse_plan(plan.text, plan.file);
  }
  std::string name;
  MessageSocket owner = connect_to_running(arguments.name, name);
  switch (arguments.action) {
    case InjectArguments::Action::kAdd: {
      const nlohmann::json answer = ask(owner, {{"type", "add"}, {"text", plan.text}, {"file", plan.file}});
      for (const nlohmann::json& id : answer.at("ids")) console.out << id << "\n";
      break;
    }
    case InjectArguments::Action::kList: {
      const nlohmann::json what = ask(owner, {{"type", "what"}});
      nlohmann::json answer = ask(owner, {{"type", "list"}});
      nlohmann::json story;
      if (arguments.effects) {
        std::vector<uint32_t> ids;
        for (const nlohmann::json& fault : answer.at("faults")) ids.push_back(fault.at("id").get<uint32_t>());
        story = collect_story(owner, name, ids);
      }
      if (arguments.json) {
        if (arguments.effects) answer["faults"] = story.at("faults");
        answer["name"] = name;
        answer.update(what);
        console.out << answer.dump(2) << "\n";
        break;
      }
      console.out << name << ": " << what.at("what").get<std::string>() << "\n";
      if (what.contains("members"))
        for (const nlohmann::json& member : what["members"])
          console.out << "  " << member.get<std::string>() << "\n";
      if (answer.at("faults").empty()) {
        console.out << "No fault was armed.\n";
      } else {
        print_list(answer, console);
      }
      if (arguments.effects) tell(story, SIZE_MAX, console.out);
      break;
    }
    case InjectArguments::Action::kRemove: {
      const nlohmann::json answer = ask(owner, {{"type", "remove"}, {"id", arguments.id}});
      console.out << "fault " << arguments.id << " was " << answer.at("was").get<std::string>() << "\n";
      break;
    }
    case InjectArguments::Action::kHeal: {
      const nlohmann::json answer = ask(owner, {{"type", "heal"}});
      console.out << name << ": " << answer.at("healed") << " healed\n";
      break;
    }
  }
  return 0;
}

}  // namespace r2bench
