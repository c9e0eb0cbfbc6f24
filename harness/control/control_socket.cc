// SPDX-License-Identifier: Apache-2.0
#include "harness/control/control_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

namespace r2bench {
namespace {

constexpr size_t kMaxName = 48;
constexpr int kBacklog = 64;
// include/uapi/linux/net.h: set in /proc/net/unix for sockets that listen (accepted ones carry the same
// name).
constexpr unsigned long kAcceptsConnections = 1ul << 16;

std::string prefix(uid_t uid) { return "r2bench/" + std::to_string(uid) + "/"; }

socklen_t address_of(const std::string& name, sockaddr_un& address) {
  const std::string path = prefix(geteuid()) + name;
  address = {};
  address.sun_family = AF_UNIX;
  // sun_path[0] stays 0: the abstract name space. The length says where the name ends.
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + path.size());
}

[[noreturn]] void fail(int fd, const std::string& what) {
  const int error = errno;
  if (fd >= 0) ::close(fd);
  throw std::system_error(error, std::generic_category(), what);
}

int new_socket() {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail(fd, "unix socket");
  return fd;
}

}  // namespace

std::optional<std::string> wrong_with_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxName)
    return "a name has 1 to " + std::to_string(kMaxName) + " characters";
  for (const char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::strchr("._-", c) == nullptr)
      return "the name '" + name + "' may hold letters, digits, '.', '_' and '-' only";
  return std::nullopt;
}

int listen_at(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  const int fd = new_socket();
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != EADDRINUSE) fail(fd, "bind of the control socket '" + name + "'");
    ::close(fd);
    return -1;
  }
  if (::listen(fd, kBacklog) != 0) fail(fd, "listen at the control socket '" + name + "'");
  return fd;
}

int connect_to(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  const int fd = new_socket();
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != ECONNREFUSED) fail(fd, "connect to the control socket '" + name + "'");
    ::close(fd);
    return -1;
  }
  if (peer_of(fd).uid != geteuid()) {
    ::close(fd);
    throw ControlError("another user listens at the control socket '" + name + "'; choose another name");
  }
  return fd;
}

Peer peer_of(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    throw std::system_error(errno, std::generic_category(), "SO_PEERCRED");
  return {credentials.pid, credentials.uid};
}

std::vector<std::string> listening_names(const std::string& proc_net_unix, uid_t uid) {
  const std::string wanted = "@" + prefix(uid);
  std::set<std::string> names;
  std::istringstream lines(proc_net_unix);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream row(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    if (!(row >> number >> references >> protocol >> flags >> type >> state >> inode >> path)) continue;
    if (path.rfind(wanted, 0) != 0) continue;
    if ((std::strtoul(flags.c_str(), nullptr, 16) & kAcceptsConnections) == 0) continue;
    const std::string name = path.substr(wanted.size());
    if (!wrong_with_name(name)) names.insert(name);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> listening_names() {
  std::ifstream file("/proc/net/unix");
  std::ostringstream text;
  text << file.rdbuf();
  return listening_names(text.str(), geteuid());
}

}  // namespace r2bench
