// SPDX-License-Identifier: Apache-2.0
#include "harness/report/html.h"

#include <array>
#include <utility>

#include "harness/report/page_sources.h"

namespace r2bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// JSON inside <script>: as ASCII, and without any character that HTML reads as markup.
std::string inside_script(const OrderedJson& json) {
  std::string escaped;
  for (const char c : json.dump(-1, ' ', true, OrderedJson::error_handler_t::replace)) {
    switch (c) {
      case '<':
        escaped += "\\u003c";
        break;
      case '>':
        escaped += "\\u003e";
        break;
      case '&':
        escaped += "\\u0026";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string escaped_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped += c;
  }
  return escaped;
}

OrderedJson data_of(const StoredRun& run, size_t most_events) {
  OrderedJson json;
  const auto folder = run.file.parent_path().filename();
  json["name"] = folder.empty() ? run.result["scenario"].get<std::string>() : folder.string();
  json["file"] = run.file.string();
  json["result"] = run.result;
  json["timeline"] = run.timeline;
  json["has_events"] = run.has_events;
  json["events"] = OrderedJson::array();
  for (const auto& event : run.events) {
    if (json["events"].size() == most_events) break;
    OrderedJson row = OrderedJson::array();
    for (const char* column : {"mode", "at_ms", "source", "event", "text"})
      row.push_back(OrderedJson(event[column]));
    json["events"].push_back(std::move(row));
  }
  size_t total = run.events.size();
  for (const auto& mode : run.result["runs"])
    total += mode.contains("events") ? mode["events"].value("left_out", size_t{0}) : 0;
  json["events_total"] = total;
  return json;
}

}  // namespace

std::string to_html(const std::vector<StoredRun>& runs, size_t most_events) {
  OrderedJson data;
  data["runs"] = OrderedJson::array();
  std::string title = "r2bench report:";
  for (const StoredRun& run : runs) {
    data["runs"].push_back(data_of(run, most_events));
    title += " " + run.result["scenario"].get<std::string>() + " " +
             run.result["verdict"].get<std::string>() + (&run == &runs.back() ? "" : ",");
  }
  const std::array<std::pair<std::string, std::string>, 4> parts{
      {{"{{title}}", escaped_text(title)},
       {"{{style}}", kPageStyle},
       {"{{data}}", inside_script(data)},
       {"{{script}}", std::string(kPageTimeline) + kPageScript}}};
  std::string page = kPageFrame;
  // In order of their places, so that a part that holds the word of another one is not filled.
  size_t from = 0;
  for (const auto& [word, text] : parts) {
    const size_t at = page.find(word, from);
    page.replace(at, word.size(), text);
    from = at + text.size();
  }
  return page;
}

}  // namespace r2bench
