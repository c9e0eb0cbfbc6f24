// SPDX-License-Identifier: Apache-2.0
// The keys of the engine exec, and what they cannot be combined with.
#include <chrono>
#include <regex>
#include <utility>

#include "harness/scenario/sections.h"

namespace r2bench {
namespace {

/// What the command decides by itself.
constexpr const char* kNotForCommands[] = {
    "op",      "dtype",    "redop",    "bytes",      "iters",   "warmup", "channels",      "groups",
    "collnet", "in_place", "verify",   "plugin_abi", "library", "graph",  "communicators", "group_calls",
    "copies",  "renew",    "register", "blocking"};
constexpr auto kStall = std::chrono::seconds(60);  // a program may be silent for long while it starts

void read_command(Document& document, MapReader& map, ExecSettings& exec) {
  const YAML::Node command = map.get("command");
  if (!map.has("command")) {
    document.report(map.node(),
                    "'engine: exec' needs 'command': what to run, for example 'command: [all_reduce_perf, "
                    "-b, 1M, -e, 1G]'");
  } else if (command.IsSequence()) {
    for (const YAML::Node& word : command) {
      if (!word.IsScalar())
        return document.report(
            word, std::string("each word of 'command' must be a text, but this is ") + kind_of(word));
      if (holds_nul(document, word)) return;
      exec.arguments.push_back(word.Scalar());
    }
    if (exec.arguments.empty() || exec.arguments.front().empty())
      document.report(command, "'command' is empty");
  } else if (const auto text = map.text("command")) {
    if (text->find_first_not_of(" \t\n") == std::string::npos)
      return document.report(command, "'command' is empty");
    exec.arguments = {"/bin/sh", "-c", *text};
  }
}

std::string read_expression(Document& document, MapReader& map, const char* key) {
  const std::string text = map.text(key).value_or("");
  if (map.has(key) && text.empty()) document.report(map.get(key), std::string("'") + key + "' is empty");
  try {
    std::regex expression(text);
  } catch (const std::regex_error& error) {
    document.report(map.get(key),
                    std::string("'") + key + "' is no regular expression (ECMAScript): " + error.what());
  }
  return text;
}

}  // namespace

void read_exec_keys(Document& document, MapReader& map, Workload& workload) {
  for (const char* key : kNotForCommands)
    if (map.has(key))
      document.report(map.get(key), std::string("'") + key +
                                        "' is not for 'engine: exec': the command itself decides that");
  ExecSettings& exec = workload.exec;
  read_command(document, map, exec);
  exec.nccl_tests = map.choice("prints", {"nccl-tests"}, "kind of output").has_value();
  exec.begin = read_expression(document, map, "begin");
  exec.iteration = read_expression(document, map, "iteration");
  if (exec.nccl_tests)
    for (const char* key : {"begin", "iteration"})
      if (map.has(key))
        document.report(
            map.get(key),
            std::string("'") + key +
                "' and 'prints: nccl-tests' exclude each other: its table says when rows begin and end");
  workload.nccl.transport = read_transport(map).value_or(workload.nccl.transport);
  workload.nccl.mps = map.boolean("mps").value_or(workload.nccl.mps);
  workload.verify = exec.nccl_tests;
  workload.iters = 0;  // as many as there are
  workload.warmup = 0;
}

void check_exec(Document& document, const YAML::Node& root, const Scenario& scenario) {
  check_transports(document, root, scenario);
  if (scenario.pairs > 0)
    document.report(std::as_const(root)["pairs"],
                    "'pairs' compares operations of equal size; of a command only its output is known");
}

std::chrono::nanoseconds default_stall(const Workload& workload) {
  return workload.engine == Engine::kExec ? kStall : Timeouts{}.stall;
}

}  // namespace r2bench
