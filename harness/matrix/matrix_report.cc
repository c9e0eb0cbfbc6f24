// SPDX-License-Identifier: Apache-2.0
#include "harness/matrix/matrix_report.h"

#include <algorithm>
#include <sstream>

#include "harness/matrix/cell_scenario.h"

namespace r2bench::matrix {
namespace {

struct Field {
  MatrixCounts counts;
  int struck = 0;
  std::string empty;    ///< why all of its cells, or some, cannot be run
  std::string excused;  ///< why an error is expected of some of its cells

  const std::string& note() const { return empty.empty() ? excused : empty; }
};

Field field_of(const std::vector<CellRun>& runs, const FaultRow& fault, Moment moment) {
  std::vector<CellRun> mine;
  Field field;
  for (const CellRun& run : runs)
    if (run.cell.fault == &fault && run.cell.moment == moment) {
      mine.push_back(run);
      field.struck += run.result.struck;
      if (run.result.verdict == CellVerdict::kEmpty) field.empty = run.result.why;
      if (!run.result.excuse.empty() && run.result.outcome == "error") field.excused = run.result.excuse;
    }
  field.counts = count(mine);
  return field;
}

std::string shown(const Field& field, char note) {
  if (field.counts.run() == 0) return field.counts.empty > 0 ? std::string("· ") + note : "";
  std::string text = std::to_string(field.counts.pass);
  if (field.counts.pass != field.counts.run()) text += "/" + std::to_string(field.counts.run()) + "!";
  if (!field.note().empty()) text += std::string(" ") + note;
  return text;
}

/// Reasons get letters in the order in which they appear.
class Notes {
 public:
  char letter(const std::string& reason) {
    if (reason.empty()) return ' ';
    const auto it = std::find(reasons_.begin(), reasons_.end(), reason);
    const size_t index = size_t(it - reasons_.begin());
    if (it == reasons_.end()) reasons_.push_back(reason);
    return index < 26 ? char('a' + index) : char('A' + (index - 26) % 26);
  }
  const std::vector<std::string>& reasons() const { return reasons_; }

 private:
  std::vector<std::string> reasons_;
};

std::vector<const FaultRow*> rows_of(const std::vector<CellRun>& runs) {
  std::vector<const FaultRow*> rows;
  for (const FaultRow& row : fault_rows())
    if (std::any_of(runs.begin(), runs.end(), [&](const CellRun& run) { return run.cell.fault == &row; }))
      rows.push_back(&row);
  return rows;
}

std::string totals(const std::vector<CellRun>& runs) {
  const MatrixCounts all = count(runs);
  int struck = 0;
  size_t migrations = 0, replayed = 0;
  uint64_t checked = 0;
  for (const CellRun& run : runs) {
    struck += run.result.struck;
    migrations += run.result.migrations;
    replayed += run.result.replayed;
    checked += run.result.checked;
  }
  std::ostringstream text;
  text << all.run() << " cells: " << all.pass << " hold, " << all.fail << " fail, " << all.missed
       << " missed; " << all.empty << " are empty. " << struck << " faults struck in their moment, "
       << migrations << " ends of channels migrated, " << replayed << " segments were replayed, " << checked
       << " elements compared.";
  return text.str();
}

/// A reason as one line. What is left out of a long one (where each thread was) is in the cell's folder.
std::string in_brief(std::string text) {
  constexpr size_t kLongest = 200;
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > kLongest) text = text.substr(0, text.find_last_of(' ', kLongest)) + " …";
  return text;
}

/// One entry where all ends are empty for one reason, else one for each end that is.
void add_empty(nlohmann::ordered_json& list, const FaultRow& fault, Moment moment) {
  const auto why = [&](Side side) { return why_empty(fault, moment, side); };
  const bool alike = std::all_of(sides().begin(), sides().end(),
                                 [&](Side side) { return why(side) == why(sides().front()); });
  for (const Side side : sides()) {
    if (why(side).empty()) continue;
    nlohmann::ordered_json entry = {{"fault", fault.name}, {"moment", name(moment)}};
    if (!alike) entry["end"] = name(side);
    entry["why"] = why(side);
    list.push_back(std::move(entry));
    if (alike) return;
  }
}

void failures(const std::vector<CellRun>& runs, const char* bullet, std::ostringstream& text) {
  for (const CellRun& run : runs)
    if (run.result.verdict == CellVerdict::kFail || run.result.verdict == CellVerdict::kMissed)
      text << bullet << run.cell.name() << ": " << name(run.result.verdict) << ": "
           << in_brief(run.result.why) << "\n";
}

}  // namespace

std::string json_text(nlohmann::ordered_json json) {
  const nlohmann::ordered_json cells = json["cells"];
  json.erase("cells");
  std::string text = json.dump(1);
  text.resize(text.size() - 2);  // the end of the object, on a line of its own
  text += ",\n \"cells\": [";
  for (size_t i = 0; i < cells.size(); ++i) text += (i > 0 ? ",\n  " : "\n  ") + cells[i].dump();
  return text + "\n ]\n}\n";
}

MatrixCounts count(const std::vector<CellRun>& runs) {
  MatrixCounts counts;
  for (const CellRun& run : runs) {
    counts.pass += run.result.verdict == CellVerdict::kPass;
    counts.fail += run.result.verdict == CellVerdict::kFail;
    counts.missed += run.result.verdict == CellVerdict::kMissed;
    counts.empty += run.result.verdict == CellVerdict::kEmpty;
  }
  return counts;
}

std::string table(const std::vector<CellRun>& runs) {
  constexpr size_t kName = 22, kColumn = 15;
  const auto padded = [](const std::string& value, size_t width) {
    // '·' is one column and two bytes.
    const size_t columns = value.size() - (value.rfind("·", 0) == 0 ? 1 : 0);
    return value + std::string(columns < width ? width - columns : 1, ' ');
  };
  Notes notes;
  std::ostringstream text;
  text << padded("", kName);
  for (const Moment moment : moments()) text << padded(name(moment), kColumn);
  text << "\n";
  for (const FaultRow* row : rows_of(runs)) {
    text << padded(row->name, kName);
    for (const Moment moment : moments()) {
      const Field field = field_of(runs, *row, moment);
      text << padded(shown(field, notes.letter(field.note())), kColumn);
    }
    text << "\n";
  }
  for (size_t i = 0; i < notes.reasons().size(); ++i)
    text << "  " << notes.letter(notes.reasons()[i]) << "  " << notes.reasons()[i] << "\n";
  failures(runs, "  ✗ ", text);
  text << totals(runs) << "\n";
  return text.str();
}

std::string markdown(const std::vector<CellRun>& runs, const nlohmann::ordered_json& provenance) {
  Notes notes;
  std::ostringstream text;
  text << "# Fault matrix\n\nEach field: how many of its cells hold, of the operations × ends (sender, "
          "receiver, both) that were run.\n\n| fault |";
  for (const Moment moment : moments()) text << " " << name(moment) << " |";
  text << "\n|---|";
  for (size_t i = 0; i < moments().size(); ++i) text << "---|";
  text << "\n";
  for (const FaultRow* row : rows_of(runs)) {
    text << "| `" << row->name << "` |";
    for (const Moment moment : moments()) {
      const Field field = field_of(runs, *row, moment);
      text << " " << shown(field, notes.letter(field.note())) << " |";
    }
    text << "\n";
  }
  text << "\n";
  for (size_t i = 0; i < notes.reasons().size(); ++i)
    text << "* " << notes.letter(notes.reasons()[i]) << ": " << notes.reasons()[i] << "\n";
  text << "\n" << totals(runs) << "\n";
  std::ostringstream failed;
  failures(runs, "* ", failed);
  if (!failed.str().empty()) text << "\nCells that do not hold:\n\n" << failed.str();
  text << "\nFrom:";
  for (const auto& [key, value] : provenance.items())
    text << " " << key << " " << (value.is_string() ? value.get<std::string>() : value.dump()) << ";";
  text << "\n";
  return text.str();
}

nlohmann::ordered_json to_json(const std::vector<CellRun>& runs, const nlohmann::ordered_json& provenance) {
  const MatrixCounts all = count(runs);
  nlohmann::ordered_json json;
  json["schema_version"] = 1;
  json["provenance"] = provenance;
  json["counts"] = {{"run", all.run()},
                    {"pass", all.pass},
                    {"fail", all.fail},
                    {"missed", all.missed},
                    {"empty", all.empty}};
  nlohmann::ordered_json faults;
  for (const FaultRow* row : rows_of(runs)) faults[row->name] = row->parameters;
  json["faults"] = faults;
  json["empty"] = nlohmann::ordered_json::array();
  for (const FaultRow* row : rows_of(runs))
    for (const Moment moment : moments()) add_empty(json["empty"], *row, moment);
  json["cells"] = nlohmann::ordered_json::array();
  for (const CellRun& run : runs) {
    if (run.result.verdict == CellVerdict::kEmpty) continue;
    const CellResult& r = run.result;
    nlohmann::ordered_json cell = {
        {"cell", run.cell.name()}, {"verdict", name(r.verdict)}, {"outcome", r.outcome},
        {"struck", r.struck},      {"attempts", r.attempts},     {"migrations", r.migrations},
        {"replayed", r.replayed},  {"checked", r.checked},       {"wrong", r.wrong},
        {"lost", r.lost},          {"duplicated", r.duplicated}};
    if (!r.why.empty()) cell["why"] = in_brief(r.why);
    if (r.outcome == "error") cell["error_ms"] = double(int64_t(r.error_ms * 10)) / 10;
    json["cells"].push_back(std::move(cell));
  }
  return json;
}

}  // namespace r2bench::matrix
