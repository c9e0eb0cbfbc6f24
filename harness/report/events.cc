// SPDX-License-Identifier: Apache-2.0
#include "harness/report/events.h"

#include <nlohmann/json.hpp>
#include <ostream>

namespace r2bench {

void EventsReporter::write(const Report& report, std::ostream& out) const {
  using OrderedJson = nlohmann::ordered_json;
  for (const ModeResult& mode : report.result.modes) {
    for (const LoggedEvent& event : mode.events) {
      OrderedJson json;
      json["mode"] = mode.mode;
      json["at_ms"] =
          (static_cast<double>(event.time_ns) - static_cast<double>(mode.timeline.start_ns)) * 1e-6;
      json["time_ns"] = event.time_ns;
      json["source"] = event.source;
      json["event"] = event.name;
      json["text"] = event.text;
      if (event.nic >= 0) json["nic"] = event.nic;
      if (event.channel >= 0) json["channel"] = event.channel;
      json["a"] = event.a;
      json["b"] = event.b;
      json["c"] = event.c;
      out << json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
    }
    if (mode.events_left_out > 0)
      out << OrderedJson{{"mode", mode.mode}, {"event", kEventsLeftOut}, {"a", mode.events_left_out}}.dump()
          << "\n";
  }
}

}  // namespace r2bench
