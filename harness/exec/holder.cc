// SPDX-License-Identifier: Apache-2.0
#include "harness/exec/holder.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "faultinject/control/board_host.h"
#include "harness/control/board_service.h"
#include "harness/control/control_server.h"
#include "harness/fabric/device_fabric.h"
#include "harness/launch/marked_processes.h"

namespace r2bench {
namespace {

constexpr auto kLook = std::chrono::seconds(1);  // how late a SIGTERM between two polls may be noticed
constexpr int kStarterFd = 3;

volatile sig_atomic_t told_to_end = 0;

class Holder {
 public:
  Holder(int listener, int starter_fd, std::string name, const FabricShape& shape, std::string lib_dir,
         std::unique_ptr<DeviceFabric> fabric, faultinject::BoardHost board)
      : name_(std::move(name)),
        shape_(shape),
        lib_dir_(std::move(lib_dir)),
        fabric_(std::move(fabric)),
        board_(std::move(board)),
        service_(board_, shape.nodes(), "exec"),
        server_(
            listener,
            [this](uint64_t c, const Peer& peer, const nlohmann::json& r) { return answer(c, peer, r); },
            [this](uint64_t c) { gone(c); }) {
    members_[server_.adopt(starter_fd)] = {};  // before it has said so: it may be killed in between
  }

  void serve() {
    while (!ending_ && told_to_end == 0) server_.serve(kLook);
  }

 private:
  struct Member {
    std::string who = "exec";
    std::string mark;
    std::vector<uint32_t> faults;
  };

  nlohmann::json answer(uint64_t connection, const Peer& peer, const nlohmann::json& request) {
    const std::string type = request.value("type", "");
    if (type == "join") return join(connection, peer, request);
    if (type == "bye") {
      take_out(connection);
      return {{"last", ending_}};
    }
    const auto member = members_.find(connection);
    if (type == "what") {
      std::vector<std::string> who;
      for (const auto& [number, one] : members_) who.push_back(one.who);
      return {{"what", "fabric '" + name_ + "' of r2bench exec (" + describe(shape_) + ")"},
              {"members", who}};
    }
    const auto reply = service_.answer(request, member == members_.end() ? "inject" : member->second.who);
    if (!reply) return {{"error", "there is no request '" + type + "'"}};
    if (type == "add" && member != members_.end())
      for (const auto& id : (*reply)["ids"]) member->second.faults.push_back(id.get<uint32_t>());
    return *reply;
  }

  nlohmann::json join(uint64_t connection, const Peer& peer, const nlohmann::json& request) {
    if (ending_) return {{"busy", true}};  // the name is free in a moment
    const auto node = request.at("node").get<std::string>();
    check_node(shape_, node);
    Member& member = members_[connection];
    member.who =
        request.value("program", "a program") + " on " + node + " (exec " + std::to_string(peer.pid) + ")";
    member.mark = board_.path() + "#" + std::to_string(connection);
    const int index = std::stoi(node.substr(node_name(0).size() - 1));
    return {{"shape", to_json(shape_)},
            {"environment", fabric_->environment(index)},
            {"library_folders", fabric_->library_folders()},
            {"lib_dir", lib_dir_},
            {"board", board_.path()},
            {"mark", member.mark}};
  }

  /// Returns its mark; empty when it is no member.
  std::string take_out(uint64_t connection) {
    const auto found = members_.find(connection);
    if (found == members_.end()) return "";
    const Member member = std::move(found->second);
    members_.erase(found);
    for (const uint32_t id : member.faults) board_.heal(id);
    ending_ = members_.empty();
    return member.mark;
  }

  void gone(uint64_t connection) {
    const std::string mark = take_out(connection);
    if (!mark.empty()) kill_marked(mark);
  }

  std::string name_;
  FabricShape shape_;
  std::string lib_dir_;
  std::unique_ptr<DeviceFabric> fabric_;
  faultinject::BoardHost board_;  // heals everything when it goes
  BoardService service_;
  std::map<uint64_t, Member> members_;
  bool ending_ = false;  // the last member has gone: nobody joins any more
  ControlServer server_;
};

/// A session of its own, no terminal, no file of the starter's: Ctrl-C there does not reach it, and nobody
/// waits for a pipe that it would keep open.
int detach(int starter_fd) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, 0);
  ::prctl(PR_SET_NAME, "r2bench-holder");
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2})
    ::sigaction(signal, &action, nullptr);
  action.sa_handler = [](int) { told_to_end = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int high = ::fcntl(starter_fd, F_DUPFD_CLOEXEC, 10);
  const int null = ::open("/dev/null", O_RDWR);
  if (high < 0 || null < 0) ::_exit(1);
  for (const int fd : {0, 1, 2}) ::dup2(null, fd);
  ::dup2(high, kStarterFd);
  ::fcntl(kStarterFd, F_SETFD, FD_CLOEXEC);
  if (::syscall(SYS_close_range, unsigned(kStarterFd) + 1, ~0u, 0u) != 0)
    for (int fd = kStarterFd + 1; fd < 65536; ++fd) ::close(fd);
  if (::chdir("/") != 0) ::_exit(1);
  // A command that runs below another, or below a rank of the engine exec, carries that one's mark; the
  // holder is nobody's program, and must not end with it.
  blank_marks();
  return kStarterFd;
}

}  // namespace

void become_holder(int starter_fd, const std::string& name, const FabricShape& shape,
                   const std::string& lib_dir) {
  const int starter = detach(starter_fd);
  try {
    auto fabric = make_fabric(shape.kind, shape.fabric, lib_dir);
    auto board = faultinject::BoardHost::create(shape.nodes(), shape.seed);
    const int listener = listen_at(name);
    if (listener < 0) {
      MessageSocket(starter).send({{"busy", true}});
      ::_exit(0);
    }
    Holder(listener, starter, name, shape, lib_dir, std::move(fabric), std::move(board)).serve();
  } catch (const std::exception& error) {
    MessageSocket(starter).send({{"error", error.what()}});
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace r2bench
