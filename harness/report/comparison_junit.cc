// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/report/comparison_report.h"
#include "harness/report/comparison_words.h"
#include "harness/report/xml.h"

namespace r2bench {

std::string comparison_junit(const SampleComparison& comparison) {
  const auto count = [&](Shift change) {
    return std::to_string(std::count_if(comparison.rows.begin(), comparison.rows.end(),
                                        [&](const ComparisonRow& row) { return row.change == change; }));
  };
  std::string text =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"r2bench compare\" "
      "tests=\"" +
      std::to_string(comparison.rows.size()) + "\" failures=\"" + count(Shift::kWorse) + "\" errors=\"" +
      count(Shift::kUnknown) + "\">\n    <properties>\n";
  text += "      <property name=\"before\" value=\"" + xml_escaped(comparison.before) + "\"/>\n";
  text +=
      "      <property name=\"after\" value=\"" + xml_escaped(comparison.after) + "\"/>\n    </properties>\n";
  for (const ComparisonRow& row : comparison.rows) {
    text += "    <testcase classname=\"" + xml_escaped(row.scenario + "." + row.mode) + "\" name=\"" +
            xml_escaped(row.metric) + "\"";
    const std::string message = xml_escaped(sentence(row));
    switch (row.change) {
      case Shift::kSame:
      case Shift::kBetter:
        text += "/>\n";
        break;
      case Shift::kWorse:
        text += ">\n      <failure message=\"" + message + "\"/>\n    </testcase>\n";
        break;
      case Shift::kUnknown:
        text += ">\n      <error type=\"unknown\" message=\"" + message + "\"/>\n    </testcase>\n";
        break;
    }
  }
  if (comparison.rows.empty())
    text +=
        "    <testcase classname=\"r2bench\" name=\"comparison\"><error type=\"unknown\" message=\"there is "
        "nothing to compare\"/></testcase>\n";
  return text + "  </testsuite>\n</testsuites>\n";
}

}  // namespace r2bench
