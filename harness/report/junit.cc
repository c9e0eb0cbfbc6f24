// SPDX-License-Identifier: Apache-2.0
#include "harness/report/junit.h"

#include <algorithm>
#include <ostream>

#include "harness/base/format.h"
#include "harness/report/xml.h"

namespace r2bench {
void JunitReporter::write(const Report& report, std::ostream& out) const {
  const auto count = [&](Verdict verdict) {
    return std::count_if(report.judged.expectations.begin(), report.judged.expectations.end(),
                         [&](const Judgement& j) { return j.verdict == verdict; });
  };
  double seconds = 0;
  for (const ModeResult& mode : report.result.modes) seconds += mode.duration_s;
  const std::string suite = xml_escaped(report.result.scenario);
  const size_t doubts = report.judged.doubts.size();
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      << "  <testsuite name=\"" << suite << "\" tests=\"" << report.judged.expectations.size() + doubts
      << "\" failures=\"" << count(Verdict::kFail) << "\" errors=\""
      << static_cast<size_t>(count(Verdict::kUnknown)) + doubts << "\" time=\"" << fixed(seconds, 3)
      << "\" timestamp=\"" << xml_escaped(report.result.started_at) << "\">\n    <properties>\n";
  const auto property = [&](const std::string& key, const std::string& value) {
    out << "      <property name=\"" << xml_escaped(key) << "\" value=\"" << xml_escaped(value) << "\"/>\n";
  };
  property("verdict", name(report.judged.verdict));
  property("evidence", report.result.evidence);
  property("seed", std::to_string(report.result.seed));
  property("source", report.result.source);
  out << "    </properties>\n";
  for (const Judgement& j : report.judged.expectations) {
    out << "    <testcase classname=\"" << suite << "." << xml_escaped(j.mode) << "\" name=\""
        << xml_escaped(j.metric) << "\"";
    if (j.line > 0) out << " file=\"" << xml_escaped(report.result.source) << "\" line=\"" << j.line << "\"";
    const std::string text =
        "wanted " + j.wanted + ", got " + j.got + (j.detail.empty() ? "" : ": " + j.detail);
    switch (j.verdict) {
      case Verdict::kPass:
        out << "/>\n";
        break;
      case Verdict::kFail:
        out << ">\n      <failure message=\"" << xml_escaped(text) << "\"/>\n    </testcase>\n";
        break;
      case Verdict::kUnknown:
        out << ">\n      <error type=\"unknown\" message=\"" << xml_escaped(text)
            << "\"/>\n    </testcase>\n";
        break;
    }
  }
  for (size_t i = 0; i < doubts; ++i) {
    out << "    <testcase classname=\"" << suite << "\" name=\"doubt " << i + 1
        << "\">\n      <error type=\"unknown\" message=\"" << xml_escaped(report.judged.doubts[i].text)
        << "\"/>\n    </testcase>\n";
  }
  out << "  </testsuite>\n</testsuites>\n";
}

}  // namespace r2bench
