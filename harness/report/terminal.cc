// SPDX-License-Identifier: Apache-2.0
#include "harness/report/terminal.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ostream>

#include "harness/base/format.h"
#include "harness/judge/beside.h"
#include "harness/judge/held_up.h"
#include "harness/report/story.h"
#include "harness/report/table.h"

namespace r2bench {
namespace {

constexpr const char* kNone = "–";
constexpr const char* kOfRank = "no NIC was struck";  // by a signal to a rank: nothing is missing there

constexpr const char* kOwnRate =
    "recover counts to 90 % of this job's own rate before the fault times the limit; at the ports' full rate "
    "it may take longer";

/// Writes the sections; knows colours, so that the sections need not.
class Page {
 public:
  Page(const Report& report, const TextStyle& style, std::ostream& out)
      : report_(report), style_(style), out_(out) {}

  void write() {
    title();
    story();
    table_of_rows();
    table_of_recovery();
    table_of_overhead();
    table_of_sides();
    settings();
    expectations();
    verdict();
  }

 private:
  std::string paint(const char* code, const std::string& text) const {
    return style_.colour ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
  }
  std::string bold(const std::string& text) const { return paint("1", text); }
  std::string dim(const std::string& text) const { return paint("2", text); }
  std::string toned(Tone tone, const std::string& text) const {
    return tone == Tone::kGood ? paint("32", text) : tone == Tone::kBad ? paint("31", text) : text;
  }
  void section(const std::string& name) { out_ << "\n" << bold(name) << "\n"; }
  void print(const Table& table) {
    for (const std::string& line : table.header("  ")) {
      if (!line.empty()) out_ << dim(line) << "\n";
    }
    for (const std::string& line : table.rows("  ")) out_ << line << "\n";
  }

  void title() {
    const RunResult& result = report_.result;
    out_ << bold(result.scenario) << "  " << headline(report_.scenario) << "\n";
    out_ << dim("seed " + std::to_string(result.seed) + " · evidence: " + result.evidence + " · " +
                result.started_at)
         << "\n";
    if (!report_.scenario.description.empty()) {
      out_ << wrap(report_.scenario.description, style_.columns, 0) << "\n";
    }
  }

  void story() {
    const std::vector<StoryLine> lines = tell(report_.scenario, report_.result);
    if (lines.empty()) return;
    section("What happened");
    size_t mode_width = 0;
    size_t when_width = 0;
    for (const StoryLine& line : lines) {
      mode_width = std::max(mode_width, width(line.mode));
      when_width = std::max(when_width, width(line.when));
    }
    const size_t indent = 2 + mode_width + 2 + when_width + 2;
    std::string last;
    for (const StoryLine& line : lines) {
      out_ << "  " << bold(left(line.mode == last ? "" : line.mode, mode_width)) << "  "
           << right(line.when, when_width) << "  "
           << toned(line.tone, wrap(line.text, std::max<size_t>(40, style_.columns - indent), indent))
           << "\n";
      last = line.mode;
    }
  }

  void table_of_rows() {
    section("Throughput");
    using Align = Table::Align;
    Table table({{"mode", "", Align::kLeft},
                 {"size", "(B)"},
                 {"count", "(elements)"},
                 {"type", ""},
                 {"redop", ""},
                 {"root", ""},
                 {"time", "(us)"},
                 {"algbw", "(GB/s)"},
                 {"busbw", "(GB/s)"},
                 {"cpu", "(s/GB)"},
                 {"#wrong", ""},
                 {"iterations", ""},
                 {"before", "(Gbit/s)"},
                 {"after", "(Gbit/s)"}});
    for (const ModeResult& mode : report_.result.modes) {
      const NcclTestsRow& row = mode.row;
      const bool measured = row.iterations > 0;
      const Throughput& t = mode.throughput;
      table.add({mode.mode, std::to_string(row.size_bytes), std::to_string(row.count), row.type, row.redop,
                 std::to_string(row.root), measured ? fixed(row.time_us, 1) : kNone,
                 measured ? fixed(row.algbw, 2) : kNone, measured ? fixed(row.busbw, 2) : kNone,
                 mode.cpu.known() ? short_number(mode.cpu.per_gb()) : kNone,
                 mode.correctness.checked_elements > 0 ? std::to_string(row.wrong) : "N/A",
                 std::to_string(row.iterations),
                 t.before_gbps > 0 ? short_number(t.before_gbps) + star(t) : kNone,
                 t.rounds_measured > 0 ? short_number(t.after_gbps) : kNone});
    }
    print(table);
  }

  /// Behind a rate that the ports did not limit, and the recovery to it; lines below the table say why.
  static std::string star(const Throughput& t) { return held_up_at_faults(t).empty() ? "" : "*"; }

  static bool has_recovery(const ModeResult& mode) {
    return mode.recover_ms.n > 0 && mode.faults_unrecovered == 0;
  }

  /// "12.3", or "12.3 / 40.1" (median and maximum) of several.
  static std::string summary(const Distribution& d) {
    if (d.n == 0) return kNone;
    return d.n == 1 ? short_number(d.max) : short_number(d.p50) + " / " + short_number(d.max);
  }

  void table_of_recovery() {
    if (report_.scenario.faults.empty() && report_.scenario.rank_faults.empty()) return;
    const auto& modes = report_.result.modes;
    const bool several =
        std::any_of(modes.begin(), modes.end(), [](const ModeResult& m) { return m.detect_ms.n > 1; });
    section(several ? "Recovery (median / maximum)" : "Recovery");
    using Align = Table::Align;
    Table table({{"mode", "", Align::kLeft},
                 {"faults", "seen/of"},
                 {"sampled", ""},
                 {"detect", "(ms)"},
                 {"migrate", "(ms)"},
                 {"recover", "(ms)"},
                 {"blackout", "(ms)"},
                 {"floor", "(ms)"},
                 {"retained", "(of 1)"},
                 {"limit", "(of 1)"},
                 {"settled", "rounds/of"},
                 {"restored", "(of 1)"},
                 {"migrations", ""},
                 {"detected by", "", Align::kLeft}});
    for (const ModeResult& mode : modes) {
      std::string by;
      for (const auto& [who, count] : mode.detected_by) {
        by +=
            (by.empty() ? "" : ", ") + who + (mode.detected_by.size() > 1 ? " " + std::to_string(count) : "");
      }
      const Throughput& t = mode.throughput;
      table.add({mode.mode, std::to_string(mode.faults_witnessed) + "/" + std::to_string(mode.faults_planned),
                 std::to_string(mode.faults_sampled), summary(mode.detect_ms), summary(mode.migrate_ms),
                 has_recovery(mode)            ? summary(mode.recover_ms) + star(t)
                 : mode.faults_unrecovered > 0 ? "never"
                                               : kNone,
                 summary(mode.blackout_ms), mode.floor_ms > 0 ? short_number(mode.floor_ms) : kNone,
                 t.rounds_measured > 0 ? short_number(t.retained) + star(t) : kNone,
                 t.rounds > 0 ? short_number(t.limit) : kNone,
                 t.rounds_measured > 0
                     ? std::to_string(t.rounds_settled) + "/" + std::to_string(t.rounds_measured)
                     : kNone,
                 mode.restored.ratio ? fixed(*mode.restored.ratio, 3) : kNone,
                 std::to_string(mode.count("migrations")), by.empty() ? kNone : by});
    }
    print(table);
    for (const ModeResult& mode : modes) {
      for (const auto& [reason, count] : mode.faults_dropped)
        if (reason != kOfRank)
          out_ << dim(wrap("  " + mode.mode + ": " + std::to_string(count) + " not sampled: " + reason,
                           style_.columns, 4))
               << "\n";
      if (mode.rounds_at_end > 0)
        out_ << dim(wrap("  " + mode.mode + ": " + std::to_string(mode.rounds_at_end) +
                             " more rounds had no effect: they fired when the job was about to end",
                         style_.columns, 4))
             << "\n";
      if (mode.rounds_not_fired > 0)
        out_ << dim(wrap("  " + mode.mode + ": " + std::to_string(mode.rounds_not_fired) +
                             " more rounds that `repeat` plans did not fire: the job ended first, or the "
                             "fault was healed; they are not among the planned faults",
                         style_.columns, 4))
             << "\n";
      if (const std::string held = held_up_at_faults(mode.throughput); !held.empty()) {
        out_ << dim(wrap("  " + mode.mode + ": * " + held, style_.columns, 4)) << "\n";
        if (has_recovery(mode))
          out_ << dim(wrap("  " + mode.mode + ": * " + kOwnRate, style_.columns, 4)) << "\n";
      }
      if (mode.faults_recovered_after_heal > 0)
        out_ << dim("  " + mode.mode + ": " + std::to_string(mode.faults_recovered_after_heal) +
                    " recovered only once healed")
             << "\n";
    }
  }

  void table_of_overhead() {
    if (report_.result.overheads.empty()) return;
    section("Overhead without a fault");
    using Align = Table::Align;
    Table table({{"mode", "", Align::kLeft},
                 {"against", "", Align::kLeft},
                 {"pairs", ""},
                 {"time", "mean %"},
                 {"time", "upper 95 %"},
                 {"busbw loss", "mean %"},
                 {"busbw loss", "upper 95 %"},
                 {"cpu loss", "mean %"},
                 {"cpu loss", "upper 95 %"}});
    for (const Overhead& o : report_.result.overheads) {
      table.add({o.mode, o.against, std::to_string(o.pairs), fixed(o.mean_pct, 2), fixed(o.upper95_pct, 2),
                 fixed(o.loss_mean_pct, 2), fixed(o.loss_upper95_pct, 2),
                 o.cpu_pairs > 0 ? fixed(o.cpu_mean_pct, 2) : kNone,
                 o.cpu_pairs > 1 ? fixed(o.cpu_upper95_pct, 2) : kNone});
    }
    print(table);
  }

  /// Of modes whose operations take turns with another side's in the same job.
  void table_of_sides() {
    const auto& modes = report_.result.modes;
    if (std::none_of(modes.begin(), modes.end(), [](const ModeResult& m) { return m.beside.has_value(); }))
      return;
    section("Two sides in one job");
    using Align = Table::Align;
    Table table({{"mode", "", Align::kLeft},
                 {"beside", "", Align::kLeft},
                 {"copies", ""},
                 {"operations", "counted"},
                 {"time", "ratio"}});
    std::string unknown;
    for (const ModeResult& mode : modes) {
      if (!mode.beside) continue;
      const SidesCompared sides = compare_sides(mode, size_t(report_.scenario.workload.iters));
      table.add({mode.mode, mode.beside->against, std::to_string(mode.beside->copies),
                 std::to_string(sides.operations), sides.ratio ? fixed(*sides.ratio, 4) : kNone});
      if (!sides.ratio)
        unknown += "  " + wrap(mode.mode + ": " + sides.why_not, style_.columns - 2, 4) + "\n";
    }
    print(table);
    out_ << dim(unknown);
  }

  /// Settings that all modes share are said once; what differs stands with its mode.
  void settings() {
    const auto& modes = report_.result.modes;
    if (modes.empty()) return;
    section("Measured with");
    std::map<std::string, std::string> common = modes.front().settings;
    for (const ModeResult& mode : modes) {
      for (auto it = common.begin(); it != common.end();) {
        const auto found = mode.settings.find(it->first);
        it = found == mode.settings.end() || found->second != it->second ? common.erase(it) : std::next(it);
      }
    }
    const auto print = [&](const std::string& name, const std::string& text) {
      if (text.empty()) return;
      const size_t indent = 4 + width(name);
      out_ << dim("  " + name + "  " + wrap(text, style_.columns - indent, indent)) << "\n";
    };
    std::string all;
    for (const auto& [key, value] : common) all += key + "=" + value + " ";
    print("all modes", all);
    for (const ModeResult& mode : modes) {
      std::string own;
      for (const auto& [key, value] : mode.settings) {
        if (common.count(key) == 0) own += key + "=" + value + " ";
      }
      if (mode.wakeup_ms.n > 0) {
        own += (own.empty() ? "" : "· ") + std::string("wake-up p50 ") + milliseconds(mode.wakeup_ms.p50) +
               ", p99 " + milliseconds(mode.wakeup_ms.p99);
        if (mode.wakeup_ms.p99 > mode.wakeup_p99_ms)
          own += ", of which bounds allow " + milliseconds(mode.wakeup_p99_ms);
      }
      for (const HostResult& host : mode.hosts)
        own += (own.empty() ? "" : " · ") + std::string("host ") + host.name + " with " +
               std::to_string(host.nodes) + (host.nodes == 1 ? " node" : " nodes") + ", clock ± " +
               milliseconds(host.clock_bound_ms);
      print(mode.mode, own);
    }
  }

  void expectations() {
    const std::vector<Judgement>& all = report_.judged.expectations;
    if (all.empty()) return;
    section("Expected");
    size_t name_width = 0;
    size_t wanted_width = 0;
    for (const Judgement& j : all) {
      name_width = std::max(name_width, width(j.name()));
      wanted_width = std::max(wanted_width, width(wanted(j)));
    }
    for (const Judgement& j : all) {
      const char* mark = j.verdict == Verdict::kPass ? "✓" : j.verdict == Verdict::kFail ? "✗" : "?";
      const char* colour = j.verdict == Verdict::kPass ? "32" : j.verdict == Verdict::kFail ? "1;31" : "33";
      const size_t indent = 4 + name_width + 2 + wanted_width + 2;
      const bool explain = j.verdict != Verdict::kPass && !j.detail.empty();
      const std::string got =
          wrap(explain ? j.got + ": " + j.detail : j.got,
               std::max<size_t>(30, style_.columns - std::min(style_.columns, indent)), indent);
      out_ << "  " << paint(colour, mark) << " " << left(j.name(), name_width) << "  "
           << left(wanted(j), wanted_width) << "  "
           << (j.verdict == Verdict::kPass ? got : paint(colour, got)) << "\n";
    }
  }

  /// "<= floor + wakeup + 50 ms (55.1 ms)": names are followed by what they came to.
  static std::string wanted(const Judgement& j) {
    if (!j.wanted_value || j.wanted.find_first_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos)
      return j.wanted;
    const bool time = j.metric.find("_ms") != std::string::npos;
    const bool names = j.wanted.find("floor") != std::string::npos ||
                       j.wanted.find("wakeup") != std::string::npos ||
                       j.wanted.find("limit") != std::string::npos;
    if (!names) return j.wanted;
    return j.wanted + " (" + (time ? milliseconds(*j.wanted_value) : short_number(*j.wanted_value)) + ")";
  }

  void verdict() {
    const Judged& judged = report_.judged;
    out_ << "\n";
    for (const Doubt& doubt : judged.doubts) {
      out_ << "  " << paint("33", "? " + wrap(doubt.text, style_.columns - 4, 4)) << "\n";
    }
    const char* colour = judged.verdict == Verdict::kPass   ? "1;32"
                         : judged.verdict == Verdict::kFail ? "1;31"
                                                            : "1;33";
    const auto count = [&](Verdict v) {
      return std::to_string(std::count_if(judged.expectations.begin(), judged.expectations.end(),
                                          [&](const Judgement& j) { return j.verdict == v; }));
    };
    out_ << bold("Verdict: ") << paint(colour, name(judged.verdict)) << "  (" << count(Verdict::kPass)
         << " met, " << count(Verdict::kFail) << " not met, " << count(Verdict::kUnknown) << " unknown)\n";
  }

  const Report& report_;
  const TextStyle& style_;
  std::ostream& out_;
};

}  // namespace

void TerminalReporter::write(const Report& report, std::ostream& out) const {
  Page(report, style_, out).write();
}

}  // namespace r2bench
