// SPDX-License-Identifier: Apache-2.0
#include "harness/conformance/table.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string_view>

#include "harness/conformance/observation.h"

namespace r2bench::conformance {
namespace {

const std::vector<const char*> kSeen = {"completions",  "left_without_completion",
                                        "posted_after", "state_a",
                                        "port_a",       "port_b",
                                        "events_a",     "events_b",
                                        "slower",       "stalled"};

std::string text_of(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& element : value) text += (text.empty() ? "" : " ") + text_of(element);
  return text.empty() ? "none" : text;
}

void explain(Deviation& deviation, const std::vector<Explanation>& known) {
  for (const Explanation& one : known) {
    if (deviation.fabric != one.fabric || deviation.name != one.name) continue;
    if (one.what != std::string_view("*") && deviation.what != one.what) continue;
    deviation.explained = true;
    deviation.acceptable = one.acceptable;
    deviation.why = one.why;
    return;
  }
}

void compare_cases(Table& table, const nlohmann::json& fabric, const std::vector<Explanation>& known) {
  const auto name = fabric.at("fabric").get<std::string>();
  if (!fabric.at("cases").is_array()) {
    table.deviations.push_back(
        {name, "cases", "the program", "ran", text_of(fabric.at("cases")), false, false, ""});
    return;
  }
  for (const auto& which : fabric.at("cases")) {
    ++table.cases;
    if (which.at("outcome") != "ran") {
      const std::string got = text_of(which.at("outcome")) + ": " + which.value("reason", "");
      Deviation deviation{name, which.at("case").get<std::string>(), "outcome", "ran", got, false, false, ""};
      explain(deviation, known);
      table.deviations.push_back(deviation);
    }
    for (const auto& seen : which.at("observations")) {
      ++table.observations;
      const Observation observation{seen.at("what").get<std::string>(), seen.at("wanted").get<std::string>(),
                                    seen.at("got").get<std::string>()};
      if (fits(observation)) continue;
      Deviation deviation{name,
                          which.at("case").get<std::string>(),
                          observation.what,
                          observation.wanted,
                          observation.got,
                          false,
                          false,
                          ""};
      explain(deviation, known);
      table.deviations.push_back(deviation);
    }
  }
}

/// What was seen of `fault` on `fabric` from `source`; null when nobody looked.
nlohmann::json seen(const std::vector<nlohmann::json>& fabrics, const std::string& fabric,
                    const std::string& fault, const std::string& source) {
  for (const auto& one : fabrics)
    if (one.at("fabric") == fabric)
      for (const auto& entry : one.at("faults"))
        if (entry.at("fault") == fault && entry.at("source") == source) return entry.at("seen");
  return nullptr;
}

void compare_faults(Table& table, const nlohmann::json& fabric, const std::vector<Explanation>& known) {
  for (const auto& entry : fabric.at("faults")) {
    const auto& got = entry.at("seen");
    const std::string where =
        fabric.at("fabric").get<std::string>() + " " + entry.at("source").get<std::string>();
    const std::string name = "faults." + entry.at("fault").get<std::string>();
    const auto add = [&](const std::string& what, const std::string& wanted, const std::string& value) {
      Deviation deviation{where, name, what, wanted, value, false, false, ""};
      explain(deviation, known);
      table.deviations.push_back(deviation);
    };
    if (got.contains("broken")) add("outcome", "ran", text_of(got.at("broken")));
    if (entry.at("source") == "real") continue;
    auto real = seen(table.fabrics, "rxe", entry.at("fault").get<std::string>(), "real");
    if (real.is_null()) real = seen(table.fabrics, "vhca", entry.at("fault").get<std::string>(), "injected");
    if (real.is_null() || real.contains("broken") || got.contains("broken")) continue;
    for (const char* what : kSeen) {
      if (!real.contains(what) && !got.contains(what)) continue;
      ++table.observations;
      const std::string wanted = real.contains(what) ? text_of(real.at(what)) : "-";
      const std::string value = got.contains(what) ? text_of(got.at(what)) : "-";
      if (wanted != value) add(what, wanted, value);
    }
  }
}

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

size_t Table::unexplained() const {
  return size_t(std::count_if(deviations.begin(), deviations.end(),
                              [](const Deviation& d) { return !d.explained || !d.acceptable; }));
}

Table make_table(std::vector<nlohmann::json> fabrics, nlohmann::json provenance,
                 const std::vector<Explanation>& known) {
  Table table;
  table.provenance = std::move(provenance);
  table.fabrics = std::move(fabrics);
  for (const auto& fabric : table.fabrics) {
    compare_cases(table, fabric, known);
    compare_faults(table, fabric, known);
  }
  return table;
}

namespace {

const nlohmann::json& cases_of(const nlohmann::json& fabric) {
  static const nlohmann::json kNone = nlohmann::json::array();
  return fabric.at("cases").is_array() ? fabric.at("cases") : kNone;
}

std::string name_of(const nlohmann::json& fabric) { return fabric.at("fabric").get<std::string>(); }

void write_provenance(const Table& table, std::ostream& out) {
  for (const auto& [key, value] : table.provenance.items())
    out << "* " << key << ": " << text_of(value) << "\n";
  for (const auto& fabric : table.fabrics) {
    const auto& environment = fabric.at("environment");
    out << "* " << name_of(fabric) << ": " << cases_of(fabric).size() << " cases, "
        << fabric.at("faults").size() << " faults; " << text_of(environment.at("kernel")) << ", "
        << text_of(environment.at("machine")) << ", " << text_of(environment.at("cores")) << " cores\n";
  }
}

void write_deviations(const Table& table, std::ostream& out) {
  out << table.observations << " observations, " << table.deviations.size() << " deviations, "
      << table.unexplained() << " of them unexplained or not acceptable.\n\n## Deviations\n\n"
      << "| test | fabric | what | wanted | got | acceptable | why |\n|---|---|---|---|---|---|---|\n";
  for (const Deviation& d : table.deviations)
    out << "| " << d.name << " | " << d.fabric << " | " << cell(d.what) << " | " << cell(d.wanted) << " | "
        << cell(d.got) << " | "
        << (!d.explained   ? "?"
            : d.acceptable ? "yes"
                           : "**no**")
        << " | " << cell(d.explained ? d.why : "not explained yet") << " |\n";
}

void write_fault(const std::string& name, const nlohmann::json& fabric, const nlohmann::json& entry,
                 std::ostream& out) {
  const auto& seen = entry.at("seen");
  const auto value = [&](const char* key) {
    return seen.contains(key) ? cell(text_of(seen.at(key))) : std::string("–");
  };
  out << "| " << name << " | " << name_of(fabric) << ", " << entry.at("source").get<std::string>() << " | "
      << (seen.contains("broken") ? "broken: " + cell(text_of(seen.at("broken"))) : value("completions"))
      << " | " << value("posted_after") << " | " << value("state_a") << " | " << value("port_a") << ", "
      << value("port_b") << " | " << value("events_a") << " | " << value("events_b") << " | "
      << value("slower") << ", " << value("stalled") << " |\n";
}

void write_faults(const Table& table, std::ostream& out) {
  out << "## What a program sees of a fault\n\nFrom the first completion; '+' is one or more.\n\n"
      << "| fault | source | completions | posted afterwards | QP | port A, B | events at A | events at B | "
         "slower, stalled |\n"
      << "|---|---|---|---|---|---|---|---|---|\n";
  std::vector<std::string> names;
  for (const auto& fabric : table.fabrics)
    for (const auto& entry : fabric.at("faults"))
      if (const auto name = entry.at("fault").get<std::string>();
          std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
  for (const std::string& name : names)
    for (const auto& fabric : table.fabrics)
      for (const auto& entry : fabric.at("faults"))
        if (entry.at("fault") == name) write_fault(name, fabric, entry, out);
}

/// What came of a case on a fabric: "as expected (7)", "2 of 7 differ", "–" where it has none.
std::string outcome_of(const Table& table, const nlohmann::json& fabric, const std::string& name) {
  std::string text = "–";
  for (const auto& which : cases_of(fabric)) {
    if (which.at("case") != name) continue;
    const auto differs =
        std::count_if(table.deviations.begin(), table.deviations.end(),
                      [&](const Deviation& d) { return d.fabric == name_of(fabric) && d.name == name; });
    const std::string observations = std::to_string(which.at("observations").size());
    text = which.at("outcome") != "ran" ? which.at("outcome").get<std::string>()
           : differs > 0                ? std::to_string(differs) + " of " + observations + " differ"
                                        : "as expected (" + observations + ")";
  }
  return text;
}

void write_cases(const Table& table, std::ostream& out) {
  out << "## Cases\n\n| case |";
  for (const auto& fabric : table.fabrics) out << " " << name_of(fabric) << " |";
  out << "\n|---|";
  for (size_t i = 0; i < table.fabrics.size(); ++i) out << "---|";
  out << "\n";
  std::set<std::string> cases;
  for (const auto& fabric : table.fabrics)
    for (const auto& which : cases_of(fabric)) cases.insert(which.at("case").get<std::string>());
  for (const std::string& name : cases) {
    out << "| " << name << " |";
    for (const auto& fabric : table.fabrics) out << " " << outcome_of(table, fabric, name) << " |";
    out << "\n";
  }
}

}  // namespace

std::string markdown(const Table& table) {
  std::ostringstream out;
  out << "# Conformance\n\n";
  write_provenance(table, out);
  out << "\n";
  write_deviations(table, out);
  out << "\n";
  write_faults(table, out);
  out << "\n";
  write_cases(table, out);
  return out.str();
}

nlohmann::json json(const Table& table) {
  nlohmann::json deviations = nlohmann::json::array();
  for (const Deviation& d : table.deviations)
    deviations.push_back({{"fabric", d.fabric},
                          {"test", d.name},
                          {"what", d.what},
                          {"wanted", d.wanted},
                          {"got", d.got},
                          {"explained", d.explained},
                          {"acceptable", d.acceptable},
                          {"why", d.why}});
  return {{"provenance", table.provenance}, {"fabrics", table.fabrics}, {"deviations", deviations}};
}

}  // namespace r2bench::conformance
