// SPDX-License-Identifier: Apache-2.0
#include "harness/real/guard_link.h"

#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "harness/base/json_text.h"
#include "harness/launch/marked_processes.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

constexpr int kGuardFd = 3;
constexpr int kMostTakeovers = 5;  // a guard that cannot live is not started for ever
constexpr int kReadyMilliseconds = 15'000;

}  // namespace

std::string find_systemd_run() {
  if (geteuid() != 0 || access("/run/systemd/system", F_OK) != 0) return "";
  for (const char* path : {"/usr/bin/systemd-run", "/bin/systemd-run"})
    if (access(path, X_OK) == 0) return path;
  return "";
}

GuardLink::GuardLink(std::string program, std::string undo_folder, std::string systemd_run)
    : program_(std::move(program)),
      undo_folder_(std::move(undo_folder)),
      systemd_run_(std::move(systemd_run)) {
  static std::atomic<int> lists{0};
  // Process ids come again, in a container soon: what a killed program has left keeps a list of its own.
  list_ = std::to_string(getpid()) + "-" + std::to_string(++lists) + "-" + std::to_string(r2ccl::now_ns());
  if (!systemd_run_.empty()) {
    start(systemd_run_);
    if (not_ready().empty()) return;
    end();  // no bus, or a container whose systemd makes no scopes
    systemd_run_.clear();
  }
  start("");
  if (const std::string why = not_ready(); !why.empty()) {
    end();
    throw RealFaultError(why);
  }
}

GuardLink::~GuardLink() {
  for (;;) {
    const bool gone = pid_ < 0;
    close(socket_);
    int status = 0;
    while (!gone && waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    if (lost_ || (!gone && !WIFSIGNALED(status)) || takeovers_ >= kMostTakeovers) return;
    ++takeovers_;  // killed while it put things back: another one does the rest
    unanswered_.clear();
    try {
      start(systemd_run_);
    } catch (const std::system_error&) {
      return;
    }
  }
}

void GuardLink::start(const std::string& systemd_run) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kGuardFd);
  std::vector<std::string> words;
  if (!systemd_run.empty())
    words = {systemd_run,
             "--scope",
             "--quiet",
             "--collect",
             "--unit=r2bench-real-guard-" + list_ + "-" + std::to_string(takeovers_),
             "--"};
  words.insert(words.end(), {program_, std::to_string(kGuardFd), undo_folder_, list_});
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  const int error =
      posix_spawn(&pid_, raw[0], &actions, &attributes, raw.data(), environment_without_marks().data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    pid_ = -1;
    throw std::system_error(error, std::generic_category(), words[0]);
  }
  socket_ = ends[0];
}

std::string GuardLink::not_ready() {
  std::string line;
  pollfd wait{socket_, POLLIN, 0};
  while (line.empty() || line.back() != '\n') {
    char byte = 0;
    const int ready = poll(&wait, 1, kReadyMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || recv(socket_, &byte, 1, 0) != 1)
      return program_ + (ready == 0 ? " does not answer" : " ended at once");
    line += byte;
  }
  const auto json = json_from(line);
  return json.at("ok") ? "" : json.at("said").get<std::string>();
}

void GuardLink::end() {
  close(socket_);
  socket_ = -1;
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);  // it has changed nothing yet, or is gone
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

void GuardLink::take_over() {
  while (!lost_) {
    end();
    if (takeovers_ >= kMostTakeovers) {
      lost_ = true;
      return;
    }
    ++takeovers_;
    try {
      start(systemd_run_);
    } catch (const std::system_error&) {
      continue;
    }
    if (not_ready().empty()) break;
  }
  pending_.clear();
  for (nlohmann::json& request : unanswered_) {
    request["again"] = true;
    const std::string line = json_text(request) + "\n";
    (void)!::send(socket_, line.data(), line.size(), MSG_NOSIGNAL);  // a lost one is seen by answers()
  }
}

void GuardLink::send(const nlohmann::json& request) {
  if (lost_) return;
  unanswered_.push_back(request);
  const std::string line = json_text(request) + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::send(socket_, line.data() + at, line.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // answers() sees the end, and asks another guard
    at += size_t(n);
  }
}

void GuardLink::apply(uint64_t id, const Change& change) {
  send({{"do", "apply"}, {"id", id}, {"change", change}});
}

void GuardLink::undo(uint64_t id) { send({{"do", "undo"}, {"id", id}}); }

std::vector<GuardAnswer> GuardLink::answers() {
  std::array<char, 4096> buffer{};
  bool gone = false;
  while (!lost_ && !gone) {
    const ssize_t n = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) pending_.append(buffer.data(), size_t(n));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    gone = n <= 0;
  }
  std::vector<GuardAnswer> answers;
  for (size_t end; (end = pending_.find('\n')) != std::string::npos; pending_.erase(0, end + 1)) {
    const auto json = json_from(std::string_view(pending_).substr(0, end));
    const uint64_t id = json.at("id");
    answers.push_back({id, json.at("did") == "undo", json.at("ok"), json.at("time_ns"), json.at("said")});
    const auto asked = std::find_if(unanswered_.begin(), unanswered_.end(),
                                    [&](const nlohmann::json& request) { return request.at("id") == id; });
    if (asked != unanswered_.end()) unanswered_.erase(asked);
  }
  if (gone) take_over();
  return answers;
}

}  // namespace r2bench
