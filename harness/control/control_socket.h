// SPDX-License-Identifier: Apache-2.0
// Abstract unix sockets by which commands find what runs: nothing ever lies in the file system, and a name is
// free again the moment its owner is gone. Only processes of the same user talk to each other.
#pragma once

#include <sys/types.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace r2bench {

/// Nobody serves there, or who serves refuses: one sentence for the user.
class ControlError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// 1 to 48 letters, digits, '.', '_' and '-'; what is wrong with it, in words, or nothing.
std::optional<std::string> wrong_with_name(const std::string& name);

/// A descriptor that listens at `name` (close-on-exec), or -1 when somebody else does: whoever comes first
/// has it. Throws std::system_error for everything else.
int listen_at(const std::string& name);

/// A connected descriptor (close-on-exec), or -1 when nobody listens there. Throws std::system_error,
/// ControlError when it is another user who listens.
int connect_to(const std::string& name);

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
/// Who is at the other end of a connected unix socket, as the kernel says (SO_PEERCRED).
Peer peer_of(int fd);

/// Names at which this user's processes listen now, in the order of the alphabet. Of this network namespace.
std::vector<std::string> listening_names();

/// The same from the text of /proc/net/unix.
std::vector<std::string> listening_names(const std::string& proc_net_unix, uid_t uid);

}  // namespace r2bench
