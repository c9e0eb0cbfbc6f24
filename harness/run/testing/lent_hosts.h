// SPDX-License-Identifier: Apache-2.0
// Test support: two hosts of this process, which stand for those of a launcher and can be lost.
#pragma once

#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/hosts/cluster.h"
#include "harness/hosts/local_host.h"
#include "harness/run/build_paths.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

/// How a LentHost is lost, and what its ranks' ports still tell.
struct Loss {
  using Milliseconds = std::chrono::milliseconds;
  int jobs_until = 100;  ///< then it refuses to prepare one
  bool as_it_settles = false;
  bool as_it_is_asked_for_threads = false;
  std::optional<Milliseconds> after;  ///< from its start
  bool as_its_rank_is_seen_to_end = false;
  bool kills_its_ranks = false;            ///< once `after` is over
  std::optional<Milliseconds> deaf_after;  ///< no word of its ranks is heard from then on
  Milliseconds ends_late_by{0};            ///< a rank's end is told so much later
  bool tells_no_ends = false;
  Milliseconds silent_before{0};  ///< heard_ns() is so long before the loss
};

class LentHost;

/// A rank's port, which tells what its host's Loss lets it tell.
class LentPort final : public RankPort {
 public:
  LentPort(RankPort& port, LentHost& host) : port_(port), host_(host) {}
  bool send(const nlohmann::json& message) override { return port_.send(message); }
  std::optional<nlohmann::json> receive() override;
  pid_t pid() const override { return port_.pid(); }
  std::optional<int> ended() override;
  uint64_t signal(int number) override { return port_.signal(number); }

 private:
  RankPort& port_;
  LentHost& host_;
  std::optional<std::chrono::steady_clock::time_point> end_seen_;
};

/// A LocalHost that can be lost.
class LentHost final : public Host {
 public:
  LentHost(const BuildPaths& paths, const std::string& folder, std::string name)
      : local_(paths.bin_dir, paths.lib_dir, folder), name_(std::move(name)) {}

  Loss loss;
  std::map<std::string, std::string> more_environment;

  void prepare(const HostPlan& plan) override {
    if (--loss.jobs_until < 0) throw FabricError("host " + name_ + " did not answer 'prepare'");
    local_.prepare(plan);
    environment_ = local_.environment();
    for (const auto& [variable, value] : more_environment) environment_[variable] = value;
  }
  void start() override {
    local_.start();
    started_ = std::chrono::steady_clock::now();
  }
  void tick() override {
    local_.tick();
    if (!loss.kills_its_ranks || !is_over(loss.after)) return;
    for (const auto& [rank, port] : ports_) port->signal(SIGKILL);
  }
  faultinject::FaultBoard& board() override { return local_.board(); }
  RankPort& rank(int rank) override {
    return *ports_.try_emplace(rank, std::make_unique<LentPort>(local_.rank(rank), *this)).first->second;
  }
  uint64_t drain(int rank, std::vector<r2ccl::trace::Event>& out) override { return local_.drain(rank, out); }
  std::vector<HostNote> notes() override { return local_.notes(); }
  void put_back() override { local_.put_back(); }
  void decline(r2ccl::trace::EventType type) override { local_.decline(type); }
  std::string evidence() const override { return local_.evidence(); }
  std::map<int, std::vector<std::string>> devices() const override { return local_.devices(); }
  const std::map<std::string, std::string>& environment() const override { return environment_; }
  ThreadReport threads() override {
    if (loss.as_it_is_asked_for_threads) lose();
    return local_.threads();
  }
  void settle() override {
    if (loss.as_it_settles) lose();
  }
  int log_error() const override { return local_.log_error(); }
  void release() override {
    ports_.clear();
    local_.release();
  }
  std::optional<std::string> failure() override {
    if (!loss.as_its_rank_is_seen_to_end && is_over(loss.after)) lose();
    if (!lost_ns_) return std::nullopt;
    return "host " + name_ + " is gone";
  }
  uint64_t heard_ns() const override {
    return *lost_ns_ - uint64_t(loss.silent_before.count()) * r2ccl::kNsPerMs;
  }
  HostFacts facts() const override {
    HostFacts facts = local_.facts();
    facts.name = name_;
    return facts;
  }

  void lose() {
    if (!lost_ns_) lost_ns_ = r2ccl::now_ns();
  }
  bool is_over(const std::optional<Loss::Milliseconds>& after) const {
    return after && std::chrono::steady_clock::now() > started_ + *after;
  }

 private:
  LocalHost local_;
  std::string name_;
  std::map<int, std::unique_ptr<LentPort>> ports_;
  std::chrono::steady_clock::time_point started_;
  std::optional<uint64_t> lost_ns_;
  std::map<std::string, std::string> environment_;
};

inline std::optional<nlohmann::json> LentPort::receive() {
  return host_.is_over(host_.loss.deaf_after) ? std::nullopt : port_.receive();
}

inline std::optional<int> LentPort::ended() {
  const auto status = host_.loss.tells_no_ends ? std::nullopt : port_.ended();
  if (!status) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  if (!end_seen_) end_seen_ = now;
  if (now < *end_seen_ + host_.loss.ends_late_by) return std::nullopt;
  if (host_.loss.as_its_rank_is_seen_to_end) host_.lose();
  return status;
}

/// Hosts a and b, each with half of the nodes.
class LentHosts final : public Cluster {
 public:
  explicit LentHosts(const std::string& folder)
      : a(find_build({}, Engine::kCpu), folder, "a"), b(find_build({}, Engine::kCpu), folder, "b") {}
  std::vector<Host*> hosts(const std::string&) override { return {&a, &b}; }
  std::optional<std::string> failure() override {
    if (!a.is_over(launcher_ends_after)) return std::nullopt;
    return "the launcher (mpi) ended with status 1";
  }
  std::string master_address() override { return "10.1.2.3"; }

  LentHost a, b;
  std::optional<Loss::Milliseconds> launcher_ends_after;  ///< from the start of host a
};

}  // namespace r2bench
