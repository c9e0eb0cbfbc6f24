// SPDX-License-Identifier: Apache-2.0
#include "harness/control/control_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace r2bench {

ControlServer::ControlServer(int listener, Answer answer, Gone gone)
    : listener_(listener), answer_(std::move(answer)), gone_(std::move(gone)) {}

ControlServer::~ControlServer() {
  if (listener_ >= 0) ::close(listener_);
}

uint64_t ControlServer::adopt(int fd) {
  const Peer peer = peer_of(fd);
  connections_.emplace(next_, Connection{MessageSocket(fd), peer});
  return next_++;
}

void ControlServer::accept_callers() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) {
    // Out of descriptors: the caller stays in the queue; do not spin on him.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::poll(nullptr, 0, 10);
    return;
  }
  if (peer_of(fd).uid != geteuid()) {
    MessageSocket(fd).send({{"error", "this belongs to another user"}});
    return;
  }
  adopt(fd);
}

void ControlServer::serve_one(uint64_t number, Connection& connection) {
  while (const auto request = connection.socket.receive(std::chrono::milliseconds(0))) {
    nlohmann::json reply;
    try {
      reply = answer_(number, connection.peer, *request);
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    if (!connection.socket.send(reply)) connection.socket.close();
  }
}

void ControlServer::serve(std::chrono::milliseconds wait) {
  std::vector<pollfd> fds{{listener_, POLLIN, 0}};
  std::vector<uint64_t> numbers;
  for (const auto& [number, connection] : connections_) {
    fds.push_back({connection.socket.fd(), POLLIN, 0});
    numbers.push_back(number);
  }
  if (::poll(fds.data(), nfds_t(fds.size()), wait.count() < 0 ? -1 : int(wait.count())) <= 0) return;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (fds[i + 1].revents == 0) continue;
    const auto found = connections_.find(numbers[i]);
    serve_one(found->first, found->second);
    if (!found->second.socket.closed()) continue;
    connections_.erase(found);
    if (gone_) gone_(numbers[i]);
  }
  if (fds[0].revents != 0) accept_callers();
}

}  // namespace r2bench
