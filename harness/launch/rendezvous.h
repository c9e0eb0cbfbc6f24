// SPDX-License-Identifier: Apache-2.0
// How the processes of a job on several machines find the runner: it listens on a TCP port, its addresses and
// the job's secret travel in the environment of whoever starts the others. IPv4 and IPv6.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/launch/secure_link.h"

namespace r2bench {

inline constexpr const char* kRendezvousVariable = "R2BENCH_RENDEZVOUS";  ///< "10.0.0.1:4711,[fd00::1]:4711"
inline constexpr const char* kSecretVariable = "R2BENCH_JOB_SECRET";

class Rendezvous {
 public:
  /// Listens on `port` of every address of this machine; 0: on one that is free. Throws std::system_error.
  explicit Rendezvous(std::string secret, uint16_t port = 0);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const std::string& secret() const { return secret_; }
  uint16_t port() const { return port_; }
  /// For kRendezvousVariable: every address of this machine, those of IPv4 first, the loopback's last.
  std::string addresses() const;

  struct Caller {
    SecureLink link;
    nlohmann::json hello;  ///< its first message
  };
  /// The next caller who knows the secret; nullopt when none came within `wait`. Others are sent away and
  /// noted in refused().
  std::optional<Caller> accept(std::chrono::milliseconds wait);
  /// One sentence each: who called in vain, and why.
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  std::string secret_;
  uint16_t port_ = 0;
  int listener_ = -1;
  std::vector<std::string> refused_;
};

/// Connects to the first of `addresses` ("ADDRESS:PORT,…", names are looked up) that answers, trying again
/// until `wait` is over, and sends `hello`. closed() when nobody did; `why` says why the last one did not.
SecureLink call_runner(const std::string& addresses, const std::string& secret, const nlohmann::json& hello,
                       std::chrono::milliseconds wait, std::string& why);

/// The network interface whose address this socket has here; empty when that is unknown.
std::string interface_of(int fd);

}  // namespace r2bench
