// SPDX-License-Identifier: Apache-2.0
// Interfaces that a real fault must not touch, because whoever watches the job would be cut off: the
// machine's way out, the user's ssh, the connections of the job itself.
#pragma once

#include <string>
#include <vector>

namespace r2bench {

struct Lifeline {
  std::string interface;
  std::string what;  ///< "this job's ssh session comes in over it"
  std::string mend;  ///< what the user can do about it
};

/// `proc`: where procfs lies. `socket_names`: NCCL_SOCKET_IFNAME; `runner_link`: the interface
/// over which r2bench run is reached; both may be empty.
struct LifelineSources {
  std::string socket_names, runner_link;
  std::string proc = "/proc";
};
std::vector<Lifeline> lifelines(const LifelineSources& sources);

/// Interfaces by which this machine's default routes leave.
std::vector<std::string> default_routes(const std::string& proc = "/proc");

/// SSH_CONNECTION of this process or of the nearest ancestor that has it: sudo takes it away. Empty: none.
std::string ssh_connection(const std::string& proc = "/proc");

/// The interface that has this address ("10.0.0.1", "fe80::1%eth0"); empty: none.
std::string interface_with_address(const std::string& address);

/// Does what goes over `upper` go over `interface`, as the port of a bond, of a bridge or of a VLAN?
bool carries(const std::string& interface, const std::string& upper, const std::string& sys = "/sys");

}  // namespace r2bench
