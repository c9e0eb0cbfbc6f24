// SPDX-License-Identifier: Apache-2.0
#include "harness/exec/membership.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "harness/control/control_client.h"
#include "harness/control/control_socket.h"
#include "harness/exec/holder.h"

namespace r2bench {
namespace {

constexpr auto kJoinBound = std::chrono::seconds(10);
constexpr int kRetryMs = 10;

struct Starting {
  MessageSocket socket;
  pid_t pid = -1;
};

Starting start_holder(const std::string& name, const FabricShape& shape, const std::string& lib_dir) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  const pid_t pid = ::fork();
  if (pid == 0) become_holder(ends[1], name, shape, lib_dir);
  const int error = errno;
  ::close(ends[1]);
  Starting starting{MessageSocket(ends[0]), pid};
  if (pid < 0) throw std::system_error(error, std::generic_category(), "cannot start the fabric's holder");
  return starting;
}

/// A holder that we started and do not need: it ends when its first member leaves.
void reap(pid_t holder, MessageSocket& socket) {
  socket.close();
  if (holder > 0) ::waitpid(holder, nullptr, 0);
}

Membership welcome(MessageSocket socket, const nlohmann::json& answer, const std::string& node) {
  Membership membership;
  membership.holder = std::move(socket);
  membership.shape = shape_from(answer.at("shape"));
  membership.environment = answer.at("environment").get<std::map<std::string, std::string>>();
  membership.injection.lib_dir = answer.at("lib_dir").get<std::string>();
  membership.injection.library_folders = answer.at("library_folders").get<std::vector<std::string>>();
  membership.injection.board = answer.at("board").get<std::string>();
  membership.injection.node = node;
  membership.mark = answer.at("mark").get<std::string>();
  return membership;
}

}  // namespace

Membership join_fabric(const std::string& name, const std::string& node, const std::string& program,
                       const WantedShape& wanted, const std::string& lib_dir) {
  if (const auto wrong = wrong_with_name(name)) throw ControlError(*wrong);
  const FabricShape shape = shape_of(wanted);
  const nlohmann::json request = {{"type", "join"}, {"node", node}, {"program", program}};
  const auto deadline = std::chrono::steady_clock::now() + kJoinBound;
  // Once more when a holder ends just as we call, or when another command is making the fabric at this
  // moment.
  for (; std::chrono::steady_clock::now() < deadline; ::poll(nullptr, 0, kRetryMs)) {
    const int fd = connect_to(name);
    MessageSocket socket(fd);
    Starting starting;
    if (fd < 0) {
      check_node(shape, node);
      starting = start_holder(name, shape, lib_dir);
      socket = std::move(starting.socket);
    }
    nlohmann::json answer;
    try {
      if (fd >= 0) {
        const nlohmann::json there = ask(socket, {{"type", "what"}});
        if (!there.contains("members"))
          throw ControlError("'" + name + "' is " + there.value("what", "something else") +
                             ", and no fabric of exec");
      }
      answer = ask(socket, request);
    } catch (const ControlLost&) {
      reap(starting.pid, socket);
      continue;
    } catch (const ControlError&) {
      reap(starting.pid, socket);
      throw;
    }
    if (answer.contains("busy")) {
      reap(starting.pid, socket);
      continue;
    }
    Membership membership = welcome(std::move(socket), answer, node);
    membership.started = starting.pid;
    const std::string differs = mismatch(wanted, membership.shape);
    if (!differs.empty()) {
      leave(membership);
      throw ControlError("a fabric '" + name + "' already runs with other options: " + differs + ". It is " +
                         describe(membership.shape) + "; leave these options out, or choose another --name");
    }
    return membership;
  }
  throw ControlError("the fabric '" + name + "' could be neither joined nor made within 10 s");
}

void leave(Membership& membership) {
  bool last = false;
  try {
    last = ask(membership.holder, {{"type", "bye"}}).value("last", false);
  } catch (const ControlError&) {
    // It is gone; so are we.
  }
  membership.holder.close();
  if (last && membership.started > 0) ::waitpid(membership.started, nullptr, 0);
}

}  // namespace r2bench
