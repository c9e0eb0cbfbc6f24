// SPDX-License-Identifier: Apache-2.0
#include "harness/report/timeline.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/report/json.h"

namespace r2bench {
namespace {

using Json = nlohmann::ordered_json;

double ms_since(uint64_t time_ns, uint64_t start_ns) {
  return (static_cast<double>(time_ns) - static_cast<double>(start_ns)) * 1e-6;
}

/// Whole microseconds are enough for a picture, and make a far smaller file.
double rounded(double value, double step) { return std::round(value / step) * step; }

Json mode_of(const ModeResult& mode) {
  const Timeline& timeline = mode.timeline;
  Json json;
  json["mode"] = mode.mode;
  json["bin_ms"] = timeline.bin_ms;
  json["end_ms"] = timeline.end_ns == 0 ? Json(nullptr) : Json(ms_since(timeline.end_ns, timeline.start_ns));
  Json time = Json::array();
  Json gbps = Json::array();
  Json open = Json::array();
  for (const TimelinePoint& point : timeline.total) {
    time.push_back(rounded(ms_since(point.time_ns, timeline.start_ns), 1e-3));
    gbps.push_back(rounded(point.gbps, 1e-4));
    open.push_back(rounded(point.open ? point.open_share : 0.0, 1e-3));
  }
  json["total"] = {{"time_ms", time}, {"gbps", gbps}, {"open", open}};
  time = Json::array();
  Json limit = Json::array();
  for (const LimitPoint& point : timeline.limits) {
    time.push_back(rounded(ms_since(point.time_ns, timeline.start_ns), 1e-3));
    limit.push_back(rounded(point.limit, 1e-4));
  }
  json["limits"] = {{"time_ms", time}, {"limit", limit}};
  time = Json::array();
  Json bytes = Json::array();
  Json node = Json::array();
  Json nic = Json::array();
  for (const Timeline::Raw& raw : timeline.raw) {
    time.push_back(rounded(ms_since(raw.time_ns, timeline.start_ns), 1e-3));
    bytes.push_back(raw.bytes);
    node.push_back(raw.node);
    nic.push_back(raw.nic == 0xffff ? Json(nullptr) : Json(raw.nic));
  }
  json["raw"] = {{"time_ms", time}, {"bytes", bytes}, {"node", node}, {"nic", nic}};
  return json;
}

}  // namespace

void TimelineReporter::write(const Report& report, std::ostream& out) const {
  Json json;
  json["schema_version"] = kResultSchemaVersion;
  json["scenario"] = report.result.scenario;
  json["modes"] = Json::array();
  for (const ModeResult& mode : report.result.modes) json["modes"].push_back(mode_of(mode));
  out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace r2bench
