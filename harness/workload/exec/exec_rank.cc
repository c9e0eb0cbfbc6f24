// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/exec/exec_rank.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <system_error>

#include "harness/launch/process.h"
#include "harness/workload/cpu/rank_config.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

using namespace std::chrono_literals;

namespace {
constexpr auto kLook = 20ms;
constexpr auto kTerminateBound = 2s;  // then the runner kills

bool is_users(const std::string& variable) {
  return variable.starts_with("MASTER_") || variable == "PYTHONUNBUFFERED";
}
}  // namespace

int ExecRank::run() {
  int exit_code = kRankOk;
  try {
    const nlohmann::json message = talk_.wait_for_config();
    label_ = message.at("label");
    options_ = ExecOptions::from_json(message.at("exec"));
    talk_.say({{"type", "hello"},
               {"pid", getpid()},
               {"plugin", options_.network},
               {"abi", 0},
               {"devices", nlohmann::json::array()}});
    talk_.say(
        {{"type", "handles"}, {"handles", nlohmann::json::array()}, {"shifts", nlohmann::json::array()}});
    talk_.wait_for_handles();
    talk_.say({{"type", "ready"}});
    talk_.wait_for_start();
    talk_.say({{"type", "warm"}, {"time_ns", r2ccl::now_ns()}});
    talk_.wait_for_grant(0);  // faults are armed: the command begins
    exit_code = run_command();
    if (exit_code == kRankOk) talk_.wait_for_close();
  } catch (const RunnerTalk::Aborted&) {
    talk_.say({{"type", "aborted"}});
    exit_code = kRankAborted;
  } catch (const std::exception& e) {
    exit_code = fail("setup", e.what(), kRankSetupError);
  }
  command_.reset();
  talk_.say({{"type", "closed"}});
  fflush(nullptr);
  _exit(exit_code);
}

int ExecRank::fail(const char* kind, const std::string& text, int exit_code) {
  fprintf(stderr, "r2bench: %s: %s\n", label_.c_str(), text.c_str());
  talk_.say({{"type", "error"}, {"kind", kind}, {"text", text}, {"time_ns", r2ccl::now_ns()}});
  return exit_code;
}

void ExecRank::hear_line(OutputReader& reader, const std::string& line) {
  printf("%s\n", line.c_str());
  const OutputReader::Found found = reader.read(line);
  nlohmann::json message = {{"type", "printed"}, {"time_ns", r2ccl::now_ns()}};
  if (found.begun) message["begun"] = true;
  if (found.iteration) message["iteration"] = true;
  talk_.say(message);  // each line shows the runner that the command is alive
}

int ExecRank::run_command() {
  auto environment = current_environment();
  environment.erase("R2BENCH_CONTROL");
  for (const auto& [variable, value] : options_.place) {
    // The shell's RANK would be the rank of every copy; torchrun, for example, sets it for r2bench itself.
    if (is_users(variable))
      environment.try_emplace(variable, value);
    else
      environment[variable] = value;
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  OutputReader reader(options_);
  Command& command = command_.emplace(options_.arguments, environment);
  if (reader.begins_at_once())
    talk_.say({{"type", "printed"}, {"time_ns", r2ccl::now_ns()}, {"begun", true}});

  // A process that the command has left behind may keep the output open, or go on printing: the command's
  // own end is the rank's.
  bool open = true;
  std::optional<int> status;
  while (!(status = command.ended()) && !talk_.aborted())
    if (!open || !(open = command.read(kLook, [&](const std::string& line) { hear_line(reader, line); })))
      usleep(1000);
  const uint64_t ended_ns = r2ccl::now_ns();
  if (talk_.aborted()) {
    command.terminate();
    const auto until = std::chrono::steady_clock::now() + kTerminateBound;
    while (!(status = command.ended()) && std::chrono::steady_clock::now() < until) usleep(1000);
  }
  if (open) command.read_rest([&](const std::string& line) { hear_line(reader, line); });
  nlohmann::json message = {{"type", "command_ended"}, {"time_ns", ended_ns}, {"printed", reader.printed()}};
  if (status && WIFEXITED(*status)) message["exit_code"] = WEXITSTATUS(*status);
  if (status && WIFSIGNALED(*status)) message["signal"] = WTERMSIG(*status);
  talk_.say(message);
  if (talk_.aborted()) {
    report(reader, "correctness");
    throw RunnerTalk::Aborted{};
  }
  if (status && *status == 0) {
    report(reader, "finished");
    return kRankOk;
  }
  report(reader, "correctness");
  return fail("plugin",
              "the command of " + label_ + " ended with " + how_it_ended(*status) +
                  (reader.last_words().empty() ? "" : "; " + reader.last_words()),
              kRankPluginError);
}

void ExecRank::report(const OutputReader& reader, const char* type) {
  talk_.say(
      {{"type", type}, {"wrong", reader.wrong()}, {"checked", reader.checked()}, {"checked_iterations", 0}});
}

}  // namespace r2bench
