// SPDX-License-Identifier: Apache-2.0
#include "harness/real/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "harness/base/json_text.h"
#include "harness/launch/marked_processes.h"
#include "harness/real/shell.h"
#include "harness/real/undo_list.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kCommandLimit{40'000};  // a PCI rescan, an ssh to a switch
constexpr std::chrono::milliseconds kTryAgain{10'000};

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

/// How it ended, in words that follow its name.
std::string ending(const ShellResult& result) {
  if (!result.started) return "could not be started: " + result.output;
  return (result.late ? "took longer than allowed and was killed"
                      : "ended with " + std::to_string(result.exit_code)) +
         (result.output.empty() ? "" : ": " + first_line_with(result.output, ""));
}

std::string told(const std::string& command, const ShellResult& result) {
  return "`" + command + "` " + ending(result);
}

/// What a check answers: 0 is yes, up to here is no. Beyond it timeout(1) has ended it (124) or could not run
/// it (125), as the shell could not (126, 127), a signal has ended it (128 and its number), or ssh has no
/// connection (255).
constexpr int kLastNo = 123;

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
      const bool gone = !there && (errno == ENOENT || errno == ENOTDIR);
      said = probe.of + (there  ? " is there"
                         : gone ? " is gone"
                                : std::string(" cannot be looked at: ") + strerror(errno));
      return probe.kind == Probe::Kind::kPathThere ? there : gone;
    }
    case Probe::Kind::kOutputHas:
    case Probe::Kind::kOutputLacks: {
      const ShellResult result = run_shell_or_tell(probe.of, limit);
      const bool has = result.output.find(probe.wanted) != std::string::npos;
      said = "`" + probe.of + "` says: " + first_line_with(result.output, probe.wanted);
      return result.exit_code == 0 && has == (probe.kind == Probe::Kind::kOutputHas);
    }
    case Probe::Kind::kSucceeds:
    case Probe::Kind::kFails: {
      const ShellResult result = run_shell_or_tell(probe.of, limit);
      const bool answers = result.started && !result.late && result.exit_code <= kLastNo;
      said = answers ? "`" + probe.of + "` ended with " + std::to_string(result.exit_code)
                     : "the check `" + probe.of + "` could not run: it " + ending(result) +
                           "; a check ends with 0 if the port is cut, with 1 to 123 if it is not";
      return answers && (result.exit_code == 0) == (probe.kind == Probe::Kind::kSucceeds);
    }
  }
  return false;
}

}  // namespace

/// With `failed`, a command that fails does not keep the following ones from being run. The probe tells what
/// became of the first one; all others that fail are in `failed`.
Guard::Done Guard::run(const std::vector<std::string>& commands, const Probe& probe,
                       std::vector<std::string>* failed) {
  Done done;
  std::string failure;
  const auto look = [&] {
    if (done.time_ns != 0 || !is_cheap(probe)) return;
    std::string said;
    if (holds(probe, limit_, said)) done.time_ns = r2ccl::now_ns(), done.said = said;
  };
  for (const std::string& command : commands) {
    const ShellResult result = run_shell_or_tell(command, limit_, look);
    if (result.exit_code == 0) continue;
    if (failed != nullptr && &command != &commands.front()) {
      failed->push_back(command);
      continue;
    }
    failure = told(command, result);
    if (failed == nullptr) break;
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

nlohmann::json Guard::answer(uint64_t id, const std::string& did, const Done& done) {
  return {{"id", id}, {"did", did}, {"ok", done.ok}, {"time_ns", done.time_ns}, {"said", done.said}};
}

Guard::Guard(std::chrono::milliseconds limit, UndoList* list) : limit_(limit), list_(list) {
  if (list_ != nullptr) applied_ = list_->changes();
}

Guard::Done Guard::apply(uint64_t id, const Change& change) {
  if (list_ != nullptr) {
    try {
      list_->remember(id, change);
    } catch (const RealFaultError& error) {
      return {false, 0, error.what()};  // and nothing is changed
    }
  }
  applied_[id] = change;
  return run(change.apply, change.cut, nullptr);
}

std::optional<Guard::Done> Guard::undo(uint64_t id) {
  const Change change = applied_.at(id);
  std::erase_if(waiting_, [&](const Waiting& one) { return one.id == id; });
  Waiting one;
  one.id = id;
  one.done = run(change.undo, change.back, &one.failed);
  if (!one.done.ok) return one.done;
  if (one.failed.empty()) {
    forget(id, one.done);
    return one.done;
  }
  one.deadline = Clock::now() + std::min(limit_, kTryAgain);
  waiting_.push_back(std::move(one));
  return std::nullopt;
}

/// The machine has said that it is put back.
void Guard::forget(uint64_t id, Done& done) {
  applied_.erase(id);
  try {
    if (list_ != nullptr) list_->forget(id);
  } catch (const RealFaultError& error) {
    done.said += std::string("; ") + error.what();
  }
}

void Guard::retry(const Hear& hear) {
  for (size_t i = 0; i < waiting_.size();) {
    Waiting one = waiting_[i];  // a copy: what is thrown meanwhile leaves the list as it is
    const bool last = Clock::now() >= one.deadline;
    std::vector<std::string> failed;
    std::string failure;
    for (const std::string& command : one.failed) {
      const ShellResult result = run_shell_or_tell(command, limit_);
      if (result.exit_code == 0) continue;
      if (failure.empty()) failure = told(command, result);
      failed.push_back(command);
    }
    one.failed = std::move(failed);
    one.done.ok = one.failed.empty();
    if (!one.done.ok && !last) {
      waiting_[i++] = std::move(one);
      continue;
    }
    if (one.done.ok)
      forget(one.id, one.done);
    else
      one.done.said += "; " + failure;
    waiting_.erase(waiting_.begin() + ptrdiff_t(i));
    hear(answer(one.id, "undo", one.done));
  }
}

void Guard::begin(const nlohmann::json& request, const Hear& hear) {
  const uint64_t id = request.at("id");
  const std::string wanted = request.at("do");
  Done done;
  if (wanted == "apply") {
    const Change change = request.at("change");
    while (waits()) {  // it may be about the same NIC
      retry(hear);
      if (waits()) std::this_thread::sleep_for(kBetweenTries);
    }
    done = apply(id, change);
  } else if (wanted == "undo" && applied_.contains(id)) {
    const auto undone = undo(id);
    if (!undone) return;
    done = *undone;
  } else if (wanted == "undo" && request.value("again", false)) {
    done = {true, r2ccl::now_ns(), "it was reverted before the guard was killed"};
  } else {
    done.said = "there is no change " + std::to_string(id) + " to " + wanted;
  }
  hear(answer(id, wanted, done));
}

nlohmann::json Guard::carry_out(const nlohmann::json& request) {
  std::optional<nlohmann::json> mine;
  const auto hear = [&](const nlohmann::json& one) {
    if (one.at("id") == request.at("id") && one.at("did") == request.at("do")) mine = one;
  };
  for (begin(request, hear); !mine; retry(hear)) std::this_thread::sleep_for(kBetweenTries);
  return *mine;
}

void Guard::put_all_back(const std::function<void(const std::string&)>& tell) {
  const std::map<uint64_t, Change> all = applied_;
  const auto tell_of = [&](uint64_t id, bool ok, const std::string& said) {
    const Change& change = all.at(id);
    tell(change.where + (ok ? " is put back: " : " could NOT be put back: ") + said +
         (ok ? "" : "; by hand: " + change.in_words()));
  };
  for (auto last = all.rbegin(); last != all.rend(); ++last)
    if (const auto done = undo(last->first)) tell_of(last->first, done->ok, done->said);
  while (waits()) {
    std::this_thread::sleep_for(kBetweenTries);
    retry([&](const nlohmann::json& one) { tell_of(one.at("id"), one.at("ok"), one.at("said")); });
  }
}

namespace {

nlohmann::json answer_without_request(const char* did, bool ok, const std::string& said) {
  return {{"id", 0}, {"did", did}, {"ok", ok}, {"time_ns", 0}, {"said", said}};
}

/// Until the socket's other end is gone.
void serve(int socket, Guard& guard) {
  const auto send = [&](const nlohmann::json& answer) {
    const std::string line = json_text(answer) + "\n";
    [[maybe_unused]] const ssize_t n = write(socket, line.data(), line.size());  // its end is seen by read()
  };
  // What cannot be read or carried out is no reason to end.
  const auto work = [](const auto& what, const auto& otherwise) {
    try {
      what();
    } catch (const std::exception& error) {
      fprintf(stderr, "r2bench-real-guard: %s\n", error.what());
      otherwise(error.what());
    }
  };
  std::string pending;
  std::array<char, 4096> buffer{};
  for (;;) {
    pollfd wait{socket, POLLIN, 0};
    const int ready = poll(&wait, 1, guard.waits() ? int(Guard::kBetweenTries.count()) : -1);
    if (guard.waits()) work([&] { guard.retry(send); }, [](const char*) {});  // all that wait are tried again
    if (ready <= 0) continue;
    const ssize_t n = read(socket, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    pending.append(buffer.data(), size_t(n));
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1))
      work([&] { guard.begin(json_from(std::string_view(pending).substr(0, end)), send); },
           [&](const char* why) { send(answer_without_request("nothing", false, why)); });
  }
}

}  // namespace

int guard_main(int socket, const std::string& folder, const std::string& name) {
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) signal(each, SIG_IGN);
  blank_marks();  // it ends when its owner does, and not with a command that the owner runs below
  [[maybe_unused]] const int moved = chdir("/");
  fcntl(socket, F_SETFD, FD_CLOEXEC);  // a command that lingers must not hide the end of this process
  const auto tell_owner = [&](const char* did, bool ok, const std::string& said) {
    const std::string line = json_text(answer_without_request(did, ok, said)) + "\n";
    return write(socket, line.data(), line.size());
  };
  std::optional<UndoList> list;
  try {
    list.emplace(folder, name, std::chrono::seconds(5));
  } catch (const RealFaultError& error) {
    [[maybe_unused]] const ssize_t told = tell_owner("ready", false, error.what());
    return 1;
  }
  Guard guard(kCommandLimit, &*list);
  [[maybe_unused]] const ssize_t told = tell_owner("ready", true, "");
  serve(socket, guard);
  guard.put_all_back([](const std::string& text) { fprintf(stderr, "r2bench: %s\n", text.c_str()); });
  return guard.changed() == 0 ? 0 : 1;
}

}  // namespace r2bench
