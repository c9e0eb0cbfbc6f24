// SPDX-License-Identifier: Apache-2.0
#include "harness/real/guard.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "harness/real/shell.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kCommandLimit{40'000};  // a PCI rescan, an ssh to a switch

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  return file >> word ? word : "";
}

std::string first_line_with(const std::string& text, const std::string& what) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(what) != std::string::npos) return line;
  return text.substr(0, text.find('\n'));
}

bool is_cheap(const Probe& probe) {
  return probe.kind == Probe::Kind::kFileSays || probe.kind == Probe::Kind::kPathGone ||
         probe.kind == Probe::Kind::kPathThere;
}

/// `said`: what the machine answered.
bool holds(const Probe& probe, std::chrono::milliseconds limit, std::string& said) {
  switch (probe.kind) {
    case Probe::Kind::kFileSays: {
      const std::string word = first_word(probe.of);
      said = probe.of + " says " + (word.empty() ? "nothing" : word);
      return word == probe.wanted;
    }
    case Probe::Kind::kPathGone:
    case Probe::Kind::kPathThere: {
      struct stat status {};
      const bool there = stat(probe.of.c_str(), &status) == 0;
      said = probe.of + (there ? " is there" : " is gone");
      return there == (probe.kind == Probe::Kind::kPathThere);
    }
    case Probe::Kind::kOutputHas:
    case Probe::Kind::kOutputLacks: {
      const ShellResult result = run_shell(probe.of, limit);
      const bool has = result.output.find(probe.wanted) != std::string::npos;
      said = "`" + probe.of + "` says: " + first_line_with(result.output, probe.wanted);
      return result.exit_code == 0 && has == (probe.kind == Probe::Kind::kOutputHas);
    }
    case Probe::Kind::kSucceeds:
    case Probe::Kind::kFails: {
      const ShellResult result = run_shell(probe.of, limit);
      said = "`" + probe.of + "` ended with " + std::to_string(result.exit_code);
      return (result.exit_code == 0) == (probe.kind == Probe::Kind::kSucceeds);
    }
  }
  return false;
}

}  // namespace

/// `to_the_end`: a command that fails does not keep the following ones from being run.
Guard::Done Guard::run(const std::vector<std::string>& commands, const Probe& probe, bool to_the_end) {
  Done done;
  std::string failure;
  const auto look = [&] {
    if (done.time_ns != 0 || !is_cheap(probe)) return;
    std::string said;
    if (holds(probe, limit_, said)) done.time_ns = r2ccl::now_ns(), done.said = said;
  };
  for (const std::string& command : commands) {
    const ShellResult result = run_shell(command, limit_, look);
    if (result.exit_code != 0) {
      if (failure.empty())
        failure = "`" + command + "` ended with " + std::to_string(result.exit_code) +
                  (result.output.empty() ? "" : ": " + first_line_with(result.output, ""));
      if (!to_the_end) break;
    }
  }
  // What only a command can tell has been so, at the latest, since the commands were through.
  const uint64_t through_ns = r2ccl::now_ns();
  const auto deadline = Clock::now() + limit_;
  while (done.time_ns == 0) {
    std::string said;
    if (holds(probe, limit_, said)) {
      done.time_ns = is_cheap(probe) ? r2ccl::now_ns() : through_ns;
      done.said = said;
    } else if (Clock::now() >= deadline || !failure.empty()) {
      done.said = (failure.empty() ? "" : failure + "; ") + said;
      return done;
    }
    if (done.time_ns == 0) std::this_thread::sleep_for(std::chrono::milliseconds(is_cheap(probe) ? 1 : 100));
  }
  done.ok = true;
  return done;
}

nlohmann::json Guard::carry_out(const nlohmann::json& request) {
  const uint64_t id = request.at("id");
  const std::string wanted = request.at("do");
  Done done;
  if (wanted == "apply") {
    const Change change = request.at("change");
    applied_[id] = change;
    done = run(change.apply, change.cut, false);
  } else if (const auto found = applied_.find(id); wanted == "undo" && found != applied_.end()) {
    done = run(found->second.undo, found->second.back, true);
    applied_.erase(found);
  } else {
    done.said = "there is no change " + std::to_string(id) + " to " + wanted;
  }
  return {{"id", id}, {"did", wanted}, {"ok", done.ok}, {"time_ns", done.time_ns}, {"said", done.said}};
}

void Guard::put_all_back(const std::function<void(const std::string&)>& tell) {
  while (!applied_.empty()) {
    const auto last = std::prev(applied_.end());
    const Done done = run(last->second.undo, last->second.back, true);
    tell(last->second.where + (done.ok ? " is put back: " : " could NOT be put back: ") + done.said +
         (done.ok ? "" : "; by hand: " + last->second.in_words()));
    applied_.erase(last);
  }
}

int guard_main(int socket) {
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) signal(each, SIG_IGN);
  [[maybe_unused]] const int moved = chdir("/");
  Guard guard(kCommandLimit);
  std::string pending;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t n = read(socket, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    pending.append(buffer.data(), size_t(n));
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      std::string answer;
      try {
        answer = guard.carry_out(nlohmann::json::parse(pending.substr(0, end))).dump() + "\n";
      } catch (const std::exception& error) {
        fprintf(stderr, "r2bench-real-guard: %s\n", error.what());
        answer =
            nlohmann::json{
                {"id", 0}, {"did", "nothing"}, {"ok", false}, {"time_ns", 0}, {"said", error.what()}}
                .dump() +
            "\n";
      }
      if (write(socket, answer.data(), answer.size()) < 0) break;  // the end of the socket is seen by read()
    }
  }
  size_t failed = 0;
  guard.put_all_back([&](const std::string& text) {
    fprintf(stderr, "r2bench: %s\n", text.c_str());
    failed += text.find("NOT") != std::string::npos;
  });
  return failed == 0 ? 0 : 1;
}

}  // namespace r2bench
