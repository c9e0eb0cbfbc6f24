// SPDX-License-Identifier: Apache-2.0
#include "harness/run/rank_link.h"

#include <algorithm>

#include "harness/base/json_text.h"

namespace r2bench {

void add_fact(std::string& all, const std::string& value, const std::string& label) {
  const bool is_first = all == value || all.starts_with(value + "; ");
  const bool is_another = all.ends_with(": " + value) || all.find(": " + value + ";") != std::string::npos;
  if (all.empty())
    all = value;
  else if (!is_first && !is_another)
    all += "; " + label + ": " + value;
}

size_t RankLink::poll() {
  size_t count = 0;
  while (auto message = port_ ? port_->receive() : std::nullopt) {
    take(*message);
    ++count;
  }
  return count;
}

void RankLink::take(const nlohmann::json& message) {
  const std::string type = message.value("type", "");
  if (message.contains("warnings")) warnings = message["warnings"].get<std::vector<std::string>>();
  if (type == "hello") {
    hello = true;
    plugin_name = message.value("plugin", "");
    plugin_abi = message.value("abi", 0);
    devices = message["devices"].get<std::vector<std::string>>();
    facts = message.value("facts", facts);
  } else if (type == "handles") {
    handles = message["handles"];
    shifts = message["shifts"].get<std::vector<size_t>>();
  } else if (type == "ready") {
    ready = true;
  } else if (type == "prepared") {
    prepared = message.value("iteration", uint64_t{0}) + 1;
  } else if (type == "warm") {
    warm = true;
  } else if (type == "aborted") {
    aborted = true;
  } else if (type == "printed") {
    const bool begun = message.value("begun", false), iteration = message.value("iteration", false);
    if (begun || iteration) printed.push_back({message.value("time_ns", uint64_t{0}), begun, iteration});
  } else if (type == "command_ended") {
    command = CommandResult{message.value("exit_code", -1), message.value("signal", 0),
                            json_text(message.value("printed", nlohmann::json::object()))};
    command_ended_ns = message.value("time_ns", uint64_t{0});
  } else if (type == "renewed") {
    renewal = RenewalResult{message.value("iteration", uint64_t{0}), message.value("operation_open", false),
                            message.value("ranks", 0), message.value("ms", 0.0),
                            message.value("time_ns", uint64_t{0})};
  } else if (type == "slept") {
    slept.emplace_back(message.value("from_ns", uint64_t{0}), message.value("to_ns", uint64_t{0}));
  } else if (type == "error" && !has_error) {
    has_error = true;
    error = message.value("text", "");
    error_kind = message.value("kind", "");
    error_ns = message.value("time_ns", uint64_t{0});
    plugin_words = message.value("plugin_words", "");
    if (plugin_words.empty() && !warnings.empty()) plugin_words = warnings.back();
  } else if (type == "correctness" || type == "finished") {
    correctness.wrong_elements = message.value("wrong", uint64_t{0});
    correctness.duplicated = message.value("duplicated", uint64_t{0});
    correctness.lost = message.value("lost", uint64_t{0});
    correctness.size_errors = message.value("size_errors", uint64_t{0});
    correctness.checked_elements = message.value("checked", uint64_t{0});
    correctness.checked_iterations = message.value("checked_iterations", uint64_t{0});
    correctness.messages = message.value("messages", uint64_t{0});
    correctness.collnet_operations = message.value("collnet_operations", uint64_t{0});
    cpu_ns = message.value("cpu_ns", uint64_t{0});
    cpu_by_side_ns = message.value("cpu_by_side_ns", std::vector<uint64_t>{});
    finished = finished || type == "finished";
  }
}

}  // namespace r2bench
