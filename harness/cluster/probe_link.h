// SPDX-License-Identifier: Apache-2.0
// A port probe on this host or another one, as a process of which this holds the input and the output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace r2bench {

class ProbeLink {
 public:
  /// `command`: of /bin/sh; it runs r2bench-port-probe, through ssh where that is elsewhere.
  ProbeLink(std::string host, const std::string& command);
  ProbeLink(const ProbeLink&) = delete;
  ~ProbeLink();

  const std::string& host() const { return host_; }
  /// Its answer. Throws std::runtime_error with a sentence when it has ended or says nothing within `limit`;
  /// it is not asked again then, because an answer that comes late is not that of the next request.
  nlohmann::json ask(const nlohmann::json& request, std::chrono::seconds limit = std::chrono::seconds(60));

 private:
  std::string host_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, errors_ = -1;
  std::string pending_;
  std::string lost_;  ///< why it is not asked any more
};

}  // namespace r2bench
