// SPDX-License-Identifier: Apache-2.0
#include "harness/report/timeline.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/report/json.h"

namespace r2bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

double ms_since(uint64_t time_ns, uint64_t start_ns) {
  return (static_cast<double>(time_ns) - static_cast<double>(start_ns)) * 1e-6;
}

/// Whole microseconds are enough for a picture, and make a far smaller file.
double rounded(double value, double step) { return std::round(value / step) * step; }

OrderedJson mode_of(const ModeResult& mode) {
  const Timeline& timeline = mode.timeline;
  OrderedJson json;
  json["mode"] = mode.mode;
  json["bin_ms"] = timeline.bin_ms;
  json["end_ms"] =
      timeline.end_ns == 0 ? OrderedJson(nullptr) : OrderedJson(ms_since(timeline.end_ns, timeline.start_ns));
  OrderedJson time = OrderedJson::array();
  OrderedJson gbps = OrderedJson::array();
  OrderedJson open = OrderedJson::array();
  for (const TimelinePoint& point : timeline.total) {
    time.push_back(rounded(ms_since(point.time_ns, timeline.start_ns), 1e-3));
    gbps.push_back(rounded(point.gbps, 1e-4));
    open.push_back(rounded(point.open ? point.open_share : 0.0, 1e-3));
  }
  json["total"] = {{"time_ms", time}, {"gbps", gbps}, {"open", open}};
  time = OrderedJson::array();
  OrderedJson limit = OrderedJson::array();
  for (const LimitPoint& point : timeline.limits) {
    time.push_back(rounded(ms_since(point.time_ns, timeline.start_ns), 1e-3));
    limit.push_back(rounded(point.limit, 1e-4));
  }
  json["limits"] = {{"time_ms", time}, {"limit", limit}};
  time = OrderedJson::array();
  OrderedJson bytes = OrderedJson::array();
  OrderedJson node = OrderedJson::array();
  OrderedJson nic = OrderedJson::array();
  for (const Timeline::Raw& raw : timeline.raw) {
    time.push_back(rounded(ms_since(raw.time_ns, timeline.start_ns), 1e-3));
    bytes.push_back(raw.bytes);
    node.push_back(raw.node);
    nic.push_back(raw.nic == 0xffff ? OrderedJson(nullptr) : OrderedJson(raw.nic));
  }
  json["raw"] = {{"time_ms", time}, {"bytes", bytes}, {"node", node}, {"nic", nic}};
  return json;
}

}  // namespace

void TimelineReporter::write(const Report& report, std::ostream& out) const {
  OrderedJson json;
  json["schema_version"] = kResultSchemaVersion;
  json["scenario"] = report.result.scenario;
  json["modes"] = OrderedJson::array();
  for (const ModeResult& mode : report.result.modes) json["modes"].push_back(mode_of(mode));
  out << json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
}

}  // namespace r2bench
