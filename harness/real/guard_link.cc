// SPDX-License-Identifier: Apache-2.0
#include "harness/real/guard_link.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

extern char** environ;

namespace r2bench {
namespace {
constexpr int kGuardFd = 3;
}

GuardLink::GuardLink(const std::string& program) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kGuardFd);
  const std::string number = std::to_string(kGuardFd);
  const char* words[] = {program.c_str(), number.c_str(), nullptr};
  const int error =
      posix_spawn(&pid_, program.c_str(), &actions, &attributes, const_cast<char* const*>(words), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    throw std::system_error(error, std::generic_category(), program);
  }
  socket_ = ends[0];
}

GuardLink::~GuardLink() {
  close(socket_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void GuardLink::send(const std::string& line) {
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::send(socket_, line.data() + at, line.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      lost_ = true;
      return;
    }
    at += size_t(n);
  }
}

void GuardLink::apply(uint64_t id, const Change& change) {
  send(nlohmann::json{{"do", "apply"}, {"id", id}, {"change", change}}.dump() + "\n");
}

void GuardLink::undo(uint64_t id) { send(nlohmann::json{{"do", "undo"}, {"id", id}}.dump() + "\n"); }

std::vector<GuardAnswer> GuardLink::answers() {
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t n = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) {
      pending_.append(buffer.data(), size_t(n));
      continue;
    }
    if (n == 0) lost_ = true;
    if (n < 0 && errno == EINTR) continue;
    break;
  }
  std::vector<GuardAnswer> answers;
  for (size_t end; (end = pending_.find('\n')) != std::string::npos; pending_.erase(0, end + 1)) {
    const auto json = nlohmann::json::parse(pending_.substr(0, end));
    answers.push_back(
        {json.at("id"), json.at("did") == "undo", json.at("ok"), json.at("time_ns"), json.at("said")});
  }
  return answers;
}

}  // namespace r2bench
