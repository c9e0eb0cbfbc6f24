// SPDX-License-Identifier: Apache-2.0
// A rank that is a child of this process.
#pragma once

#include <memory>

#include "harness/hosts/rank_port.h"
#include "harness/launch/bootstrap.h"
#include "harness/launch/process.h"

namespace r2bench {

class LocalRank final : public RankPort {
 public:
  /// Starts it. Throws std::system_error.
  explicit LocalRank(const ProcessSpec& spec) : process_(spec) {}

  /// Takes the connection when the rank has called; sends `config` first. true once it is there.
  bool connect(Bootstrap& bootstrap, size_t index, const nlohmann::json& config);
  bool send(const nlohmann::json& message) override { return socket_.send(message); }
  std::optional<nlohmann::json> receive() override { return socket_.receive(std::chrono::milliseconds(0)); }
  pid_t pid() const override { return process_.pid(); }
  std::optional<int> ended() override { return process_.ended(); }
  uint64_t signal(int number) override;
  /// SIGKILL to it and its children, and waits for it.
  void kill() { process_.kill(); }

 private:
  MessageSocket socket_;
  Process process_;
};

}  // namespace r2bench
